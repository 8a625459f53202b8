package apart

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"sluice/internal/base/addrset"
)

// The process sees nothing of the environment but proxies and certificates.
func TestEnvironment(t *testing.T) {
	t.Setenv("HTTPS_PROXY", "http://proxy.example.net:3128")
	t.Setenv("SECRET", "x")
	env := environment()
	if !slices.Contains(env, "HTTPS_PROXY=http://proxy.example.net:3128") || slices.ContainsFunc(env, func(v string) bool { return strings.HasPrefix(v, "SECRET") }) {
		t.Errorf("the child gets %q", env)
	}
}

// A process that a server has taken over cannot hand back what are no ranges.
func TestAnswersThatCannotBe(t *testing.T) {
	head := func(text string) string {
		return string([]byte{0, 0, byte(len(text) >> 8), byte(len(text))}) + text
	}
	for name, c := range map[string]struct{ answer, want string }{
		"nothing":           {"", "no answer"},
		"a huge head":       {"\xff\xff\xff\xff", "no answer"},
		"a short head":      {"\x00\x00\x00\x09{}", "cannot be read"},
		"no JSON":           {head("no"), "cannot be read"},
		"an unknown family": {head("{}") + "\x00\x00\x00\x01\x05\x01\x01\x01\x01\x01\x01\x01\x01", "family 5"},
		"a range reversed":  {head("{}") + "\x00\x00\x00\x01\x04\x02\x02\x02\x02\x01\x01\x01\x01", "not a range"},
		"a mapped address":  {head("{}") + "\x00\x00\x00\x01\x06" + strings.Repeat("\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\xff\xff\x01\x01\x01\x01", 2), "not a range"},
		"half a row":        {head("{}") + "\x00\x00\x00\x01\x04\x01\x01", "unexpected EOF"},
	} {
		_, err := readAnswer(strings.NewReader(c.answer), nil, func(Row) error { return nil })
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
	progress := 0
	told := func(int64, int64) { progress++ }
	if _, err := readAnswer(strings.NewReader(strings.Repeat(head(`{"progress":[1,2]}`), 3)), told, func(Row) error { return nil }); err == nil || progress != 3 {
		t.Errorf("progress alone is told %d times, %v", progress, err)
	}
	h, err := readAnswer(strings.NewReader(head(`{"name":"a\u001b]0;x\nb","about":{"source":"`+strings.Repeat("s", 5000)+`"}}`)), nil, func(Row) error { return nil })
	if err != nil || h.Name != "a\ufffd]0;x b" || len(h.About.Source) != maxName {
		t.Errorf("%+v, %v", h, err)
	}
	h, err = readAnswer(strings.NewReader(head(`{"error":"a\u001b[2J","etag":"\"x\"\r\nHost: y"}`)), nil, func(Row) error { return nil })
	if err != nil || strings.Contains(h.Error, "\x1b") || h.ETag != "" {
		t.Errorf("%+v, %v", h, err)
	}
}

func FuzzReadAnswer(f *testing.F) {
	var b bytes.Buffer
	r := addrset.MustParseRange("2001:db8::/48")
	if err := writeAnswer(&b, head{ETag: `"x"`}, []Row{{3, r}}); err != nil {
		f.Fatal(err)
	}
	f.Add(b.Bytes())
	f.Fuzz(func(t *testing.T, data []byte) {
		var got []Row
		h, err := readAnswer(bytes.NewReader(data), nil, func(r Row) error { got = append(got, r); return nil })
		if err != nil {
			return
		}
		var again bytes.Buffer
		if err := writeAnswer(&again, h, got); err != nil {
			t.Fatal(err)
		}
		var same []Row
		if _, err := readAnswer(&again, nil, func(r Row) error { same = append(same, r); return nil }); err != nil || !slices.Equal(got, same) {
			t.Fatal(errors.Join(err, fmt.Errorf("%v became %v", got, same)))
		}
	})
}
