package selector

import (
	"fmt"
	"strings"
)

// Parse reads a selector. Errors are of type *Error.
func Parse(text string) (*Selector, error) {
	if len(text) > mostText {
		return nil, &Error{0, fmt.Sprintf("a selector has at most %d bytes", mostText)}
	}
	p := &parser{text: text}
	p.take()
	of, err := p.either(0)
	if err == nil && p.token != "" {
		err = p.unexpected("and, or the end")
	}
	if err != nil {
		return nil, err
	}
	return &Selector{of}, nil
}

type parser struct {
	text  string
	at    int    // behind token
	begin int    // of token
	token string // "" at the end
}

func isBlank(c byte) bool { return c == ' ' || c == '\t' || c == '\n' }

// take reads the next token: a word, =, != or a parenthesis.
func (p *parser) take() {
	for p.at < len(p.text) && isBlank(p.text[p.at]) {
		p.at++
	}
	p.begin = p.at
	rest := p.text[p.at:]
	length := 0
	switch {
	case rest == "":
	case strings.HasPrefix(rest, "!="):
		length = 2
	case strings.ContainsRune("=()!", rune(rest[0])):
		length = 1
	default:
		for length < len(rest) && !isBlank(rest[length]) && !strings.ContainsRune("=()!", rune(rest[length])) {
			length++
		}
	}
	p.token = rest[:length]
	p.at += length
}

func (p *parser) unexpected(wanted string) error {
	found := "the end"
	if p.token != "" {
		found = quote(p.token)
	}
	return &Error{p.begin, "expected " + wanted + ", found " + found}
}

func (p *parser) either(depth int) (expression, error) { return p.joined("or", depth, p.all) }

func (p *parser) all(depth int) (expression, error) { return p.joined("and", depth, p.one) }

// joined reads what one operator joins.
func (p *parser) joined(operator string, depth int, part func(depth int) (expression, error)) (expression, error) {
	first, err := part(depth)
	out := expression{operator: operator, parts: []expression{first}}
	for err == nil && p.token == operator {
		p.take()
		var next expression
		next, err = part(depth)
		out.parts = append(out.parts, next)
	}
	if len(out.parts) == 1 {
		return first, err
	}
	var flat []expression // (a and b) and c is a and b and c
	for _, e := range out.parts {
		if e.operator == operator {
			flat = append(flat, e.parts...)
		} else {
			flat = append(flat, e)
		}
	}
	out.parts = flat
	return out, err
}

func (p *parser) one(depth int) (expression, error) {
	if depth > mostDepth {
		return expression{}, &Error{p.begin, fmt.Sprintf("nested deeper than %d", mostDepth)}
	}
	switch p.token {
	case "not":
		p.take()
		of, err := p.one(depth + 1)
		return expression{operator: "not", parts: []expression{of}}, err
	case "(":
		p.take()
		of, err := p.either(depth + 1)
		if err == nil && p.token != ")" {
			err = p.unexpected(")")
		}
		p.take()
		return of, err
	case "", "=", "!=", "!", ")", "and", "or":
		return expression{}, p.unexpected("a label, such as role=web")
	}
	e := expression{name: p.token}
	if err := checkName(e.name); err != nil {
		return e, &Error{p.begin, err.Error()}
	}
	if p.take(); p.token != "=" && p.token != "!=" {
		return e, nil
	}
	e.operator = p.token
	if p.take(); p.token == "" {
		return e, p.unexpected("a value")
	}
	e.value = p.token
	if err := checkValue(e.value); err != nil {
		return e, &Error{p.begin, err.Error()}
	}
	p.take()
	return e, nil
}
