package query

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"sluice/internal/base/addrset"
	"sluice/internal/base/english"
	"sluice/internal/base/packet"
	"sluice/internal/language/policy"
	"sluice/internal/language/resolve"
	"sluice/internal/program"
	"sluice/internal/prove/reach"
)

// Words are what a question is made of, each as in a rule; "" is anything.
type Words struct {
	Service, From, To string
	In, Out           string // zones
	Hook              string // input, forward or output; "" is every section of the policy, and what is open for lack of one
	States            []packet.State
	// Called is what the caller calls service, from, to, in, out and hook, for what is
	// said of the words; one that is not there is called so.
	Called map[string]string
}

func (w Words) called(word string) string { return cmp.Or(w.Called[word], word) }

// Ways of the sections.
var ways = []struct {
	Way  reach.Way
	Hook policy.Hook
}{{reach.In, policy.Input}, {reach.Through, policy.Forward}, {reach.Out, policy.Output}}

// Read makes questions of the words, by the names of a policy: the packets of all
// of them together are meant. What is wrong with the words is told as it is of a
// rule, with the name of the option in place of the file.
func (w Words) Read(r *resolve.Resolved) ([]reach.Question, error) {
	var out []reach.Question
	hooks := w.hooks(r)
	for _, at := range hooks {
		// A zone that no packet of the way can have an interface of leaves the
		// way out; where no way is left, the words ask for nothing.
		strict := len(hooks) == 1
		questions, err := w.way(r, at.Way, strict)
		if err != nil {
			return nil, err
		}
		out = append(out, questions...)
	}
	if len(out) == 0 {
		_, err := w.way(r, hooks[0].Way, true)
		return nil, err
	}
	return out, nil
}

// everything is the packets of all the ways that the words ask about.
func (w Words) everything(r *resolve.Resolved) (out []reach.Question, err error) {
	for _, at := range w.hooks(r) {
		questions, err := Words{States: w.States}.way(r, at.Way, false)
		if err != nil {
			return nil, err
		}
		out = append(out, questions...)
	}
	return out, nil
}

// hooks are the ways that are asked about: the one that was named, or those that
// the policy has a section for and those by which packets pass unasked for the
// want of one, or all. Output without a section is left out, as what a host sends
// is what it wants to send.
func (w Words) hooks(r *resolve.Resolved) (out []struct {
	Way  reach.Way
	Hook policy.Hook
},
) {
	p := r.Policy
	if w.Hook == "" && p.Input == nil && p.Forward == nil && p.Output == nil {
		return ways
	}
	for _, at := range ways {
		section := map[policy.Hook]*policy.Section{policy.Input: p.Input, policy.Forward: p.Forward, policy.Output: p.Output}[at.Hook]
		open := section == nil && (at.Way == reach.In || at.Way == reach.Through && w.forwarded(r))
		if string(at.Hook) == w.Hook || w.Hook == "" && (section != nil || open) {
			out = append(out, at)
		}
	}
	return out
}

// forwarded says whether what the words name may be forwarded: the host forwards,
// or they name where other hosts are.
func (w Words) forwarded(r *resolve.Resolved) bool {
	leads := func(n *policy.NAT) bool {
		return n.Kind == policy.Map || n.Kind == policy.Redirect && n.Target.Address.IsValid()
	}
	switch {
	case r.Facts.Known && (r.Facts.Forwarding4 || r.Facts.Forwarding6), w.Out != "", slices.ContainsFunc(r.Policy.NAT, leads):
		return true
	case w.To == "":
		return false
	}
	to, err := r.Policy.Asking().Who(w.called("to"), w.To, "to", false)
	return err == nil && slices.ContainsFunc(sides(r, to, program.OutInterface), func(s side) bool {
		there := impossible(r, reach.In, true) // no source: this host's own, loopback, groups
		return s.addresses == nil || !there.ContainsSet(*s.addresses)
	})
}

// reading is words that were read.
type reading struct {
	services []policy.ServiceRef
	from, to *policy.Who
	in, out  *policy.Word
}

// conditions are what the words say beside addresses and services.
func (a *reading) conditions(r *resolve.Resolved, way reach.Way) []program.Condition {
	more := fromElsewhere(r, way, a.in, a.out, a.from, a.to)
	if a.in != nil {
		more = append(more, program.Condition{Field: program.InInterface, Names: r.Zones[a.in.Text].Interfaces})
	}
	if a.out != nil {
		more = append(more, program.Condition{Field: program.OutInterface, Names: r.Zones[a.out.Text].Interfaces})
	}
	return more
}

