package policy

import (
	"strings"
	"unicode/utf8"

	"go.yaml.in/yaml/v4"

	"sluice/internal/language/source"
)

// tokenKind is what a token of a line of words is.
type tokenKind int

const (
	wordToken tokenKind = iota
	textToken           // in quotes
	openToken           // [
	closeToken
	commaToken
	endToken
)

// token is one piece of a line, with its place in the file. Mappings are turned
// into the same tokens, so both forms of a rule have one grammar.
type token struct {
	kind tokenKind
	text string
	pos  Pos
}

// tokens splits a scalar into tokens.
func (f *file) tokens(n *yaml.Node) ([]token, bool) {
	var out []token
	s := n.Value
	place := func(at int) Pos { return f.RuneAt(n, utf8.RuneCountInString(s[:at])) }
	for i := 0; i < len(s); {
		switch c := s[i]; c {
		case ' ', '\t', '\n':
			i++
		case '[':
			if end := bracketed(s[i:]); end > 0 {
				out = append(out, token{wordToken, s[i : i+end], place(i)})
				i += end
				continue
			}
			out = append(out, token{openToken, "[", place(i)})
			i++
		case ']':
			out = append(out, token{closeToken, "]", place(i)})
			i++
		case ',':
			out = append(out, token{commaToken, ",", place(i)})
			i++
		case '"', '\'':
			end := strings.IndexByte(s[i+1:], c)
			if end < 0 {
				hint := ""
				if line := f.Lines[min(n.Line, len(f.Lines))-1]; n.Style&source.QuotedStyles == 0 && strings.Contains(line, " #") {
					hint = "a space and # begin a comment in YAML; put the whole line into quotes: '" + strings.ReplaceAll(s, "'", "''") + " …'"
				}
				f.fail(place(i), hint, "unterminated quote")
				return nil, false
			}
			out = append(out, token{textToken, s[i+1 : i+1+end], place(i)})
			i += end + 2
		default:
			end := strings.IndexAny(s[i:], " \t\n,[]\"'")
			if end < 0 {
				end = len(s) - i
			}
			at := place(i)
			out = append(out, token{wordToken, f.Word(s[i:i+end], at), at})
			i += end
		}
	}
	return append(out, token{endToken, "", place(len(strings.TrimRight(s, " \t\n")))}), true
}

// bracketed returns the length of an IPv6 address in brackets with what is
// joined to it, as in "[2001:db8::1]:80"; 0 when s begins a list.
func bracketed(s string) int {
	end := strings.IndexByte(s, ']')
	if end < 0 || !strings.Contains(s[:end], ":") || strings.ContainsAny(s[:end], " \t\n,") {
		return 0
	}
	if end+1 >= len(s) || s[end+1] != ':' {
		return 0
	}
	if more := strings.IndexAny(s[end:], " \t\n,"); more >= 0 {
		return end + more
	}
	return len(s)
}

// words walks over tokens.
type words struct {
	*file
	toks []token
	next int
}

func (w *words) peek() token { return w.toks[w.next] }

func (w *words) take() token {
	t := w.toks[w.next]
	if t.kind != endToken {
		w.next++
	}
	return t
}

func (w *words) done() bool { return w.peek().kind == endToken }

// is reports whether the next token is one of these words.
func (w *words) is(text ...string) bool {
	t := w.peek()
	if t.kind != wordToken {
		return false
	}
	for _, s := range text {
		if t.text == s {
			return true
		}
	}
	return false
}

// accept takes the next token if it is this word.
func (w *words) accept(text string) bool {
	if w.is(text) {
		w.next++
		return true
	}
	return false
}

// describe says what a token is, for messages.
func (t token) describe() string {
	switch t.kind {
	case endToken:
		return "the end of the line"
	case textToken:
		return "the text " + source.Quote(t.text)
	case wordToken, openToken, closeToken, commaToken:
	}
	return source.Quote(t.text)
}

func (w *words) failAt(t token, hint, format string, args ...any) bool {
	w.fail(t.pos, hint, format, args...)
	return false
}

// problemAt reports a problem, if there is one, and whether there was none.
func (w *words) problemAt(t token, p *problem) bool {
	if p == nil {
		return true
	}
	return w.failAt(t, p.hint, "%s", p.message)
}

// word takes a word; what says what it should be.
func (w *words) word(what, hint string) (token, bool) {
	t := w.peek()
	if t.kind != wordToken {
		return t, w.failAt(t, hint, "expected %s, found %s", what, t.describe())
	}
	return w.take(), true
}

// list reads `[ITEM, ITEM]` or one ITEM, calling item for each.
func (w *words) list(what string, item func() bool) bool {
	open := w.peek()
	if open.kind != openToken {
		return item()
	}
	w.take()
	if w.peek().kind == closeToken {
		return w.failAt(open, "", "list of %s is empty", what)
	}
	for {
		if !item() {
			return false
		}
		switch t := w.peek(); t.kind {
		case commaToken:
			w.take()
			if w.peek().kind == closeToken { // as YAML allows
				w.take()
				return true
			}
		case closeToken:
			w.take()
			return true
		case endToken:
			return w.failAt(open, "", "the list does not end: a ] is missing")
		default:
			return w.failAt(t, "put a comma between the elements of a list", "expected , or ] in the list, found %s", t.describe())
		}
	}
}
