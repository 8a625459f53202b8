package query

import (
	"fmt"
	"slices"
	"strings"

	"sluice/internal/base/english"
	"sluice/internal/base/packet"
	"sluice/internal/language/policy"
	"sluice/internal/program"
	"sluice/internal/prove/reach"
)

const everyProtocol = "any protocol"

// services says which services packets are of, each in the words of a rule, and
// removes the families that they cannot be of.
func (w *wording) services(c reach.Class, families *[2]bool) []string {
	protocols, told := c.Values(program.Protocol)
	if !told {
		protocols.Numbers = []program.NumberRange{{From: 0, To: 255}}
	}
	all := contains(protocols.Numbers)
	ports, hasPorts := c.Values(program.Port)
	types4, has4 := c.Values(program.ICMPType)
	types6, has6 := c.Values(program.ICMPv6Type)
	if only := func(n uint64) bool {
		return told && all(n) && len(protocols.Numbers) == 1 && protocols.Numbers[0].From == protocols.Numbers[0].To
	}; only(packet.ICMP) {
		families[1] = false
	} else if only(packet.ICMPv6) {
		families[0] = false
	}
	if !hasPorts && !has4 && !has6 {
		return plainProtocols(protocols.Numbers)
	}
	var out []string
	var rest []program.NumberRange
	for _, r := range protocols.Numbers {
		for n := r.From; n <= r.To; n++ {
			p := packet.Packet{Protocol: uint8(n)} //nolint:gosec // below 256
			switch {
			case hasPorts && p.HasPorts():
				out = append(out, withPorts(uint8(n), ports.Numbers)...) //nolint:gosec // below 256
			case n == packet.ICMP && has4:
				out = append(out, icmpTypes(false, types4.Numbers)...)
			case n == packet.ICMPv6 && has6:
				out = append(out, icmpTypes(true, types6.Numbers)...)
			default:
				rest = append(rest, program.NumberRange{From: n, To: n})
			}
		}
	}
	return append(out, plainProtocols(join(rest))...)
}

func contains(list []program.NumberRange) func(uint64) bool {
	return func(n uint64) bool {
		return slices.ContainsFunc(list, func(r program.NumberRange) bool { return r.From <= n && n <= r.To })
	}
}

// join makes ranges of neighbours.
func join(list []program.NumberRange) []program.NumberRange {
	var out []program.NumberRange
	for _, r := range list {
		if n := len(out); n > 0 && out[n-1].To+1 == r.From {
			out[n-1].To = r.To
			continue
		}
		out = append(out, r)
	}
	return out
}

// without are the numbers from 0 to most that are not in the list.
func without(list []program.NumberRange, most uint64) []program.NumberRange {
	var out []program.NumberRange
	next := uint64(0)
	for _, r := range list {
		if r.From > next {
			out = append(out, program.NumberRange{From: next, To: r.From - 1})
		}
		next = r.To + 1
	}
	if next <= most {
		out = append(out, program.NumberRange{From: next, To: most})
	}
	return out
}

// plainProtocols names protocols as a whole.
func plainProtocols(list []program.NumberRange) []string {
	words := func(list []program.NumberRange) []string {
		var out []string
		both := contains(list)(packet.ICMP) && contains(list)(packet.ICMPv6)
		for _, r := range list {
			if r.To-r.From > 8 {
				out = append(out, "proto/"+r.String())
				continue
			}
			for n := r.From; n <= r.To; n++ {
				switch {
				case n == packet.ICMPv6 && both:
				case n == packet.ICMP && !both, n == packet.ICMPv6:
					out = append(out, "icmp")
				default:
					out = append(out, policy.ServiceMatch{Protocol: uint8(n)}.String()) //nolint:gosec // below 256
				}
			}
		}
		return out
	}
	rest := without(list, 255)
	switch {
	case len(list) == 0:
		return nil
	case len(rest) == 0:
		return []string{everyProtocol}
	case count(rest) < count(list):
		named := words(rest)
		// Of ICMP and ICMPv6 one alone is the other family's.
		if contains(rest)(packet.ICMP) != contains(rest)(packet.ICMPv6) {
			for i, word := range named {
				if word == "icmp" {
					named[i] = choose(contains(rest)(packet.ICMP), "icmp of IPv4", "icmp of IPv6")
				}
			}
		}
		return []string{everyProtocol + " but " + english.List(named)}
	}
	return words(list)
}