// parse reads the words for a way.
func (w Words) parse(r *resolve.Resolved, way reach.Way, strict bool) (a reading, err error) {
	ask := r.Policy.Asking()
	if w.Service != "" {
		if a.services, err = ask.Services(w.called("service"), w.Service); err != nil {
			return a, err
		}
	}
	if w.From != "" {
		if a.from, err = ask.Who(w.called("from"), w.From, "from", strict && way == reach.Out); err != nil {
			return a, err
		}
	}
	if w.To != "" {
		if a.to, err = ask.Who(w.called("to"), w.To, "to", strict && way == reach.In); err != nil {
			return a, err
		}
	}
	if w.In != "" {
		if a.in, err = ask.Zone(w.called("in"), w.In, "in"); err != nil {
			return a, err
		}
	}
	if w.Out != "" {
		a.out, err = ask.Zone(w.called("out"), w.Out, "out")
	}
	return a, err
}

// way makes the questions of one way.
func (w Words) way(r *resolve.Resolved, way reach.Way, strict bool) ([]reach.Question, error) {
	a, err := w.parse(r, way, strict)
	if err != nil {
		return nil, err
	}
	senseless := way == reach.Out && (a.in != nil || hasInterface(r, a.from)) || way == reach.In && (a.out != nil || hasInterface(r, a.to))
	if senseless {
		if strict && (a.in != nil || a.out != nil) {
			return nil, w.noSense(r.Policy, way, a.in, a.out)
		}
		return nil, nil
	}
	base := reach.Question{Way: way, States: w.States}
	more := a.conditions(r, way)
	var questions []reach.Question
	for _, f := range sides(r, a.from, program.InInterface) {
		for _, t := range sides(r, a.to, program.OutInterface) {
			q := base
			q.From, q.To = elsewhere(r, f.addresses, way, true), elsewhere(r, t.addresses, way, false)
			q.Match = Alternatives(a.services, program.Port, slices.Concat(more, f.conditions, t.conditions))
			questions = append(questions, q)
		}
	}
	return questions, nil
}

// elsewhere leaves out addresses that no packet has that goes from one host to
// another.
func elsewhere(r *resolve.Resolved, s *addrset.Set, way reach.Way, source bool) *addrset.Set {
	rest := impossible(r, way, source).Complement()
	if s != nil {
		rest = rest.Intersect(*s)
	}
	return &rest
}

// impossible are the addresses that packets from one host to another do not have:
// those of loopback, on a side that is another host's this host's own, and as a
// source, or where packets are forwarded, those of groups. The kernel drops such
// packets before any rule, or takes them another way.
func impossible(r *resolve.Resolved, way reach.Way, source bool) addrset.Set {
	out := loopback
	if source == (way != reach.Out) && r.Facts.Known {
		out = out.Union(ownAddresses(r))
	}
	switch {
	case !source && way == reach.Through: // packets to this host may be led elsewhere
		return loopback.Union(groups)
	case source:
		return out.Union(groups)
	}
	return out
}

// groups are the addresses of many hosts at once.
var groups = addrset.FromPrefixes(netip.MustParsePrefix("224.0.0.0/4"), netip.MustParsePrefix("ff00::/8"), netip.MustParsePrefix("255.255.255.255/32"))

// fromElsewhere leaves out what the host says to itself, which is always allowed,
// unless the words name a zone of the loopback interface.
func fromElsewhere(r *resolve.Resolved, way reach.Way, in, out *policy.Word, from, to *policy.Who) []program.Condition {
	named := func(w *policy.Word, who *policy.Who) bool {
		if w != nil {
			return r.Zones[w.Text].HasInterface("lo")
		}
		return who != nil && slices.ContainsFunc(who.Items, func(i policy.WhoItem) bool {
			z := r.Zones[i.Name]
			return z != nil && z.HasInterface("lo")
		})
	}
	switch {
	case way != reach.Out && !named(in, from):
		return []program.Condition{{Field: program.InInterface, Not: true, Names: []string{"lo"}}}
	case way == reach.Out && !named(out, to):
		return []program.Condition{{Field: program.OutInterface, Not: true, Names: []string{"lo"}}}
	}
	return nil
}

// noSense is the error of a rule that asks for an interface that no packet has.
func (w Words) noSense(p *policy.Policy, way reach.Way, in, out *policy.Word) error {
	ask := func(word string) string {
		return fmt.Sprintf("use %s, or another %s", w.called(word), w.called("hook"))
	}
	if way == reach.Out && in != nil {
		return p.Errorf(in.Pos, ask("out"), "%s cannot be used in output: packets from this host have no incoming interface", w.called("in"))
	}
	return p.Errorf(out.Pos, ask("in"), "%s cannot be used in input: packets to this host have no outgoing interface", w.called("out"))
}

func hasInterface(r *resolve.Resolved, w *policy.Who) bool {
	return w != nil && slices.ContainsFunc(w.Items, func(i policy.WhoItem) bool {
		z := r.Zones[i.Name]
		return z != nil && len(z.Interfaces) > 0
	})
}

