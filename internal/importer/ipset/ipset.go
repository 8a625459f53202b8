// Package ipset reads what "ipset save" prints. The reader of iptables-save asks it what
// the sets that rules name hold; doctor calls both.
//
// What a set holds is said by program.Set, at the moment of reading: elements with a
// time-out among it, and without what was counted for them. Where the kernel decides by
// the longest prefix (net, and nomatch), the ranges that come of it are held instead.
package ipset

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"sluice/internal/base/addrset"
	"sluice/internal/importer"
	"sluice/internal/program"
)

// Set is one set.
type Set struct {
	Name string
	Type string // "hash:net,port"
	Line int    // where it begins in the text
	// Entries is how many elements it has, and Most how many it may have; 0: no bound, or one
	// at which it makes room (forceadd). Expires: they have time-outs. Lengths is how many
	// lengths the prefixes of its elements have.
	Entries, Most, Lengths int
	Expires                bool
	// Parts are what its type is made of: ip, net, port, mac, iface, mark; of a list, that
	// of its members. A port is a protocol and a number, two parts of a key, unless it is
	// the only part.
	Parts []string
	// Addresses is what a set of ip or net alone holds, Elements what others do. Those are
	// disjoint.
	Addresses addrset.Set
	Elements  []program.Element
	// Unsaid is why no program says what is in the set; "" where one does.
	Unsaid string

	six     bool
	netmask int // 0: none
	adds    []added
	members []added
}

// added is an element as it was written.
type added struct {
	line, column int
	text         string
	nomatch      bool
}

// Parse reads the text of all sets, by their names. An error is an *importer.SyntaxError.
func Parse(text string) (map[string]*Set, error) {
	out := map[string]*Set{}
	var order []*Set
	number := 0
	for line := range strings.Lines(text) {
		number++
		line = strings.TrimRight(line, "\r\n")
		words, err := split(line, number)
		switch {
		case err != nil:
			return nil, err
		case len(words) == 0 || words[0].text[0] == '#':
			continue
		case len(words) < 3:
			return nil, words[0].fail(number, "%q is neither a set nor an element: create NAME TYPE, or add NAME ELEMENT", line)
		}
		name := words[1].text
		switch words[0].text {
		case "create":
			if out[name] != nil {
				return nil, words[1].fail(number, "set %s is defined twice", name)
			}
			s, err := create(name, words[2:], number)
			if err != nil {
				return nil, err
			}
			out[name] = s
			order = append(order, s)
		case "add":
			s := out[name]
			if s == nil {
				return nil, words[1].fail(number, "no set %s is defined before its element", name)
			}
			a := added{number, words[2].column, words[2].text, slices.ContainsFunc(words[3:], func(w word) bool { return w.text == "nomatch" })}
			if s.Type == list {
				s.members = append(s.members, a)
			} else {
				s.adds = append(s.adds, a)
			}
		default:
			return nil, words[0].fail(number, "%q is not a command of ipset save: create or add", words[0].text)
		}
	}
	for _, s := range order {
		if err := s.hold(); err != nil {
			return nil, err
		}
	}
	for _, s := range order {
		if err := s.join(out); err != nil {
			return nil, err
		}
	}
	return out, nil
}

const list = "list:set"

type word struct {
	text   string
	column int
}

func (w word) fail(line int, format string, args ...any) error {
	return &importer.SyntaxError{Line: line, Column: w.column, What: fmt.Sprintf(format, args...)}
}

// split takes a line apart at blanks, without the comment of an element, which alone is
// quoted and holds no quote.
func split(line string, number int) ([]word, error) {
	if from := strings.IndexByte(line, '"'); from >= 0 {
		to := strings.LastIndexByte(line, '"')
		if to == from {
			return nil, word{column: from + 1}.fail(number, "a quote that does not end on its line")
		}
		line = line[:from] + strings.Repeat(" ", to-from+1) + line[to+1:]
	}
	words := make([]word, 0, 8)
	for at := 0; ; {
		for at < len(line) && (line[at] == ' ' || line[at] == '\t') {
			at++
		}
		if at == len(line) {
			return words, nil
		}
		end := strings.IndexAny(line[at:], " \t")
		if end < 0 {
			end = len(line) - at
		}
		words = append(words, word{line[at : at+end], at + 1})
		at += end
	}
}

