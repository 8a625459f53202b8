package bans

import (
	"fmt"
	"io"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"sluice/internal/base/addrset"
	"sluice/internal/language/geo"
	"sluice/internal/language/policy"
	"sluice/internal/language/resolve"
)

// MaxReason is how long a reason may be, in bytes; longer ones are cut.
const MaxReason = 200

// Named is one line of an input.
type Named struct {
	What    addrset.Range
	Country string        // in place of What: its code
	For     time.Duration // how long it is to be banned; 0: as the command says
	Reason  string        // "" where none was given
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

// Longest is how long a ban holds that ends by itself.
const Longest = 3650 * 24 * time.Hour

// ReadInput reads one address, prefix, range or country a line; "for" and a time may
// follow, the rest of a line is the reason, what follows # is a remark. Bad lines come
// back as policy.Errors with line and column in name.
func ReadInput(name string, text io.Reader) ([]Named, error) {
	var out []Named
	err := resolve.EachLine(name, text, "#", func(body string, _, _ int) error {
		word, rest := firstWord(body)
		n, err := ParseNamed(word)
		if err != nil {
			return err
		}
		if n.For, rest, err = timeOf(rest); err != nil {
			return err
		}
		n.Reason = Reason(rest)
		out = append(out, n)
		return nil
	})
	if err != nil {
		return nil, err
	}
	return out, nil
}

// timeOf reads "for 1h" at the begin of what is behind an address. A reason may begin
// with the word too, but then no digit follows it: a time with a typo is no reason.
func timeOf(text string) (d time.Duration, rest string, err error) {
	word, behind := firstWord(text)
	value, rest := firstWord(behind)
	if word != "for" || value == "" || value[0] < '0' || value[0] > '9' {
		return 0, text, nil
	}
	d, hint, ok := policy.ParseDuration(value)
	if !ok {
		return 0, "", fmt.Errorf("%.40q is not a time: %s; a reason cannot begin with \"for\" and a number", value, hint)
	}
	return d, rest, nil
}

func firstWord(text string) (word, rest string) {
	if i := strings.IndexFunc(text, unicode.IsSpace); i >= 0 {
		return text[:i], strings.TrimLeftFunc(text[i:], unicode.IsSpace)
	}
	return text, ""
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
