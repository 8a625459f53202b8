package policy

import (
	"bytes"
	"fmt"
	"strings"
	"unicode/utf8"

	"go.yaml.in/yaml/v4"
)

// maxPolicySize bounds one policy file; a million addresses belong in a set
// file, which is read as a stream.
const maxPolicySize = 32 << 20

// source is the text of one file.
type source struct {
	name  string
	text  string   // without byte order mark
	lines []string // without line ends
	// offsets holds, for lines that are not ASCII, the byte offset of every
	// character; made when first needed.
	offsets map[int][]int
	// runes holds the place of every character of scalars whose text is not
	// simply what stands in the file; made when first needed.
	runes map[*yaml.Node][]place
}

// place is a line and a column, both from 1.
type place struct{ line, column int }

func newSource(name string, data []byte) *source {
	text := string(bytes.TrimPrefix(data, []byte("\ufeff")))
	s := &source{name: name, text: text, offsets: map[int][]int{}, runes: map[*yaml.Node][]place{}}
	s.lines = strings.Split(text, "\n")
	for i, line := range s.lines {
		s.lines[i] = strings.TrimSuffix(line, "\r")
	}
	return s
}

func (s *source) pos(line, column int) Pos {
	return Pos{File: s.name, Line: line, Column: column}
}

func (s *source) at(n *yaml.Node) Pos { return s.pos(n.Line, n.Column) }

// checkText finds what no policy may contain: other encodings than UTF-8,
// control characters, tabs as indentation, and characters that show a reader
// other text than the parser sees. It returns nil when the text may be parsed.
func (s *source) checkText(data []byte) Errors {
	if len(data) > maxPolicySize {
		return Errors{{
			Pos:     Pos{File: s.name},
			Message: fmt.Sprintf("file is larger than %d MiB", maxPolicySize>>20),
			Hint:    "put long lists of addresses into a file of their own and name it in a set: {file: NAME}",
		}}
	}
	if bytes.HasPrefix(data, []byte("\xff\xfe")) || bytes.HasPrefix(data, []byte("\xfe\xff")) {
		return Errors{{Pos: s.pos(1, 1), Message: "file is UTF-16", Hint: "save it as UTF-8"}}
	}
	var errs Errors
	seen := map[string]bool{} // one error a kind
	add := func(kind string, line, column int, hint, message string) {
		if !seen[kind] {
			seen[kind] = true
			errs = append(errs, &Error{Pos: s.pos(line, column), Message: message, Hint: hint, Line: s.lines[line-1]})
		}
	}
	for i, line := range s.lines {
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
			case isDeceptive(r):
				add("deceptive", i+1, column, "remove it", fmt.Sprintf("invisible character %U, which can make a policy look like another one", r))
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

// isDeceptive reports line breaks that only some programs see, the direction
// overrides, and characters without width.
func isDeceptive(r rune) bool {
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
func (s *source) offset(line, column int) int {
	text := s.lines[line-1]
	table, ok := s.offsets[line]
	if !ok {
		if !isPlainASCII(text) {
			table = make([]int, 0, len(text))
			for at := range text {
				table = append(table, at)
			}
		}
		s.offsets[line] = table
	}
	if table == nil {
		return min(column-1, len(text))
	}
	if column-1 < len(table) {
		return table[column-1]
	}
	return len(text)
}

// runeAt returns where the character i (from 0) of a scalar's value stands in
// the file; i may be the value's length.
func (s *source) runeAt(n *yaml.Node, i int) Pos {
	if n.Line < 1 || n.Line > len(s.lines) {
		return s.at(n)
	}
	if n.Kind != yaml.ScalarNode {
		return s.at(n)
	}
	if n.Style&(quotedStyles|blockStyles) == 0 {
		if at := s.offset(n.Line, n.Column); strings.HasPrefix(s.lines[n.Line-1][at:], n.Value) {
			return s.pos(n.Line, n.Column+i)
		}
	}
	places := s.places(n)
	if i < len(places) {
		return s.pos(places[i].line, places[i].column)
	}
	return s.at(n)
}

const (
	quotedStyles = yaml.SingleQuotedStyle | yaml.DoubleQuotedStyle
	blockStyles  = yaml.LiteralStyle | yaml.FoldedStyle
)

// end returns the line and column just behind a scalar.
func (s *source) end(n *yaml.Node) place {
	if n.Style&(quotedStyles|blockStyles) == 0 {
		if at := s.offset(n.Line, n.Column); strings.HasPrefix(s.lines[n.Line-1][at:], n.Value) {
			return place{n.Line, n.Column + utf8.RuneCountInString(n.Value)}
		}
	}
	p := s.places(n)
	return p[len(p)-1]
}

// places returns the place of every character of a scalar's value, and of its
// end. It walks the source beside the value.
func (s *source) places(n *yaml.Node) []place {
	if p, ok := s.runes[n]; ok {
		return p
	}
	w := walker{source: s, line: n.Line, column: n.Column}
	w.rest = s.lines[n.Line-1][s.offset(n.Line, n.Column):]
	p := w.walk(n)
	s.runes[n] = p
	return p
}
