package bans

import (
	"io"
	"strings"
	"unicode"
	"unicode/utf8"

	"sluice/internal/base/addrset"
	"sluice/internal/language/geo"
	"sluice/internal/language/resolve"
)

// MaxReason is how long a reason may be, in bytes; longer ones are cut.
const MaxReason = 200

// Named is one line of an input.
type Named struct {
	What    addrset.Range
	Country string // in place of What: its code
	Reason  string // "" where none was given
}

// ParseNamed reads an address, a prefix, a range or the code of a country, in any case.
func ParseNamed(word string) (n Named, err error) {
	letters := strings.Trim(strings.ToUpper(word), "ABCDEFGHIJKLMNOPQRSTUVWXYZ") == ""
	if len(word) == 2 && letters {
		n.Country, err = geo.KnownCountry(word)
		return n, err
	}
	n.What, err = addrset.ParseRange(word)
	return n, err
}

// Name is what it is called by.
func (n Named) Name() string {
	if n.Country != "" {
		return n.Country
	}
	return n.What.String()
}

// ReadInput reads one address, prefix, range or country a line; the rest of a line is
// the reason, what follows # is a remark. Bad lines come back as policy.Errors
// with line and column in name.
func ReadInput(name string, text io.Reader) ([]Named, error) {
	var out []Named
	err := resolve.EachLine(name, text, "#", func(body string, _, _ int) error {
		word, reason := body, ""
		if i := strings.IndexFunc(body, unicode.IsSpace); i >= 0 {
			word, reason = body[:i], Reason(body[i:])
		}
		n, err := ParseNamed(word)
		n.Reason = reason
		out = append(out, n)
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
