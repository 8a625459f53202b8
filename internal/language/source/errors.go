package source

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"sluice/internal/base/sorting"
)

// Error is one thing that is wrong with a file, and where.
type Error struct {
	Pos     Pos
	Message string // lower case, no full stop; one line
	Hint    string // what to write instead; may be empty or of several lines
	Line    string // the source line, without its line end; may be empty
	Remedy  Remedy // what fixes it, in place of Hint; may be empty
}

// Remedy names what fixes an error or a finding by means outside of it. How
// that is done, by which command or call, is known to whoever called.
type Remedy string

// Error returns position, message, the source line with a marker beneath, and
// the hint, each on a line of its own.
func (e *Error) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s: %s", e.Pos, e.Message)
	if line, marker := e.Excerpt(); line != "" {
		fmt.Fprintf(&b, "\n    %s\n    %s", line, marker)
	}
	if e.Hint != "" {
		b.WriteString("\nhint: " + strings.ReplaceAll(e.Hint, "\n", "\n      "))
	}
	return b.String()
}

// excerptWidth is how many characters of a source line a message shows.
const excerptWidth = 120

// Excerpt returns the source line as it can be shown, at most excerptWidth
// characters around the position and without characters that a terminal would
// obey, and the line with the ^ marker that belongs beneath it. Both are empty
// when there is no line to show.
func (e *Error) Excerpt() (line, marker string) {
	if strings.TrimSpace(e.Line) == "" {
		return "", ""
	}
	column := max(e.Pos.Column, 1)
	var shown, under strings.Builder
	from := 1
	if column > excerptWidth*2/3 {
		from = column - excerptWidth/3
	}
	if from > 1 {
		shown.WriteString("…")
		under.WriteString(" ")
	}
	n := 0
	for _, r := range e.Line {
		n++
		if n < from {
			continue
		}
		if n >= from+excerptWidth {
			shown.WriteString("…")
			break
		}
		switch {
		case r == '\t':
		case r == utf8.RuneError || !unicode.IsPrint(r):
			r = '·'
		}
		shown.WriteRune(r)
		if n < column {
			if r != '\t' {
				r = ' '
			}
			under.WriteRune(r)
		}
	}
	return strings.TrimRight(shown.String(), " \t"), under.String() + "^"
}

// Errors is everything that is wrong with files, ordered by place.
type Errors []*Error

// shownErrors is how many errors one message prints; who made thousands of
// mistakes of one kind is not helped by all of them.
const shownErrors = 100

// Error returns every error, one after the other.
func (e Errors) Error() string {
	var b strings.Builder
	for i, err := range e {
		if i == shownErrors {
			fmt.Fprintf(&b, "\nand %d more errors", len(e)-i)
			break
		}
		if i > 0 {
			b.WriteByte('\n')
		}
		b.WriteString(err.Error())
	}
	return b.String()
}

// Unwrap lets errors.As find a single *Error.
func (e Errors) Unwrap() []error {
	out := make([]error, len(e))
	for i, err := range e {
		out[i] = err
	}
	return out
}

// Sorted returns e by file (in the order of files), line and column, without
// doubles.
func (e Errors) Sorted(files []string) Errors {
	order := map[string]int{}
	for i, f := range files {
		order[f] = i + 1
	}
	sorting.StableBy(e, func(a, b *Error) int {
		return cmp.Or(
			cmp.Compare(order[a.Pos.File], order[b.Pos.File]),
			cmp.Compare(a.Pos.Line, b.Pos.Line),
			cmp.Compare(a.Pos.Column, b.Pos.Column),
		)
	})
	return slices.CompactFunc(e, func(a, b *Error) bool { return *a == *b })
}

// Pos is where something was written. Line and Column count from 1, Column in
// characters.
type Pos struct {
	File   string // as it was given or included, relative names resolved against its folder
	Line   int
	Column int
}

// String returns file:line:column, as editors and compilers know it.
func (p Pos) String() string {
	switch {
	case p.Line == 0:
		return p.File
	case p.Column == 0:
		return fmt.Sprintf("%s:%d", p.File, p.Line)
	}
	return fmt.Sprintf("%s:%d:%d", p.File, p.Line, p.Column)
}

// Fail notes what is wrong at a place of the file. The hint may be empty.
func (f *File) Fail(pos Pos, hint, format string, args ...any) {
	*f.errs = append(*f.errs, NewError(f.Lines, pos, hint, format, args...))
}

// NewError makes an error, with the source line in it.
func NewError(lines []string, pos Pos, hint, format string, args ...any) *Error {
	e := &Error{Pos: pos, Message: fmt.Sprintf(format, args...), Hint: hint}
	if pos.Line > 0 && pos.Line <= len(lines) {
		e.Line = lines[pos.Line-1]
	}
	return e
}

// Quote shows a text of a file in a message, shortened and with everything
// escaped that a terminal would obey.
func Quote(s string) string {
	const most = 60
	if utf8.RuneCountInString(s) > most {
		r := []rune(s[:min(len(s), most*utf8.UTFMax)])
		s = string(r[:most]) + "…"
	}
	return fmt.Sprintf("%q", s)
}
