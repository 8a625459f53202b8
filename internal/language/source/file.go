package source

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"
	"unicode/utf8"

	"go.yaml.in/yaml/v4"

	"sluice/internal/base/regular"
)

// Dialect is what the files of one language differ in from those of another.
type Dialect struct {
	MaxSize int                            // in bytes
	TooLong string                         // what to do with a file that is larger
	Anchors string                         // why there are none, and what to write instead
	Second  string                         // what to do with a second document
	Fix     func(line string) string       // what fixes a line that is not YAML, or ""; may be nil
	Instead func(shape, key string) string // what to write instead of a key that a shape does not have, or ""; may be nil
	// Language is whose old words are taken for those of now; nil: there are none.
	Language *Language
}

// File is one file while it is read.
type File struct {
	Name  string
	Lines []string // without line ends
	// OldWords gets a warning for each word that is called otherwise now; nil: nobody is warned.
	OldWords *Errors
	Renews   bool   // words that are errors by now are taken too, for whoever writes the new ones
	text     string // without byte order mark
	dialect  *Dialect
	errs     *Errors
	// offsets holds, for lines that are not ASCII, the byte offset of every
	// character; made when first needed.
	offsets map[int][]int
	// runes holds the place of every character of scalars whose text is not
	// simply what is in the file; made when first needed.
	runes map[*yaml.Node][]place
}

// place is a line and a column, both from 1.
type place struct{ line, column int }

// New is a file of that text, which adds what is wrong with it to errs.
func New(name string, data []byte, dialect *Dialect, errs *Errors) *File {
	text := string(bytes.TrimPrefix(data, []byte("\ufeff")))
	s := &File{Name: name, text: text, dialect: dialect, errs: errs, offsets: map[int][]int{}, runes: map[*yaml.Node][]place{}}
	s.Lines = strings.Split(text, "\n")
	for i, line := range s.Lines {
		s.Lines[i] = strings.TrimSuffix(line, "\r")
	}
	return s
}

// Pos is a place of the file.
func (f *File) Pos(line, column int) Pos {
	return Pos{File: f.Name, Line: line, Column: column}
}

// At is where a node begins.
func (f *File) At(n *yaml.Node) Pos { return f.Pos(n.Line, n.Column) }

// CheckText finds what no file may contain: other encodings than UTF-8,
// control characters, tabs as indentation, and characters that show a reader
// other text than the parser sees. It returns nil when the text may be parsed.
func (f *File) CheckText(data []byte) Errors {
	if len(data) > f.dialect.MaxSize {
		return Errors{{
			Pos:     Pos{File: f.Name},
			Message: fmt.Sprintf("file is larger than %d MiB", f.dialect.MaxSize>>20),
			Hint:    f.dialect.TooLong,
		}}
	}
	if bytes.HasPrefix(data, []byte("\xff\xfe")) || bytes.HasPrefix(data, []byte("\xfe\xff")) {
		return Errors{{Pos: f.Pos(1, 1), Message: "file is UTF-16", Hint: "save it as UTF-8"}}
	}
	var errs Errors
	seen := map[string]bool{} // one error a kind
	add := func(kind string, line, column int, hint, message string) {
		if !seen[kind] {
			seen[kind] = true
			errs = append(errs, &Error{Pos: f.Pos(line, column), Message: message, Hint: hint, Line: f.Lines[line-1]})
		}
	}
	for i, line := range f.Lines {
		body := strings.TrimLeft(line, " \t")
		if indent := line[:len(line)-len(body)]; body != "" {
			if at := strings.IndexByte(indent, '\t'); at >= 0 {
				add("tab", i+1, at+1, "use spaces", "tab in the indentation, which YAML does not allow")
			}
		}
		if isPlainASCII(line) {
			continue
		}
		column := 0
		for at, r := range line {
			column++
			switch {
			case r == utf8.RuneError && isBroken(line[at:]):
				add("utf8", i+1, column, "save the file as UTF-8", "invalid UTF-8")
			case r == 0:
				add("nul", i+1, column, "", "NUL byte in the text")
			case r == '\r':
				add("cr", i+1, column, "end lines with a line feed", "carriage return in the middle of a line")
			case r < ' ' && r != '\t', r >= 0x7f && r < 0xa0:
				add("control", i+1, column, "", fmt.Sprintf("control character %U in the text", r))
			case IsDeceptive(r):
				add("deceptive", i+1, column, "remove it", fmt.Sprintf("invisible character %U, which can disguise the text", r))
			case r == 0xfffe, r == 0xffff:
				add("noncharacter", i+1, column, "", fmt.Sprintf("%U is not a character", r))
			}
		}
	}
	return errs
}

