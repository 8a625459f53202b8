package bans

import (
	"io"
	"strings"
	"unicode"
	"unicode/utf8"

	"sluice/internal/base/addrset"
	"sluice/internal/language/resolve"
)

// MaxReason is how long a reason may be, in bytes; longer ones are cut.
const MaxReason = 200

// Named is one line of an input.
type Named struct {
	What   addrset.Range
	Reason string // "" where none was given
}

// ReadInput reads one address, prefix or range a line; the rest of a line is
// the reason, what follows # is a remark. Bad lines come back as policy.Errors
// with line and column in name.
func ReadInput(name string, text io.Reader) ([]Named, error) {
	var out []Named
	err := resolve.EachLine(name, text, "#", func(body string, _, _ int) error {
		word, reason := body, ""
		if i := strings.IndexFunc(body, unicode.IsSpace); i >= 0 {
			word, reason = body[:i], Reason(body[i:])
		}
		r, err := addrset.ParseRange(word)
		out = append(out, Named{r, reason})
		return err
	})
	if err != nil {
		return nil, err
	}
	return out, nil
}

// Reason makes a text a reason: one line, without what a terminal would act on.
func Reason(text string) string {
	text = strings.Join(strings.FieldsFunc(text, func(r rune) bool {
		return unicode.IsSpace(r) || unicode.IsControl(r) || r == utf8.RuneError
	}), " ")
	for len(text) > MaxReason {
		_, size := utf8.DecodeLastRuneInString(text)
		text = text[:len(text)-size]
	}
	return strings.TrimSpace(text)
}
