package statistics

import (
	"testing"
	"time"
)

func TestParseThrottled(t *testing.T) {
	for text, want := range map[string]Throttled{
		"usage_usec 7\nnr_periods 10\nnr_throttled 4\nthrottled_usec 1500\n": {4, 1500 * time.Microsecond},
		"nr_periods 10\nnr_throttled 4\nthrottled_time 1500\n":               {4, 1500},
		"nr_periods 10\nnr_throttled x\n":                                    {},
	} {
		if got, has := parseThrottled(text); got != want || !has {
			t.Errorf("%q: %+v, %v", text, got, has)
		}
	}
	for _, none := range []string{"", "usage_usec 7\n", "nr_periods 0\nnr_throttled 0\nthrottled_usec 0\n"} {
		if got, has := parseThrottled(none); has {
			t.Errorf("%q: %+v", none, got)
		}
	}
}

func FuzzParseThrottled(f *testing.F) {
	f.Add("nr_periods 10\nnr_throttled 4\nthrottled_usec 18446744073709551615\n")
	f.Fuzz(func(t *testing.T, text string) {
		if got, _ := parseThrottled(text); got.Waited < 0 {
			t.Errorf("%+v", got)
		}
	})
}
