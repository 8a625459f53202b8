package command

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"
)

func TestPlainText(t *testing.T) {
	for text, want := range map[string]string{
		"plain, gr\u00fc\u00dfe\n\ttab": "plain, gr\u00fc\u00dfe\n\ttab",
		"a\x1b[2Jb\rc":                  `a\u001b[2Jb\u000dc`,
		"\x1b]0;title\x07":              `\u001b]0;title\u0007`,
		"\u009b31m":                     `\u009b31m`, // CSI of eight bits
		"\x9b31m":                       `\u009b31m`,
		"evil\u202ecod.exe":             `evil\u202ecod.exe`,
		"\x7f\x00":                      `\u007f\u0000`,
		"\x1b[31mred\x1b[0m":            `\u001b[31mred\u001b[0m`,
	} {
		if got := string(plainText([]byte(text), false)); got != want {
			t.Errorf("%q is written %q, want %q", text, got, want)
		}
	}
	own := "\x1b[1;31mdropped\x1b[0m"
	if got := string(plainText([]byte(own), true)); got != own {
		t.Errorf("on a terminal %q is written %q", own, got)
	}
	if got := string(plainText([]byte("\x1b[8mhidden"), true)); got != `\u001b[8mhidden` {
		t.Errorf("on a terminal concealed text is written %q", got)
	}
}

// Whatever is written, nothing of it steers a terminal, and JSON says the same as before.
func FuzzPlainText(f *testing.F) {
	for _, text := range []string{"a\x1b[2Jb", "\u009b", "\xc2", "\u202e", "plain\n", "\xff\x80"} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		var out bytes.Buffer
		n, err := newPlainWriter(&out).Write(text)
		if err != nil || n != len(text) {
			t.Fatalf("%d of %d bytes: %v", n, len(text), err)
		}
		if !utf8.Valid(out.Bytes()) || strings.ContainsFunc(out.String(), func(r rune) bool { return unicode.IsControl(r) && r != '\n' && r != '\t' }) {
			t.Errorf("%q is written %q", text, out.String())
		}
		data, err := json.Marshal(string(text))
		if err != nil {
			t.Fatal(err)
		}
		var before, after string
		if err := json.Unmarshal(data, &before); err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal(plainText(data, false), &after); err != nil || before != after {
			t.Errorf("JSON of %q says %q afterwards: %v", before, after, err)
		}
	})
}