// known are the parts that a program's key can have.
var known = []string{"ip", "net", "port", "iface", "mark"}

func create(name string, words []word, number int) (*Set, error) {
	s := &Set{Name: name, Type: words[0].text, Line: number}
	method, parts, typed := strings.Cut(s.Type, ":")
	if !typed || !slices.Contains([]string{"hash", "bitmap", "list"}, method) {
		return nil, words[0].fail(number, "%q is not a set type such as hash:ip", s.Type)
	}
	if s.Type != list {
		s.Parts = strings.Split(parts, ",")
	}
	for _, part := range s.Parts {
		if !slices.Contains(known, part) {
			s.Unsaid = "a program has no field for its " + part
		}
	}
	for i, w := range words {
		value := ""
		if i+1 < len(words) {
			value = words[i+1].text
		}
		switch w.text {
		case "family":
			s.six = value == "inet6"
		case "netmask":
			n, err := strconv.ParseUint(value, 10, 8)
			if err != nil || n == 0 || n > 128 || !s.six && n > 32 {
				return nil, w.fail(number, "%q is not a prefix length", value)
			}
			s.netmask = int(n) //nolint:gosec // up to 128
		case "maxelem":
			n, err := strconv.ParseUint(value, 10, 32)
			if err != nil {
				return nil, w.fail(number, "%q is not a number of elements", value)
			}
			s.Most = int(n)
		case "timeout":
			s.Expires = true
		case "bitmask", "markmask":
			s.Unsaid = "it is looked up with a " + w.text
		}
	}
	if slices.ContainsFunc(words, func(w word) bool { return w.text == "forceadd" }) {
		s.Most = 0
	}
	return s, nil
}

// count counts elements and lengths of prefixes.
func (s *Set) count() {
	s.Entries = len(s.adds)
	lengths := map[string]bool{}
	for _, a := range s.adds {
		for i, text := range strings.Split(a.text, ",") {
			if i < len(s.Parts) && s.Parts[i] == "net" {
				_, length, _ := strings.Cut(text, "/")
				lengths[length] = true // "" is a single address
			}
		}
	}
	s.Lengths = len(lengths)
}

// hold reads the elements.
func (s *Set) hold() error {
	s.count()
	if s.Unsaid != "" || s.Type == list {
		return nil
	}
	nets := 0
	for _, part := range s.Parts {
		if part == "net" {
			nets++
		}
	}
	// Elements that are alike except for their net are one group, of which the longest
	// prefix decides.
	groups := map[string]*group{}
	var order []*group
	for _, a := range s.adds {
		e, net, err := s.element(a)
		switch {
		case err != nil:
			return err
		case s.Unsaid != "":
			return nil
		case a.nomatch && nets != 1:
			s.Unsaid = "its " + a.text + " is an exception"
			return nil
		}
		key := ""
		if len(s.Parts) > 1 || net < 0 {
			key = keyOf(e, net)
		}
		g := groups[key]
		if g == nil {
			g = &group{element: e, net: net, of: map[int]*prefixes{}}
			groups[key] = g
			order = append(order, g)
		}
		if net >= 0 {
			g.add(e.Parts[net].Addresses, a.nomatch)
		}
	}
	s.adds = nil
	for _, g := range order {
		switch {
		case g.net < 0:
			s.Elements = append(s.Elements, g.element)
		case len(s.Parts) == 1:
			s.Addresses = g.held()
		default:
			for r := range g.held().Each() {
				e := program.Element{Parts: slices.Clone(g.element.Parts)}
				e.Parts[g.net].Addresses = r
				s.Elements = append(s.Elements, e)
			}
		}
	}
	keys := make([][]program.Value, len(order))
	for i, g := range order {
		keys[i] = slices.Clone(g.element.Parts)
		if g.net >= 0 {
			keys[i] = slices.Delete(keys[i], g.net, g.net+1)
		}
	}
	if overlap(keys) {
		s.Elements, s.Unsaid = nil, "its elements overlap"
	}
	return nil
}

