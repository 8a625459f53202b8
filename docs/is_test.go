package docs

import "testing"

// A page that shows other than what was printed fails its test.
func TestIs(t *testing.T) {
	for _, test := range []struct {
		shown, printed string
		want           bool
	}{
		{"one\ntwo", "one\ntwo\n", true},
		{"one", "one\ntwo\n", false},
		{"two", "one\ntwo\n", false},
		{"one\n…", "one\ntwo\nthree\n", true},
		{"one\n…", "one\n", true},
		{"…\ntwo", "one\ntwo\n", true},
		{"…\nwo", "one\ntwo\n", false},
		{"one\n…\nthree", "one\nthree\n", true},
		{"o…e", "oranges are nice\ntwo\n", false},
		{"o…e", "orange\n", true},
		{"a.c", "abc\n", false},
		{"one  ", "one", true},
		{"one", "", false},
	} {
		if got := is(test.shown, test.printed); got != test.want {
			t.Errorf("%q of %q: %v", test.shown, test.printed, got)
		}
	}
}
