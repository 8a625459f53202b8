package optimize

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"sluice/internal/base/addrset"
	"sluice/internal/base/packet"
	"sluice/internal/base/testseed"
	"sluice/internal/program"
	"sluice/internal/prove/reach"
)

// maker makes random programs whose rules meet one another often, and packets
// at the edges of what rules ask for.
type maker struct {
	*rand.Rand
	program *program.Program
	lines   int
}

func newMaker(t *testing.T) *maker {
	t.Helper()
	return &maker{Rand: rand.New(rand.NewPCG(testseed.Of(t), 4))}
}

func pick[T any](m *maker, from ...T) T { return from[m.IntN(len(from))] }

var (
	someAddresses = []string{"192.0.2.1", "192.0.2.2", "192.0.2.3", "192.0.2.7", "198.51.100.1", "2001:db8::1", "2001:db8::2", "2001:db8:1::1"}
	someRanges    = []string{"192.0.2.0/30", "192.0.2.0/24", "198.51.100.0/24", "2001:db8::/64", "2001:db8::/32", "192.0.2.2-192.0.2.9"}
	somePorts     = []uint64{22, 80, 443, 1000, 2000}
)

func (m *maker) addresses() []addrset.Range {
	var out []addrset.Range
	for range 1 + m.IntN(2)*m.IntN(3) {
		text := pick(m, someAddresses...)
		switch m.IntN(8) {
		case 0:
			text = pick(m, someRanges...)
		case 1, 2, 3, 4:
			text = fmt.Sprintf("192.0.2.%d", m.IntN(32))
		}
		r, err := addrset.ParseRange(text)
		if err != nil {
			panic(err)
		}
		out = append(out, r)
	}
	return out
}

func (m *maker) ports() []program.NumberRange {
	var out []program.NumberRange
	for range 1 + m.IntN(2)*m.IntN(2) {
		n := pick(m, somePorts...)
		r := program.NumberRange{From: n, To: n}
		if m.IntN(6) == 0 {
			r.To += 1000
		}
		out = append(out, r)
	}
	return out
}

func number(n uint64) []program.NumberRange { return []program.NumberRange{{From: n, To: n}} }

// shape is which fields rules ask for; a bit each.
type shape uint32

// shapes are the ones of a chain: few, so that many rules differ in one or two
// fields.
func (m *maker) shapes() []shape {
	var out []shape
	for range 1 + m.IntN(3) {
		out = append(out, shape(m.Uint32()&m.Uint32()|1<<m.IntN(6)))
	}
	return out
}

// match makes conditions of a shape.
func (m *maker) match(s shape, raw bool) []program.Condition {
	var out []program.Condition
	has := func(bit int) bool { return s>>bit&1 == 1 }
	add := func(bit int, c func() program.Condition) {
		if !has(bit) {
			return
		}
		k := c()
		k.Not = m.IntN(25) == 0
		out = append(out, k)
	}
	addresses := func(f program.Field) func() program.Condition {
		return func() program.Condition { return program.Condition{Field: f, Addresses: m.addresses()} }
	}
	if has(0) || has(1) {
		protocol := pick[uint64](m, 6, 17)
		if has(2) {
			protocol = 6
		}
		out = append(out, program.Condition{Field: program.Protocol, Numbers: number(protocol)})
		add(1, func() program.Condition { return program.Condition{Field: program.Port, Numbers: m.ports()} })
		if has(3) {
			add(4, func() program.Condition { return program.Condition{Field: program.SourcePort, Numbers: m.ports()} })
		}
	}
	add(5, addresses(program.Source))
	if has(6) {
		add(7, addresses(program.Destination))
	}
	if has(8) {
		add(9, func() program.Condition {
			return program.Condition{Field: program.InInterface, Names: []string{pick(m, "eth0", "eth1", "eth1", "eth*")}}
		})
	}
	if has(10) {
		add(11, func() program.Condition {
			return program.Condition{Field: program.Source, Set: pick(m, "office", "living", "large", "large", "large")}
		})
	}
	if has(12) {
		add(13, func() program.Condition {
			return program.Condition{Field: program.Mark, Numbers: number(pick[uint64](m, 1, 2))}
		})
	}
	if has(14) {
		add(15, func() program.Condition {
			return program.Condition{Field: program.Family, Numbers: number(pick[uint64](m, 4, 6))}
		})
	}
	if !raw && has(16) {
		add(17, func() program.Condition {
			return program.Condition{Field: program.State, Names: []string{pick(m, "new", "untracked")}}
		})
	}
	return out
}

func (m *maker) actions(raw, main bool, verdicts []program.Action) []program.Action {
	var out []program.Action
	if m.IntN(8) > 0 != raw {
		name := fmt.Sprintf("rule_%d", m.lines)
		m.program.Counters = append(m.program.Counters, program.Counter{Name: name})
		out = append(out, program.Count{Counter: name})
	}
	switch m.IntN(60) {
	case 0:
		out = append(out, program.Log{Prefix: "x", Rate: program.Rate{Packets: 1, Per: 1000, Burst: 5}})
	case 1:
		out = append(out, program.SetMark{Value: pick[uint32](m, 1, 2), Mask: 0xffffffff})
	case 2:
		out = append(out, program.Limit{Name: "limit", Rate: program.Rate{Packets: 1, Per: 1000, Burst: 5}})
	}
	if raw && m.IntN(6) > 0 {
		out = append(out, program.NoTrack{})
	}
	switch m.IntN(30) {
	case 0:
		if len(out) > 0 {
			return out // goes on with the next rule
		}
	case 1, 2:
		if main {
			return append(out, pick[program.Action](m, program.Jump{Chain: "sub"}, program.Jump{Chain: "sub2"}, program.Goto{Chain: "sub"}))
		}
	}
	return append(out, pick(m, verdicts...))
}

