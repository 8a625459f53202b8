package query

import (
	"fmt"
	"slices"
	"strings"

	"sluice/internal/base/english"
	"sluice/internal/base/packet"
	"sluice/internal/base/sorting"
	"sluice/internal/prove/reach"
)

// BriefLine is what a difference means for a service in one direction.
type BriefLine struct {
	Kind    Kind   `json:"kind"`
	Hook    string `json:"hook"`
	Service string `json:"service,omitempty"` // "": of several, in states of flows other than new
	// For is whom it concerns: sources of input, both sides of forward, destinations of
	// output. None is everybody.
	For     []string `json:"for,omitempty"`
	Classes int      `json:"classes"`        // of the difference, that the line stands for
	More    int      `json:"more,omitempty"` // of them, that are of other services
	Text    string   `json:"text"`           // String, for whoever reads JSON
}

// Everybody says that nobody is left out of it.
func (l *BriefLine) Everybody() bool { return l.Service != "" && len(l.For) == 0 }

// mostFor is of how many a line says whom it concerns.
const mostFor = 3

// String is the line in words: "opens tcp/22 to office".
func (l *BriefLine) String() string {
	if l.Service == "" {
		return fmt.Sprintf("%s on %s: %s of packets that begin no flow", l.Kind.Words(), l.Hook, english.Plural(l.Classes, "class"))
	}
	verb := l.Kind.Words() + ":"
	switch l.Kind {
	case Opened, Reached:
		verb = "opens"
	case Closed:
		verb = "closes"
	}
	who := "to everybody"
	switch {
	case len(l.For) > 0:
		who = english.Few(l.For, mostFor)
	case l.Hook == string(reach.Through):
		who = "from anywhere to anywhere"
	case l.Hook == string(reach.Out):
		who = "to anywhere"
	}
	if l.Hook != string(reach.In) {
		who += " (" + l.Hook + ")"
	}
	text := verb + " " + l.Service + " " + who
	if l.More > 0 {
		text += ", and " + english.Plural(l.More, "more class")
	}
	return text
}

// Brief has a line for each kind of change, service and direction: first what is closed for
// everybody, then as Rows are sorted. Packets of other states than new are in the line of
// their service, and where that has none, in one of all of them: they begin no flow. So each
// class of the difference is in one line.
func (d *Diff) Brief() []BriefLine {
	lines := []BriefLine{}
	at := map[briefKey]int{}
	everybody := map[briefKey]bool{}
	add := func(key briefKey, whom string, more int) {
		n, known := at[key]
		if !known {
			n = len(lines)
			at[key] = n
			lines = append(lines, BriefLine{Kind: key.kind, Hook: key.hook, Service: key.service})
		}
		lines[n].Classes += 1 + more
		lines[n].More += more
		everybody[key] = everybody[key] || whom == ""
		if whom != "" && !slices.Contains(lines[n].For, whom) {
			lines[n].For = append(lines[n].For, whom)
		}
		if everybody[key] {
			lines[n].For = nil
		}
	}
	var later []*Row
	rows := d.Rows()
	for i := range rows {
		c := &rows[i]
		if state := packet.State(c.Example.State); state != packet.New && state != packet.Untracked {
			later = append(later, c)
			continue
		}
		add(keyOf(c), c.whom(), c.More)
	}
	for _, c := range later {
		key := keyOf(c)
		if _, known := at[key]; !known {
			key.service = ""
			add(key, "", c.More)
			continue
		}
		lines[at[key]].Classes += 1 + c.More
	}
	sorting.StableBy(lines, func(a, b BriefLine) int { return closing(&a) - closing(&b) })
	for i := range lines {
		lines[i].Text = lines[i].String()
	}
	return lines
}

// briefKey is what a line is of.
type briefKey struct {
	kind          Kind
	hook, service string
}

func keyOf(r *Row) briefKey { return briefKey{r.Kind, r.Hook, r.What()} }

func closing(l *BriefLine) int {
	if l.Kind == Closed && l.Everybody() {
		return 0
	}
	return 1
}

// whom is whom a change concerns; "" is everybody.
func (t *Traffic) whom() string {
	var parts []string
	side := func(word string, a *Addresses, device string) {
		switch {
		case a != nil:
			parts = append(parts, strings.Replace(word+" "+a.Name, " not ", " all but ", 1))
		case device == "" && t.Hook == string(reach.Through) && (t.From != nil || t.To != nil):
			parts = append(parts, word+" anywhere")
		}
		if device != "" {
			parts = append(parts, strings.Replace("by "+device, "by not ", "by all but ", 1))
		}
	}
	if t.Hook == string(reach.In) {
		side("to", t.From, t.In)
		side("at", t.To, "")
	} else {
		side("from", t.From, t.In)
		side("to", t.To, t.Out)
	}
	return strings.Join(parts, " ")
}