func count(list []program.NumberRange) (n uint64) {
	for _, r := range list {
		n += r.To - r.From + 1
	}
	return n
}

// withPorts names a protocol with ports.
func withPorts(protocol uint8, ports []program.NumberRange) []string {
	name := policy.ServiceMatch{Protocol: protocol}.String()
	rest := without(ports, 65535)
	if len(rest) > 0 && (len(rest) < len(ports) || len(rest) == len(ports) && count(rest) < count(ports)) {
		return []string{fmt.Sprintf("%s but %s", name, name+"/"+strings.ReplaceAll(numbers(rest), ", ", ", "+name+"/"))}
	}
	out := make([]string, len(ports))
	for i, r := range ports {
		out[i] = name + "/" + r.String()
		if strings.HasPrefix(name, "proto/") { // the language has no ports for it
			out[i] = name + " port " + r.String()
		}
	}
	return out
}

// icmpGroups are types of ICMPv6 that always stand together.
var icmpGroups = []struct {
	word  string
	types []uint64
}{
	{"icmp neighbour-discovery", []uint64{133, 134, 135, 136, 141, 142, 148, 149}},
	{"icmp multicast-listeners", []uint64{130, 131, 132, 143}},
}

// icmpTypes names types of ICMP, or of ICMPv6.
func icmpTypes(six bool, list []program.NumberRange) []string {
	word := func(n uint64) string {
		if text, ok := policy.ICMPWord(six, n); ok {
			return text
		}
		return fmt.Sprintf("icmp type %d", n)
	}
	words := func(list []program.NumberRange) []string {
		var out []string
		in := contains(list)
		for _, g := range icmpGroups {
			all := six
			for _, n := range g.types {
				all = all && in(n)
			}
			if !all {
				continue
			}
			out = append(out, g.word)
			others := in
			in = func(n uint64) bool { return others(n) && !slices.Contains(g.types, n) }
		}
		for _, r := range list {
			for n := r.From; n <= r.To; n++ {
				if in(n) {
					out = append(out, word(n))
				}
			}
		}
		return out
	}
	if rest := without(list, 255); count(rest) < count(list) {
		if len(rest) == 0 {
			return []string{"icmp"}
		}
		return []string{"icmp but " + strings.ReplaceAll(english.List(words(rest)), "icmp ", "")}
	}
	return words(list)
}

// simplify says in fewer words what services are together: what is told apart of
// "any protocol but …" takes away from what it is but.
func simplify(words []string) []string {
	const all = everyProtocol + " but "
	var but, rest []string
	found := false
	for _, word := range words {
		list, is := strings.CutPrefix(word, all)
		switch {
		case word == everyProtocol:
			return []string{everyProtocol}
		case !is:
			rest = append(rest, word)
		case !found:
			found, but = true, apart(list)
		default:
			other := apart(list)
			but = slices.DeleteFunc(but, func(w string) bool { return !slices.Contains(other, w) })
		}
	}
	if !found {
		return words
	}
	var left []string
	for _, word := range rest {
		protocol, ports, partly := strings.Cut(word, " but ")
		at := slices.Index(but, protocol)
		switch {
		case at < 0 && !slices.ContainsFunc(but, func(b string) bool { return strings.HasPrefix(word, b+"/") || strings.HasPrefix(word, b+" ") }):
			// of a protocol that is in it anyway
		case at < 0:
			left = append(left, word)
		case partly && protocol != "icmp":
			but = slices.Replace(but, at, at+1, apart(ports)...)
		case partly:
			left = append(left, word)
		default:
			but = slices.Delete(but, at, at+1)
		}
	}
	if len(but) == 0 {
		return []string{everyProtocol}
	}
	return append([]string{all + english.List(but)}, left...)
}

// apart is the opposite of together.
func apart(text string) []string {
	return strings.Split(strings.ReplaceAll(text, " and ", ", "), ", ")
}