// make makes a program with rules that differ in few fields.
func (m *maker) make(rules int) *program.Program {
	p := &program.Program{
		Hooks: []program.Hook{
			{Kind: program.Prerouting, Phase: program.Raw, Default: program.Accept, Chain: "raw"},
			{Kind: program.Input, Phase: program.Filter, Default: pick(m, program.Accept, program.Drop), Chain: "input"},
		},
		Chains: []program.Chain{{Name: "raw"}, {Name: "input"}, {Name: "rules"}, {Name: "sub"}, {Name: "sub2"}},
		Sets: []program.Set{
			{ID: "office", Key: []program.Field{program.Source}, Life: program.Static, Addresses: addrset.FromPrefixes(netip.MustParsePrefix("192.0.2.0/29"), netip.MustParsePrefix("2001:db8::/64"))},
			{ID: "large", Key: []program.Field{program.Source}, Life: program.Static, Addresses: many()},
			{ID: "living", Key: []program.Field{program.Source}, Life: program.Living, Addresses: addrset.FromPrefixes(netip.MustParsePrefix("192.0.2.2/32"))},
		},
	}
	m.program = p
	// Few verdicts make rules that merge to sets, many those that merge to maps.
	verdicts := []program.Action{program.Accept, program.Drop, program.Reject, program.Return}[:1+m.IntN(4)]
	fill := func(chain string, n int, raw, main bool, stage program.Stage) {
		c := p.Chain(chain)
		shapes := m.shapes()
		for range n {
			m.lines++
			r := program.Rule{Stage: stage, Match: m.match(pick(m, shapes...), raw), Origin: program.Origin{File: "policy.yaml", Line: m.lines}}
			r.Actions = m.actions(raw, main, verdicts)
			c.Rules = append(c.Rules, r)
			if m.IntN(10) == 0 { // the same line in another way
				r.Match = m.match(pick(m, shapes...), raw)
				c.Rules = append(c.Rules, r)
			}
		}
	}
	fill("raw", rules/2, true, false, program.StageTrack)
	fill("rules", rules, false, true, "")
	fill("sub", 2, false, false, "")
	fill("sub2", 2, false, false, "")
	p.Chain("input").Rules = []program.Rule{{Stage: program.StageRules, Actions: []program.Action{program.Goto{Chain: "rules"}}}}
	return p
}

// many is enough for a large set.
func many() addrset.Set {
	var b addrset.Builder
	for i := range largeSet {
		b.AddAddr(netip.AddrFrom4([4]byte{192, 0, 2, byte(2 * i)}))
	}
	return b.Set()
}

// edge is an address in or beside what the rules ask for.
func (m *maker) edge(four bool) netip.Addr {
	for {
		r, err := addrset.ParseRange(pick(m, append(slices.Clone(someAddresses), someRanges...)...))
		if err != nil {
			panic(err)
		}
		a := pick(m, r.From, r.From, r.To, r.From.Prev(), r.To.Next(), netip.AddrFrom4([4]byte{192, 0, 2, byte(m.IntN(32))}))
		if a.Is4() == four {
			return a
		}
	}
}

func (m *maker) packet() packet.Packet {
	four := m.IntN(3) > 0
	port := func() uint16 { return uint16(pick(m, somePorts...)) + uint16(m.IntN(3)*m.IntN(2)) }
	return packet.Packet{
		In: pick(m, "eth0", "eth1", "wan"), Source: m.edge(four), Destination: m.edge(four),
		Protocol: pick[uint8](m, 6, 6, 17, 47), SourcePort: port(), Port: port(), Mark: uint32(m.IntN(3)),
		DestinationLocal: packet.Yes, SourceLocal: packet.No, Length: 60, HopLimit: 64, Owner: -1,
	}
}

// outcome is everything that a program does to a packet.
func outcome(p *program.Program, pkt packet.Packet) string {
	r := reach.Evaluate(p, pkt, reach.In)
	done := slices.Clone(r.Done)
	slices.Sort(done)
	who := "the default"
	if r.Rule != nil && r.Rule.Origin.Line > 0 {
		who = fmt.Sprint("line ", r.Rule.Origin.Line)
	}
	return fmt.Sprintf("%s by %s at %s, mark %d, %s; %s", r.Verdict, who, r.Hook, r.Packet.Mark, r.Packet.State, strings.Join(done, "; "))
}

// same holds two programs to the same outcome for random packets.
func (m *maker) same(t *testing.T, before, after *program.Program, packets int) {
	t.Helper()
	for range packets {
		pkt := m.packet()
		want, got := outcome(before, pkt), outcome(after, pkt)
		if want != got {
			t.Fatalf("packet %+v\nbefore: %s\nafter:  %s\n%s\n--- after\n%s", pkt, want, got, before.Text(), after.Text())
		}
	}
}

// copyOf is deep enough for passes, which make slices again that they change.
func copyOf(p *program.Program) *program.Program {
	out := *p
	out.Hooks, out.Sets, out.Counters = slices.Clone(p.Hooks), slices.Clone(p.Sets), slices.Clone(p.Counters)
	for i := range out.Sets {
		out.Sets[i].Elements = slices.Clone(p.Sets[i].Elements)
	}
	out.Chains = slices.Clone(p.Chains)
	for i := range out.Chains {
		rules := slices.Clone(p.Chains[i].Rules)
		for j := range rules {
			rules[j].Match, rules[j].Actions = slices.Clone(rules[j].Match), slices.Clone(rules[j].Actions)
		}
		out.Chains[i].Rules = rules
	}
	return &out
}
