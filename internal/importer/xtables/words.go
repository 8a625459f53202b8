package xtables

import (
	"strings"

	"sluice/internal/importer"
)

// word is one word of a line.
type word struct {
	text     string
	from, to int  // bytes of the line, quotes included
	quoted   bool // so that it is a value, whatever it says
}

// split takes a line apart at blanks. Double quotes keep words together and a backslash
// takes the next byte as it is.
func split(line string, number int) ([]word, error) {
	words := make([]word, 0, 16)
	for at := 0; ; {
		for at < len(line) && (line[at] == ' ' || line[at] == '\t') {
			at++
		}
		if at == len(line) {
			return words, nil
		}
		w := word{from: at}
		var text strings.Builder
		open := -1
		for at < len(line) && (open >= 0 || line[at] != ' ' && line[at] != '\t') {
			switch c := line[at]; {
			case c == '\\':
				if at++; at == len(line) {
					return nil, &importer.SyntaxError{Line: number, Column: at, What: "a backslash with nothing after it"}
				}
				text.WriteByte(line[at])
				w.quoted = true
			case c == '"' && open < 0:
				open, w.quoted = at, true
			case c == '"':
				open = -1
			default:
				text.WriteByte(c)
			}
			at++
		}
		if open >= 0 {
			return nil, &importer.SyntaxError{Line: number, Column: open + 1, What: "a quote that does not end on its line"}
		}
		w.text, w.to = text.String(), at
		words = append(words, w)
	}
}

// option says whether a word can only begin an option.
func (w word) option() bool { return !w.quoted && len(w.text) > 1 && w.text[0] == '-' }

func (w word) not() bool { return !w.quoted && w.text == "!" }
