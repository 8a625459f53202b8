package doctor

import (
	"fmt"
	"slices"

	"sluice/internal/base/packet"
	"sluice/internal/importer"
	"sluice/internal/program"
	"sluice/internal/prove/reach"
	"sluice/internal/system/kernel/link"
)

// chainsFrom are a chain and all that it leads to.
func chainsFrom(p *program.Program, name string) (all []*program.Chain) {
	byName := make(map[string]*program.Chain, len(p.Chains))
	for i := range p.Chains {
		byName[p.Chains[i].Name] = &p.Chains[i]
	}
	for next := []string{name}; len(next) > 0; next = next[1:] {
		c := byName[next[0]]
		if c == nil {
			continue
		}
		delete(byName, next[0])
		all = append(all, c)
		for i := range c.Rules {
			for _, a := range c.Rules[i].Actions {
				next = append(next, p.Leads(a)...)
			}
		}
	}
	return all
}

// service is a port of a protocol.
type service struct {
	protocol uint8
	port     uint16
}

// begin makes a packet the first of a connection to it.
func (s service) begin(p *packet.Packet) {
	p.Protocol, p.SourcePort, p.Port, p.Flags, p.State = s.protocol, someEphemeral, s.port, packet.SYN, packet.New
}

func (s service) String() string {
	return fmt.Sprintf("%s/%d", packet.ProtocolName(s.protocol), s.port)
}

// mostServices bounds how many ports rules are asked about.
const mostServices = 200

// published are the services that rules of a hook rewrite the destination of: the first
// port of each rule and each element of a verdict map on the way.
func published(r *importer.Ruleset, at program.HookKind) (out []service) {
	add := func(protocol, port []program.NumberRange) {
		if len(protocol) == 0 || len(port) == 0 || len(out) >= mostServices {
			return
		}
		s := service{uint8(protocol[0].From), uint16(port[0].From)} //nolint:gosec // as the fields have them
		if !slices.Contains(out, s) {
			out = append(out, s)
		}
	}
	for _, h := range r.Program.Hooks {
		if h.Kind != at || h.Phase != program.NAT {
			continue
		}
		for _, c := range chainsFrom(r.Program, h.Chain) {
			for i := range c.Rules {
				rule := &c.Rules[i]
				add(numbersOf(rule, program.Protocol), numbersOf(rule, program.Port))
				for _, a := range rule.Actions {
					e := program.EffectOf(a)
					protocol, port := slices.Index(e.Reads, program.Protocol), slices.Index(e.Reads, program.Port)
					set := r.Program.Set(e.Map)
					if set == nil || port < 0 {
						continue
					}
					for _, element := range set.Elements {
						of := numbersOf(rule, program.Protocol)
						if protocol >= 0 {
							of = []program.NumberRange{element.Parts[protocol].Numbers}
						}
						add(of, []program.NumberRange{element.Parts[port].Numbers})
					}
				}
			}
		}
	}
	return out
}

// numbersOf are the values that a rule wants of a field.
func numbersOf(r *program.Rule, f program.Field) []program.NumberRange {
	for i := range r.Match {
		if c := &r.Match[i]; c.Field == f && !c.Not && c.Set == "" {
			return c.Numbers
		}
	}
	return nil
}

// only is a ruleset's program with some of its base chains.
func only(r *importer.Ruleset, keep func(program.Hook) bool) *program.Program {
	p := *r.Program
	p.Hooks = slices.DeleteFunc(slices.Clone(p.Hooks), func(h program.Hook) bool { return !keep(h) })
	return &p
}

// acting is the last rule that did a certain thing to a packet; nil: none did.
func acting(p *program.Program, pkt packet.Packet, way packet.Way, does func(program.Effect) bool) (by *program.Rule) {
	var now *program.Rule
	measure(p, pkt, way, func(r *program.Rule) { now = r }, func(a program.Action) {
		if does(program.EffectOf(a)) {
			by = now
		}
	})
	return by
}

func rewritesDestination(e program.Effect) bool {
	return e.Ends && e.Rewrites.Field == program.Destination
}

func rewritesSource(e program.Effect) bool { return e.Ends && e.Rewrites.Field == program.Source }

// routed gives the device that a packet leaves by, nil where there is no way.
func (s *Seen) routed(p packet.Packet) *Device {
	found, err := link.Ask(link.Lookup{Destination: p.Destination, User: -1})
	if err != nil {
		return nil
	}
	i := slices.IndexFunc(s.Devices, func(d Device) bool { return d.Index == found.Chosen })
	if i < 0 {
		return nil
	}
	return &s.Devices[i]
}

// forwarded says what happens to a packet that a ruleset gives another destination, which
// is not the host's own: the device that it leaves by, the packet behind all rules, and
// whether every ruleset surely lets it pass.
func (s *Seen) forwarded(by *importer.Ruleset, p packet.Packet) (out *Device, end packet.Packet, passes bool) {
	got := reach.Evaluate(by.Program, p, packet.In)
	if !got.Packet.DNAT || got.Packet.DestinationLocal == packet.Yes || s.own(got.Packet.Destination) {
		return nil, end, false
	}
	if out = s.routed(got.Packet); out == nil {
		return nil, got.Packet, false
	}
	p.Out = out.Name
	got = reach.Evaluate(by.Program, p, packet.In)
	end, passes = got.Packet, got.Certain && got.Verdict == program.Accept
	end.SNAT = end.SNAT || acting(by.Program, p, packet.In, rewritesSource) != nil
	through := got.Packet
	through.SNAT, through.Source = false, p.Source // which others meet before
	for _, r := range s.Rules {
		if r == by || !meets(r, p.Family()) {
			continue
		}
		got := reach.Evaluate(r.Program, through, packet.Through)
		passes = passes && got.Certain && got.Verdict == program.Accept
		end.SNAT = end.SNAT || acting(r.Program, through, packet.Through, rewritesSource) != nil
	}
	return out, end, passes
}
