package english_test

import (
	"math"
	"testing"
	"time"

	"sluice/internal/base/english"
)

func TestPlural(t *testing.T) {
	for want, got := range map[string]string{
		"1 element": english.Plural(1, "element"), "0 elements": english.Plural(0, "element"), "2 elements": english.Plural(uint64(2), "element"),
		"1 other address": english.Plural(1, "other address"), "2 other addresses": english.Plural(2, "other address"),
		"1 class": english.Plural(1, "class"), "3 classes": english.Plural(3, "class"),
		"1 country": english.Plural(1, "country"), "3 countries": english.Plural(3, "country"),
	} {
		if got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

func TestDuration(t *testing.T) {
	for want, d := range map[string]time.Duration{"0s": 0, "20s": 20 * time.Second, "10m": 10 * time.Minute, "1h": time.Hour, "1h5m": 65 * time.Minute, "1h0m5s": time.Hour + 5*time.Second, "24h": 24 * time.Hour, "2d": 48 * time.Hour, "49h": 49 * time.Hour} {
		if got := english.Duration(d); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
}

func TestSpan(t *testing.T) {
	for want, d := range map[string]time.Duration{
		"0s": -time.Minute, "59s": time.Minute - 1, "1h": time.Hour, "47h59m59s": 48*time.Hour - 1, "2d": 48 * time.Hour, "3d": 72*time.Hour - time.Second,
		"2d23h": 71 * time.Hour, "90d": 90 * 24 * time.Hour,
	} {
		if got := english.Span(d); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
}

func TestMoment(t *testing.T) {
	at := time.Date(2026, 12, 1, 1, 2, 3, 0, time.FixedZone("", 3600))
	if got := english.Moment(at); got != "2026-12-01 00:02:03 UTC" {
		t.Error(got)
	}
}

func TestList(t *testing.T) {
	for want, words := range map[string][]string{"": nil, "a": {"a"}, "a and b": {"a", "b"}, "a, b and c": {"a", "b", "c"}} {
		if got := english.List(words); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

func TestFew(t *testing.T) {
	words := []string{"a", "b", "c", "d"}
	for most, want := range map[int]string{1: "a and 3 more", 3: "a, b, c and 1 more", 4: "a, b, c and d", 9: "a, b, c and d"} {
		if got := english.Few(words, most); got != want {
			t.Errorf("%d: got %s, want %s", most, got, want)
		}
	}
}

func TestGrouped(t *testing.T) {
	for want, got := range map[string]string{
		"0": english.Grouped(0), "999": english.Grouped(999), "1,000": english.Grouped(1000), "1,234,567": english.Grouped(1234567),
		"18,446,744,073,709,551,615": english.Grouped(uint64(math.MaxUint64)),
	} {
		if got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