func isPlainASCII(s string) bool {
	for i := range len(s) {
		if (s[i] < ' ' && s[i] != '\t') || s[i] >= 0x7f {
			return false
		}
	}
	return true
}

// isBroken tells an encoded U+FFFD from a broken sequence, which ranging over a
// string shows as the same character.
func isBroken(s string) bool {
	_, size := utf8.DecodeRuneInString(s)
	return size == 1
}

// IsDeceptive reports line breaks that only some programs see, the direction
// overrides, and characters without width.
func IsDeceptive(r rune) bool {
	switch {
	case r == 0x2028, r == 0x2029, r == 0xfeff, r == 0x00ad:
		return true
	case r >= 0x200b && r <= 0x200f, r >= 0x202a && r <= 0x202e, r >= 0x2060 && r <= 0x2069:
		return true
	}
	return false
}

// offset returns the byte offset of a column in a line; the line's length when
// it is shorter.
func (f *File) offset(line, column int) int {
	text := f.Lines[line-1]
	table, ok := f.offsets[line]
	if !ok {
		if !isPlainASCII(text) {
			table = make([]int, 0, len(text))
			for at := range text {
				table = append(table, at)
			}
		}
		f.offsets[line] = table
	}
	if table == nil {
		return min(column-1, len(text))
	}
	if column-1 < len(table) {
		return table[column-1]
	}
	return len(text)
}

// RuneAt returns where the character i (from 0) of a scalar's value is in
// the file; i may be the value's length.
func (f *File) RuneAt(n *yaml.Node, i int) Pos {
	if n.Line < 1 || n.Line > len(f.Lines) {
		return f.At(n)
	}
	if n.Kind != yaml.ScalarNode {
		return f.At(n)
	}
	if n.Style&(QuotedStyles|BlockStyles) == 0 {
		if at := f.offset(n.Line, n.Column); strings.HasPrefix(f.Lines[n.Line-1][at:], n.Value) {
			return f.Pos(n.Line, n.Column+i)
		}
	}
	places := f.places(n)
	if i < len(places) {
		return f.Pos(places[i].line, places[i].column)
	}
	return f.At(n)
}

// Styles of scalars.
const (
	QuotedStyles = yaml.SingleQuotedStyle | yaml.DoubleQuotedStyle
	BlockStyles  = yaml.LiteralStyle | yaml.FoldedStyle
)

// After is the place just behind a scalar.
func (f *File) After(n *yaml.Node) Pos {
	p := f.end(n)
	return f.Pos(p.line, p.column)
}

func (f *File) end(n *yaml.Node) place {
	if n.Style&(QuotedStyles|BlockStyles) == 0 {
		if at := f.offset(n.Line, n.Column); strings.HasPrefix(f.Lines[n.Line-1][at:], n.Value) {
			return place{n.Line, n.Column + utf8.RuneCountInString(n.Value)}
		}
	}
	p := f.places(n)
	return p[len(p)-1]
}

// places returns the place of every character of a scalar's value, and of its
// end. It walks the source beside the value.
func (f *File) places(n *yaml.Node) []place {
	if p, ok := f.runes[n]; ok {
		return p
	}
	w := walker{source: f, line: n.Line, column: n.Column}
	w.rest = f.Lines[n.Line-1][f.offset(n.Line, n.Column):]
	p := w.walk(n)
	f.runes[n] = p
	return p
}

// Read reads a whole file, or as much of it as shows that it is larger than size.
func Read(path string, size int) ([]byte, error) { return ReadFrom(regular.Open, path, size) }

// ReadFrom is Read of a file that open opens.
func ReadFrom(open func(string) (*os.File, error), path string, size int) ([]byte, error) {
	f, err := open(path)
	if err != nil {
		return nil, ReadError(path, err)
	}
	defer func() { _ = f.Close() }()
	data, err := io.ReadAll(io.LimitReader(f, int64(size)+1))
	if err != nil {
		return nil, ReadError(path, err)
	}
	return data, nil
}

// ReadError names the file once; package os names it inside a sentence of its
// own.
func ReadError(path string, err error) error {
	var pathErr *fs.PathError
	if errors.As(err, &pathErr) {
		err = pathErr.Err
	}
	if errors.Is(err, regular.Err) {
		err = fmt.Errorf("%w\n  hint: name a file, or - for standard input where the command accepts it", err)
	}
	return fmt.Errorf("%s: %w", path, err)
}
