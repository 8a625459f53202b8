package source

import (
	"strings"
	"unicode/utf8"

	"go.yaml.in/yaml/v4"
)

// walker goes through the source text of one scalar. YAML folds lines and
// resolves escapes; walker finds back which source character each character of
// the value came from.
type walker struct {
	source *File
	line   int
	column int
	rest   string // of the line, from column on
}

func (w *walker) here() place { return place{w.line, w.column} }

func (w *walker) skip(bytes int) {
	w.column += utf8.RuneCountInString(w.rest[:bytes])
	w.rest = w.rest[bytes:]
}

// nextLine moves to the first character of the next line that is not blank;
// false at the end of the file.
func (w *walker) nextLine() bool {
	if w.line >= len(w.source.Lines) {
		return false
	}
	w.line++
	w.column = 1
	w.rest = w.source.Lines[w.line-1]
	w.skip(len(w.rest) - len(strings.TrimLeft(w.rest, " \t")))
	return true
}

func (w *walker) walk(n *yaml.Node) []place {
	out := make([]place, 0, len(n.Value)+1)
	switch {
	case n.Style&QuotedStyles != 0:
		w.skip(min(1, len(w.rest)))
	case n.Style&BlockStyles != 0:
		w.nextLine()
	}
	for _, r := range n.Value {
		if r == '\n' || r == ' ' {
			out = append(out, w.blank(n, r))
			continue
		}
		for w.rest == "" || (n.Style&yaml.DoubleQuotedStyle != 0 && w.rest == `\`) {
			if !w.nextLine() {
				break
			}
		}
		out = append(out, w.here())
		w.skip(w.width(n))
	}
	if n.Style&QuotedStyles != 0 {
		for strings.TrimLeft(w.rest, " \t") == "" && w.nextLine() {
		}
		w.skip(min(1, len(w.rest)))
	}
	return append(out, w.here())
}

// blank finds the place of a blank or line feed of the value, which a line end
// of the source may stand for.
func (w *walker) blank(n *yaml.Node, r rune) place {
	for {
		trimmed := strings.TrimLeft(w.rest, " \t")
		at := w.here()
		switch {
		case r == ' ' && w.rest != "" && w.rest[0] == ' ' && trimmed != "":
			w.skip(1)
			return at
		case n.Style&yaml.DoubleQuotedStyle != 0 && trimmed != "" && trimmed[0] == '\\' && trimmed != `\`:
			w.skip(len(w.rest) - len(trimmed))
			at = w.here()
			w.skip(w.width(n))
			return at
		case trimmed == "" || trimmed == `\`:
			if w.nextLine() && trimmed == `\` {
				continue
			}
			return at
		case r == ' ':
			w.skip(len(w.rest) - len(trimmed))
			return at
		}
		return at
	}
}

// width is the number of source bytes of the character that stands here.
func (w *walker) width(n *yaml.Node) int {
	if w.rest == "" {
		return 0
	}
	switch {
	case n.Style&yaml.SingleQuotedStyle != 0 && strings.HasPrefix(w.rest, "''"):
		return 2
	case n.Style&yaml.DoubleQuotedStyle != 0 && w.rest[0] == '\\' && len(w.rest) > 1:
		switch w.rest[1] {
		case 'x':
			return min(4, len(w.rest))
		case 'u':
			return min(6, len(w.rest))
		case 'U':
			return min(10, len(w.rest))
		}
		_, size := utf8.DecodeRuneInString(w.rest[1:])
		return 1 + size
	}
	_, size := utf8.DecodeRuneInString(w.rest)
	return size
}
