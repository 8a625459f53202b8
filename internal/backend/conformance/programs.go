package conformance

import (
	"net/netip"

	"sluice/internal/base/addrset"
	"sluice/internal/program"
)

// Named is a program of the suite; Make makes it again.
type Named struct {
	Name string
	Make func() *program.Program
}

// Programs are what every backend has to carry or refuse. They grow from "what a host
// needs at the least" to sets of both families, bans and limits.
func Programs() []Named {
	return []Named{
		{"closed host", closed},
		{"open host with bans", bans},
		{"limits and logs", limits},
		{"many ranges", many},
		{"router", router},
	}
}

func is(f program.Field, numbers ...uint64) program.Condition {
	c := program.Condition{Field: f}
	for _, n := range numbers {
		c.Numbers = append(c.Numbers, program.NumberRange{From: n, To: n})
	}
	return c
}

func called(f program.Field, names ...string) program.Condition {
	return program.Condition{Field: f, Names: names}
}

func in(f program.Field, set string) program.Condition { return program.Condition{Field: f, Set: set} }

func at(line int) program.Origin {
	return program.Origin{File: "policy.yaml", Line: line, Column: 7, Text: "a rule"}
}

func span(texts ...string) addrset.Set {
	var out addrset.Builder
	for i := 0; i < len(texts); i += 2 {
		out.AddRange(addrset.Range{From: netip.MustParseAddr(texts[i]), To: netip.MustParseAddr(texts[i+1])})
	}
	return out.Set()
}

var (
	source      = []program.Field{program.Source}
	established = program.Rule{Match: []program.Condition{called(program.State, "established", "related")}, Actions: []program.Action{program.Accept}}
)

func closed() *program.Program {
	return &program.Program{
		Owner: "sluice",
		Hooks: []program.Hook{{Kind: program.Input, Phase: program.Filter, Default: program.Drop, Chain: "input"}},
		Chains: []program.Chain{{Name: "input", Comment: "what input decides", Rules: []program.Rule{
			{Match: []program.Condition{called(program.InInterface, "lo")}, Actions: []program.Action{program.Accept}},
			established,
			{ID: "icmp", Match: []program.Condition{is(program.Protocol, 1), is(program.ICMPType, 3, 11, 12)}, Actions: []program.Action{program.Accept}, Origin: at(3)},
			{ID: "web", Match: []program.Condition{is(program.Protocol, 6), is(program.Port, 80, 443)}, Actions: []program.Action{program.Count{Counter: "web"}, program.Accept}, Origin: at(4)},
		}}},
		Counters: []program.Counter{{Name: "web", Origin: at(4)}},
	}
}

func bans() *program.Program {
	return &program.Program{
		Owner: "sluice",
		Hooks: []program.Hook{
			{Kind: program.Input, Phase: program.Filter, Default: program.Accept, Chain: "input"},
			{Kind: program.Output, Phase: program.Filter, Default: program.Accept, Chain: "output"},
		},
		Chains: []program.Chain{
			{Name: "input", Rules: []program.Rule{{ID: "ban", Match: []program.Condition{in(program.Source, "banned")}, Actions: []program.Action{program.Jump{Chain: "dropped"}}, Origin: at(5)}}},
			{Name: "output", Rules: []program.Rule{{ID: "ban", Match: []program.Condition{in(program.Destination, "banned")}, Actions: []program.Action{program.Goto{Chain: "dropped"}}, Origin: at(5)}}},
			{Name: "dropped", Rules: []program.Rule{{ID: "ban", Actions: []program.Action{program.Count{Counter: "ban"}, program.Drop}, Origin: at(5)}}},
		},
		Counters: []program.Counter{{Name: "ban", Origin: at(5)}},
		Sets: []program.Set{{
			ID: "banned", Key: source, Life: program.Living, Counters: true,
			Addresses: span("192.0.2.1", "192.0.2.1", "192.0.2.7", "192.0.2.7", "198.51.100.0", "198.51.100.127", "2001:db8:bad::", "2001:db8:bad:ffff:ffff:ffff:ffff:ffff", "2001:db8::5", "2001:db8::5"),
		}},
	}
}

