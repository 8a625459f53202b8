package bans

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"strings"
	"unicode"
	"unicode/utf8"

	"sluice/internal/base/addrset"
	"sluice/internal/language/policy"
)

const (
	// maxLine of an input is in bytes.
	maxLine = 64 << 10
	// maxErrors is how many bad lines are named.
	maxErrors = 20
	// MaxReason is how long a reason may be, in bytes; longer ones are cut.
	MaxReason = 200
)

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
	var errs policy.Errors
	fail := func(line, column int, message, source string) {
		errs = append(errs, &policy.Error{Pos: policy.Pos{File: name, Line: line, Column: column}, Message: message, Line: source})
	}
	scanner := bufio.NewScanner(text)
	scanner.Buffer(make([]byte, 64<<10), maxLine)
	n := 0
	for scanner.Scan() && len(errs) < maxErrors {
		n++
		line := scanner.Text()
		if n == 1 {
			line = strings.TrimPrefix(line, "\ufeff")
		}
		body, _, _ := strings.Cut(line, "#")
		body = strings.TrimSpace(body)
		if body == "" {
			continue
		}
		word, reason := body, ""
		if i := strings.IndexFunc(body, unicode.IsSpace); i >= 0 {
			word, reason = body[:i], Reason(body[i:])
		}
		r, err := addrset.ParseRange(word)
		if err != nil {
			fail(n, utf8.RuneCountInString(line[:strings.Index(line, word)])+1, err.Error(), line)
			continue
		}
		out = append(out, Named{r, reason})
	}
	switch err := scanner.Err(); {
	case len(errs) == maxErrors:
		fail(n, 1, fmt.Sprintf("gave up after %d bad lines", maxErrors), "")
	case errors.Is(err, bufio.ErrTooLong):
		fail(n+1, 1, fmt.Sprintf("line longer than %d bytes: not a list of addresses", maxLine), "")
	case err != nil:
		fail(n+1, 1, "cannot read on: "+err.Error(), "")
	}
	if len(errs) > 0 {
		return nil, errs
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
