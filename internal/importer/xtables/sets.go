package xtables

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"sluice/internal/importer"
	"sluice/internal/importer/ipset"
	"sluice/internal/program"
)

// inSet lifts "--match-set NAME src,dst": a direction for each part of the set's key.
func (r *reader) inSet(e *extension) error {
	var name string
	var directions []string
	not := false
	for _, o := range e.options {
		switch {
		case o.name == "--match-set" && len(o.values) == 2 && name == "":
			name, directions, not = o.values[0].text, strings.Split(o.values[1].text, ","), o.not
		case o.name == "--update-counters" && o.not, o.name == "--update-subcounters" && o.not:
		default:
			return errUnknown // --return-nomatch, and what asks for counters
		}
	}
	s := r.sets[name]
	if s != nil && !slices.ContainsFunc(r.out.Sets, func(o importer.Set) bool { return o.Name == name }) {
		r.out.Sets = append(r.out.Sets, importer.Set{Name: name, Type: s.Type, Entries: s.Entries, Most: s.Most, Fills: s.Expires, Lengths: s.Lengths})
	}
	switch {
	case name == "":
		return errOptions
	case s == nil:
		return fmt.Errorf("the content of set %s is not known", name)
	case s.Unsaid != "":
		return fmt.Errorf("of the set %s: %s", name, s.Unsaid)
	case len(directions) < len(s.Parts):
		return errors.New("the key of the set has more parts than the match has directions")
	}
	var key []program.Field
	for i, part := range s.Parts {
		if directions[i] != "src" && directions[i] != "dst" {
			return fmt.Errorf("%q is not a direction", directions[i])
		}
		key = append(key, fieldsOf(part, directions[i] == "src", len(s.Parts) == 1)...)
	}
	c := program.Condition{Not: not, Set: r.set(s, key)}
	switch len(key) {
	case 0: // a list of no sets
		return fmt.Errorf("the set %s has no members", name)
	case 1:
	default:
		c.SetKey = key
	}
	c.Field = key[0]
	r.conditions = append(r.conditions, c)
	return nil
}

// fieldsOf is what the kernel takes of the packet for a part of a key.
func fieldsOf(part string, source, alone bool) []program.Field {
	either := func(src, dst program.Field) program.Field {
		if source {
			return src
		}
		return dst
	}
	switch part {
	case "ip", "net":
		return []program.Field{either(program.Source, program.Destination)}
	case "iface":
		return []program.Field{either(program.InInterface, program.OutInterface)}
	case "port":
		port := either(program.SourcePort, program.Port)
		if alone {
			return []program.Field{port}
		}
		return []program.Field{program.Protocol, port}
	}
	return []program.Field{program.Mark}
}

// set puts a set into the program and gives its id there.
func (r *reader) set(s *ipset.Set, key []program.Field) string {
	id := "ipset " + s.Name
	if !r.has[id] {
		r.has[id] = true
		r.out.Program.Sets = append(r.out.Program.Sets, program.Set{
			ID: id, Key: key, Life: program.Living, Addresses: s.Addresses, Elements: s.Elements,
			Origin: program.Origin{Foreign: true, File: "ipset", Line: s.Line, Text: "create " + s.Name + " " + s.Type},
		})
	}
	return id
}