// side is one way to be one of the WHO of a question.
type side struct {
	addresses  *addrset.Set // nil: any
	conditions []program.Condition
}

// sides are all ways to be one of the WHO: by address, or by interface and
// address together.
func sides(r *resolve.Resolved, w *policy.Who, device program.Field) []side {
	if w == nil {
		return []side{{}}
	}
	var plain addrset.Set
	var zones []*resolve.Zone
	for _, item := range w.Items {
		switch z := r.Zones[item.Name]; {
		case item.Name == "":
			plain = plain.Union(addrset.Of(item.Literal))
		case z != nil && len(z.Interfaces) > 0:
			zones = append(zones, z)
		case z != nil:
			plain = plain.Union(z.Networks)
		default:
			plain = plain.Union(r.Sets[item.Name].Addresses)
		}
	}
	by := func(z *resolve.Zone, not bool) []program.Condition {
		return []program.Condition{{Field: device, Not: not, Names: z.Interfaces}}
	}
	if !w.Not {
		var out []side
		if !plain.IsEmpty() || len(zones) == 0 {
			out = append(out, side{addresses: &plain})
		}
		for _, z := range zones {
			s := side{conditions: by(z, false)}
			if z.HasNetworks {
				s.addresses = &z.Networks
			}
			out = append(out, s)
		}
		return out
	}
	rest := plain.Complement()
	out := []side{{addresses: &rest}}
	for _, z := range zones {
		var next []side
		for _, s := range out {
			next = append(next, side{s.addresses, slices.Concat(s.conditions, by(z, true))})
			if z.HasNetworks {
				outside := s.addresses.Difference(z.Networks)
				next = append(next, side{&outside, slices.Concat(s.conditions, by(z, false))})
			}
		}
		out = next
	}
	return out
}

// Alternatives are the ways to be one of the services, by a port in this field; more
// holds in each.
func Alternatives(services []policy.ServiceRef, port program.Field, more []program.Condition) [][]program.Condition {
	is := func(f program.Field, n ...uint64) program.Condition {
		c := program.Condition{Field: f}
		for _, v := range n {
			c.Numbers = append(c.Numbers, program.NumberRange{From: v, To: v})
		}
		return c
	}
	var out [][]program.Condition
	add := func(conditions ...program.Condition) { out = append(out, slices.Concat(conditions, more)) }
	for _, s := range services {
		for _, m := range s.Matches {
			switch {
			case m.Any:
				add()
			case m.Protocol == packet.ICMP && m.ICMP == nil:
				add(is(program.Protocol, packet.ICMP, packet.ICMPv6))
			case m.Protocol == packet.ICMP:
				if m.ICMP.V4 >= 0 {
					add(is(program.Protocol, packet.ICMP), is(program.ICMPType, uint64(m.ICMP.V4))) //nolint:gosec // not negative
				}
				if m.ICMP.V6 >= 0 {
					add(is(program.Protocol, packet.ICMPv6), is(program.ICMPv6Type, uint64(m.ICMP.V6))) //nolint:gosec // not negative
				}
			case len(m.Ports) == 0:
				add(is(program.Protocol, uint64(m.Protocol)))
			default:
				ports := program.Condition{Field: port}
				for _, p := range m.Ports {
					ports.Numbers = append(ports.Numbers, program.NumberRange{From: uint64(p.From), To: uint64(p.To)})
				}
				add(is(program.Protocol, uint64(m.Protocol)), ports)
			}
		}
	}
	if len(services) == 0 && len(more) > 0 {
		out = append(out, more)
	}
	return out
}

// States reads the states of a question: names with commas between, or any.
func States(text string) ([]packet.State, error) {
	all := []packet.State{packet.New, packet.Established, packet.Related, packet.Invalid, packet.Untracked}
	var out []packet.State
	for word := range strings.SplitSeq(text, ",") {
		s := packet.State(strings.TrimSpace(word))
		switch {
		case s == "any":
			return all, nil
		case !slices.Contains(all, s):
			return nil, fmt.Errorf("unknown state %q\nhint: use new, established, related, invalid, untracked or any", word)
		}
		out = append(out, s)
	}
	return out, nil
}

// String says what is asked about: "new packets of ssh from not office on input".
func (w Words) String() string {
	states := make([]string, len(w.States))
	for i, s := range w.States {
		states[i] = string(s)
	}
	text := english.List(states) + " packets"
	if len(states) == 5 {
		text = "packets"
	}
	for _, part := range []struct{ word, value string }{
		{"of", w.Service},
		{"from", w.From},
		{"to", w.To},
		{"in", w.In},
		{"out", w.Out},
		{"on", w.Hook},
	} {
		if part.value != "" {
			text += " " + part.word + " " + part.value
		}
	}
	return text
}