func limits() *program.Program {
	rate := program.Rate{Packets: 6, Per: 30_000, Burst: 6}
	ssh := []program.Condition{is(program.Protocol, 6), is(program.Port, 22)}
	return &program.Program{
		Owner: "sluice",
		Hooks: []program.Hook{{Kind: program.Input, Phase: program.Filter, Default: program.Drop, Chain: "input"}},
		Chains: []program.Chain{{Name: "input", Rules: []program.Rule{
			{Match: []program.Condition{in(program.Source, "bans")}, Actions: []program.Action{program.Drop}},
			established,
			{ID: "ssh", Match: ssh, Actions: []program.Action{
				program.Limit{Name: "ssh", Rate: rate, Per: program.PerSource, Table: "sources", FullCounter: "full", Ban: "bans", BanTimeout: 600_000, NeverBan: "office"},
				program.Count{Counter: "ssh"},
				program.Log{Prefix: "ssh", Rate: rate},
				program.Accept,
			}, Origin: at(6)},
			{ID: "mail", Match: []program.Condition{is(program.Protocol, 6), is(program.Port, 25)}, Actions: []program.Action{
				program.ConnectionLimit{Name: "mail", Max: 20, Per: program.PerSource, Table: "connections", FullCounter: "full"}, program.Accept,
			}, Origin: at(7)},
			{ID: "echo", Match: []program.Condition{is(program.Protocol, 58), is(program.ICMPv6Type, 128)}, Actions: []program.Action{program.Limit{Name: "echo", Rate: rate}, program.Accept}, Origin: at(8)},
			{Actions: []program.Action{program.Log{Prefix: "in", Rate: rate}, program.Reject}, Origin: at(9)},
		}}},
		Counters: []program.Counter{{Name: "ssh"}, {Name: "full"}},
		Sets: []program.Set{
			{ID: "sources", Key: source, Life: program.Dynamic, Size: 1024, Timeout: 60_000},
			{ID: "connections", Key: source, Life: program.Dynamic, Size: 1024},
			{ID: "bans", Key: source, Life: program.Dynamic, Size: 1024, Timeout: 600_000},
			{ID: "office", Key: source, Life: program.Static, Addresses: span("203.0.113.0", "203.0.113.255")},
		},
	}
}

// many has a set that takes several transactions to fill.
func many() *program.Program {
	p := closed()
	served := program.Set{ID: "served", Key: source, Life: program.Static, Origin: at(2)}
	var b addrset.Builder
	for i := range 5000 {
		from := netip.AddrFrom4([4]byte{10, byte(i >> 6), byte(i << 2), 0})
		to := netip.AddrFrom4([4]byte{10, byte(i >> 6), byte(i << 2), byte(i)})
		b.AddRange(addrset.Range{From: from, To: to})
	}
	served.Addresses = b.Set().Union(span("2001:db8::", "2001:db8::ffff", "2001:db8:5::", "2001:db8:7:ffff:ffff:ffff:ffff:ffff"))
	p.Sets = append(p.Sets, served)
	rules := p.Chains[0].Rules
	rules[len(rules)-1].Match = append(rules[len(rules)-1].Match, in(program.Source, "served"))
	return p
}

func router() *program.Program {
	return &program.Program{
		Owner: "sluice",
		Hooks: []program.Hook{
			{Kind: program.Forward, Phase: program.Filter, Default: program.Drop, Chain: "forward"},
			{Kind: program.Prerouting, Phase: program.NAT, Default: program.Accept, Chain: "prerouting_nat"},
			{Kind: program.Postrouting, Phase: program.NAT, Default: program.Accept, Chain: "postrouting_nat"},
			{Kind: program.Prerouting, Phase: program.Raw, Default: program.Accept, Chain: "prerouting_raw"},
		},
		Chains: []program.Chain{
			{Name: "forward", Rules: []program.Rule{
				{Match: []program.Condition{is(program.Protocol, 6), {Field: program.TCPFlags, Numbers: []program.NumberRange{{From: 2, To: 2}}, Mask: 6}}, Actions: []program.Action{program.ClampMSS{}}},
				established,
				{ID: "out", Match: []program.Condition{called(program.InInterface, "wg*", "lan0"), called(program.OutInterface, "wan0")}, Actions: []program.Action{program.Count{Counter: "out"}, program.Accept}, Origin: at(3)},
			}},
			{Name: "prerouting_nat", Rules: []program.Rule{{
				Match:   []program.Condition{is(program.Protocol, 6), is(program.Port, 8080), called(program.DestinationType, "local")},
				Actions: []program.Action{program.DNAT{To: netip.MustParseAddr("10.20.0.5"), Port: 80}}, Origin: at(4),
			}}},
			{Name: "postrouting_nat", Rules: []program.Rule{{Match: []program.Condition{called(program.OutInterface, "wan0"), is(program.Family, 4)}, Actions: []program.Action{program.Masquerade{}}, Origin: at(5)}}},
			{Name: "prerouting_raw", Rules: []program.Rule{{Match: []program.Condition{is(program.Protocol, 17), is(program.Port, 443)}, Actions: []program.Action{program.NoTrack{}}, Origin: at(6)}}},
		},
		Counters: []program.Counter{{Name: "out"}},
	}
}
