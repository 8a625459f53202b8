// Package selector says which hosts or guests of a fleet are meant, by their labels:
//
//	role=web and env=prod
//	not (role=db or host=web-1)
//
// `name` holds where there is such a label, `name=value` where it has that value, and
// `name!=value` where it has not, or where there is none. `and` binds closer than `or`. Callers: language/policy for the
// parts and sets of a fleet, and who keeps or signs fleets.
package selector

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"sync"
)

// What a selector may be at most: its text in bytes, and how deep it is nested.
const (
	mostText  = 4096
	mostDepth = 32
)

// Selector is a selector that was read.
type Selector struct{ of expression }

// Error is what is wrong with a text.
type Error struct {
	Offset  int    // in bytes
	Message string // lower case, no full stop
}

func (e *Error) Error() string { return e.Message }

// expression is a term, where name is not ""; else one of, or all of, or not, its parts.
type expression struct {
	name, value string
	operator    string // of a term: "=", "!=" or ""; else "and", "or" or "not"
	parts       []expression
}

// Match says whether what has these labels is meant.
func (s *Selector) Match(labels map[string]string) bool { return s.of.match(labels) }

func (e *expression) match(labels map[string]string) bool {
	match := func(part expression) bool { return part.match(labels) }
	value, is := labels[e.name]
	switch e.operator {
	case "and":
		return !slices.ContainsFunc(e.parts, func(part expression) bool { return !match(part) })
	case "or":
		return slices.ContainsFunc(e.parts, match)
	case "not":
		return !match(e.parts[0])
	case "=":
		return is && value == e.value
	case "!=":
		return !is || value != e.value
	}
	return is
}

// And selects what all of these do; a nil one selects all, and so does the answer nil.
func And(all ...*Selector) *Selector {
	return joined("and", slices.DeleteFunc(slices.Clone(all), func(s *Selector) bool { return s == nil }))
}

// Or selects what one of these does; a nil one selects all, and so does the answer nil.
func Or(all ...*Selector) *Selector {
	if slices.Contains(all, nil) {
		return nil
	}
	return joined("or", all)
}

// mostSteps bounds what Implies looks at: labels that something may have, times terms.
const mostSteps = 1 << 15

// Implies says that other selects all that s does, whatever labels it has; a nil one selects all.
// Of two that ask for so many labels that it would take long to find out it is false.
func (s *Selector) Implies(other *Selector) bool {
	if s == nil || other == nil {
		return other == nil
	}
	values := map[string][]string{}
	steps := s.of.values(values) + other.of.values(values)
	for name, vs := range values {
		vs = append(vs, "") // which stands for any that nobody asks for
		slices.Sort(vs)
		values[name] = slices.Compact(vs)
		if steps *= len(values[name]) + 1; steps > mostSteps {
			return false
		}
	}
	names := slices.Sorted(maps.Keys(values))
	labels := map[string]string{}
	var every func(i int) bool
	every = func(i int) bool {
		if i == len(names) {
			return !s.Match(labels) || other.Match(labels)
		}
		delete(labels, names[i])
		if !every(i + 1) {
			return false
		}
		for _, v := range values[names[i]] {
			labels[names[i]] = v
			if !every(i + 1) {
				return false
			}
		}
		return true
	}
	return every(0)
}

// values are those that are asked for, by the names of their labels, and how many terms ask.
func (e *expression) values(into map[string][]string) (terms int) {
	if e.name != "" {
		into[e.name] = append(into[e.name], e.value)
		terms = 1
	}
	for i := range e.parts {
		terms += e.parts[i].values(into)
	}
	return terms
}

func joined(operator string, all []*Selector) *Selector {
	out := expression{operator: operator}
	for _, s := range all {
		if s.of.operator == operator {
			out.parts = append(out.parts, s.of.parts...)
		} else {
			out.parts = append(out.parts, s.of)
		}
	}
	switch len(out.parts) {
	case 0:
		return nil
	case 1:
		return &Selector{out.parts[0]}
	}
	return &Selector{out}
}

// Labels are the names that are asked for, sorted.
func (s *Selector) Labels() []string {
	names := map[string]bool{}
	s.of.names(names)
	return slices.Sorted(maps.Keys(names))
}

func (e *expression) names(into map[string]bool) {
	if e.name != "" {
		into[e.name] = true
	}
	for i := range e.parts {
		e.parts[i].names(into)
	}
}

// String is the selector with single blanks, and without parentheses that say nothing.
func (s *Selector) String() string { return s.of.text("") }

// text is e as it is below an operator.
func (e *expression) text(below string) string {
	switch e.operator {
	case "not":
		return "not " + e.parts[0].text("not")
	case "and", "or":
	default:
		return e.name + e.operator + e.value
	}
	texts := make([]string, len(e.parts))
	for i := range e.parts {
		texts[i] = e.parts[i].text(e.operator)
	}
	text := strings.Join(texts, " "+e.operator+" ")
	if below == "not" || below == "and" {
		return "(" + text + ")"
	}
	return text
}

var words = []string{"and", "or", "not"}

// Compiled when they are asked: a long repetition takes longer than the rest of a start.
var (
	nameSyntax  = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[A-Za-z]([A-Za-z0-9._/-]{0,61}[A-Za-z0-9])?$`) })
	valueSyntax = sync.OnceValue(func() *regexp.Regexp {
		return regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9._/:-]{0,251}[A-Za-z0-9])?$`)
	})
)

// CheckLabel says what is wrong with a label that somebody gives; the name host is taken.
func CheckLabel(name, value string) error {
	if name == "host" {
		return fmt.Errorf("the label host is the name of a host, and cannot be given")
	}
	if err := checkName(name); err != nil {
		return err
	}
	return checkValue(value)
}

// LabelText is labels as they are shown, by their names.
func LabelText(labels map[string]string) string {
	var words []string
	for _, name := range slices.Sorted(maps.Keys(labels)) {
		words = append(words, name+"="+labels[name])
	}
	if len(words) == 0 {
		return "no labels"
	}
	return strings.Join(words, ", ")
}

func checkName(name string) error {
	switch {
	case slices.Contains(words, name):
		return fmt.Errorf("%s is a word of selectors, and no name of a label", name)
	case !nameSyntax().MatchString(name):
		return fmt.Errorf("%s is no name of a label: a letter, then letters, digits and ._/- , at most 63", quote(name))
	}
	return nil
}

func checkValue(value string) error {
	if !valueSyntax().MatchString(value) {
		return fmt.Errorf("%s is no value of a label: letters, digits and ._/:- between, at most 253", quote(value))
	}
	return nil
}

// quote shows the beginning of a text that may be anything.
func quote(s string) string {
	if len(s) > 60 {
		s = strings.ToValidUTF8(s[:60], "") + "…"
	}
	return fmt.Sprintf("%q", s)
}