// element reads "192.0.2.0/24,tcp:80"; net says which of its parts is looked up by the
// longest prefix, or else which is an address that may be joined with others; -1 is none.
func (s *Set) element(a added) (e program.Element, net int, err error) {
	texts := strings.Split(a.text, ",")
	if len(texts) != len(s.Parts) {
		return e, 0, word{a.text, a.column}.fail(a.line, "%q has %d parts, but an element of type %s has %d", a.text, len(texts), s.Type, len(s.Parts))
	}
	net = -1
	for i, part := range s.Parts {
		text, why := texts[i], error(nil)
		switch part {
		case "ip", "net":
			var r addrset.Range
			if r, why = s.addresses(text, part); why == nil {
				if part == "net" || net < 0 && !slices.Contains(s.Parts, "net") {
					net = len(e.Parts)
				}
				e.Parts = append(e.Parts, program.Value{Addresses: r})
			}
		case "port":
			why = s.port(&e, text)
		case "iface":
			if strings.Contains(text, ":") || strings.Contains(text, "+") {
				s.Unsaid = "its interface " + text + " is looked up differently"
			}
			e.Parts = append(e.Parts, program.Value{Name: text})
		case "mark":
			var n uint64
			if n, why = strconv.ParseUint(text, 0, 32); why == nil {
				e.Parts = append(e.Parts, program.Value{Numbers: program.NumberRange{From: n, To: n}})
			}
		}
		if why != nil {
			return e, 0, word{a.text, a.column}.fail(a.line, "%q is not valid for the %s part of type %s", text, part, s.Type)
		}
	}
	return e, net, nil
}

func (s *Set) addresses(text, part string) (addrset.Range, error) {
	r, err := addrset.ParseRange(text)
	if err != nil || r.From.Is4() == s.six {
		return r, fmt.Errorf("%s is not an address of its family", text)
	}
	if s.netmask > 0 && part == "ip" {
		p, err := r.From.Prefix(s.netmask)
		last := addrset.PrefixRange(netip.PrefixFrom(r.To, s.netmask))
		return addrset.Range{From: p.Addr(), To: last.To}, err
	}
	return r, nil
}

// protocols are the names that ipset has for protocols with ports.
var protocols = map[string]uint64{"tcp": 6, "sctp": 132, "udp": 17, "udplite": 136}

// port reads "tcp:80", "udp:1000-2000", of a set of ports alone "80".
func (s *Set) port(e *program.Element, text string) error {
	name, number, has := strings.Cut(text, ":")
	if !has && len(s.Parts) == 1 {
		number = text
	} else {
		protocol, known := protocols[name]
		if !known {
			// The number is a type and a code, or nothing.
			s.Unsaid = "its " + text + " is not a port"
			return nil
		}
		e.Parts = append(e.Parts, program.Value{Numbers: program.NumberRange{From: protocol, To: protocol}})
	}
	from, to, two := strings.Cut(number, "-")
	if !two {
		to = from
	}
	first, err := strconv.ParseUint(from, 10, 16)
	if err != nil {
		return err
	}
	last, err := strconv.ParseUint(to, 10, 16)
	if err != nil || first > last {
		return fmt.Errorf("%s is not a range", number)
	}
	e.Parts = append(e.Parts, program.Value{Numbers: program.NumberRange{From: first, To: last}})
	return nil
}

// join makes a list hold what its members do.
func (s *Set) join(all map[string]*Set) error {
	for i, m := range s.members {
		of := all[m.text]
		at := word{m.text, m.column}
		switch {
		case of == nil:
			return at.fail(m.line, "there is no set %s", m.text)
		case of.Type == list:
			return at.fail(m.line, "set %s is itself a list", m.text)
		case of.Unsaid != "":
			s.Unsaid = "of its member " + m.text + ": " + of.Unsaid
		case i > 0 && !same(s.Parts, of.Parts):
			s.Unsaid = "its members are of several kinds"
		}
		if s.Unsaid != "" {
			s.Elements, s.Addresses = nil, addrset.Set{}
			return nil
		}
		if i == 0 {
			s.Parts = of.Parts
		}
		s.Addresses = s.Addresses.Union(of.Addresses)
		s.Elements = append(s.Elements, of.Elements...)
	}
	keys := make([][]program.Value, len(s.Elements))
	for i, e := range s.Elements {
		keys[i] = e.Parts
	}
	if s.Type == list && overlap(keys) {
		s.Elements, s.Unsaid = nil, "its members overlap"
	}
	return nil
}

// same says whether keys are of one kind.
func same(a, b []string) bool {
	return slices.EqualFunc(a, b, func(x, y string) bool {
		return x == y || x == "ip" && y == "net" || x == "net" && y == "ip"
	})
}
