package reach

import (
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"testing"

	"sluice/internal/base/addrset"
	"sluice/internal/base/packet"
	"sluice/internal/program"
)

func addr(s string) netip.Addr { return netip.MustParseAddr(s) }

func ranges(from, to string) []addrset.Range {
	return []addrset.Range{{From: addr(from), To: addr(to)}}
}

func numbers(n ...uint64) []program.NumberRange {
	var out []program.NumberRange
	for _, v := range n {
		out = append(out, program.NumberRange{From: v, To: v})
	}
	return out
}

func rule(line int, text string, match []program.Condition, actions ...program.Action) program.Rule {
	return program.Rule{Match: match, Actions: actions, Origin: program.Origin{File: "policy.yaml", Line: line, Text: text}}
}

var ssh = []program.Condition{
	{Field: program.Protocol, Numbers: numbers(6)},
	{Field: program.Port, Numbers: numbers(22)},
}

// server is a program with a ban before tracking, a limit, an interface, and a
// redirect.
func server(rules ...program.Rule) *program.Program {
	return &program.Program{
		Hooks: []program.Hook{
			{Kind: program.Prerouting, Phase: program.Raw, Default: program.Accept, Chain: "prerouting_raw"},
			{Kind: program.Prerouting, Phase: program.NAT, Default: program.Accept, Chain: "prerouting_nat"},
			{Kind: program.Input, Phase: program.Filter, Default: program.Drop, Chain: "input"},
			{Kind: program.Forward, Phase: program.Filter, Default: program.Drop, Chain: "forward"},
		},
		Chains: []program.Chain{
			{Name: "prerouting_raw", Rules: []program.Rule{
				rule(1, "ban", []program.Condition{{Field: program.Source, Set: "banned"}}, program.Drop),
				rule(2, "bypass", []program.Condition{{Field: program.Port, Numbers: numbers(80)}}, program.NoTrack{}),
			}},
			{Name: "prerouting_nat", Rules: []program.Rule{
				rule(3, "redirect tcp/8080", []program.Condition{{Field: program.Protocol, Numbers: numbers(6)}, {Field: program.Port, Numbers: numbers(8080)}},
					program.DNAT{To: addr("10.0.0.5"), Port: 80}),
			}},
			{Name: "input", Rules: append([]program.Rule{
				rule(4, "established", []program.Condition{{Field: program.State, Names: []string{"established", "related"}}}, program.Accept),
			}, rules...)},
			{Name: "forward", Rules: []program.Rule{
				rule(9, "to the server", []program.Condition{
					{Field: program.Destination, Addresses: ranges("10.0.0.5", "10.0.0.5")},
					{Field: program.Status, Names: []string{"dnat"}},
					{Field: program.OriginalPort, Numbers: numbers(8080)},
				}, program.Accept),
			}},
			{Name: "sub", Rules: []program.Rule{
				rule(20, "back", []program.Condition{{Field: program.Port, Numbers: numbers(23)}}, program.Return),
				rule(21, "sub", nil, program.Accept),
			}},
		},
		Sets: []program.Set{
			{ID: "banned", Key: []program.Field{program.Source}, Life: program.Living, Addresses: addrset.Of(
				addrset.Range{From: addr("198.51.100.0"), To: addr("198.51.100.255")},
				addrset.Range{From: addr("2001:db8:bad::"), To: addr("2001:db8:bad::ff")},
			)},
			{ID: "recent", Key: []program.Field{program.Source}, Life: program.Dynamic},
			{ID: "ends", Key: []program.Field{program.Destination, program.Port}, Life: program.Static, Elements: []program.Element{
				{Parts: []program.Value{{Addresses: ranges("203.0.113.1", "203.0.113.1")[0]}, {Numbers: program.NumberRange{From: 443, To: 443}}}},
			}},
		},
	}
}

func syn(from, to string, port uint16) packet.Packet {
	return packet.Packet{
		In: "eth0", Source: addr(from), Destination: addr(to), Protocol: packet.TCP, SourcePort: 40000, Port: port,
		Flags: packet.SYN, DestinationLocal: packet.Yes, SourceLocal: packet.No, Owner: -1,
	}
}

func TestEvaluate(t *testing.T) {
	const here = "203.0.113.1"
	tests := []struct {
		name    string
		rules   []program.Rule
		packet  packet.Packet
		verdict program.Verdict
		by      string // in Describe
		doubt   string // "": certain
		assumed string
	}{
		{name: "default", packet: syn("192.0.2.1", here, 22), verdict: program.Drop, by: "default of input"},
		{name: "rule", rules: []program.Rule{rule(5, "allow ssh", ssh, program.Accept)}, packet: syn("192.0.2.1", here, 22), verdict: program.Accept},
		{name: "other port", rules: []program.Rule{rule(5, "allow ssh", ssh, program.Accept)}, packet: syn("192.0.2.1", here, 23), verdict: program.Drop, by: "default"},
		{name: "ban before the rules", rules: []program.Rule{rule(5, "allow ssh", ssh, program.Accept)}, packet: syn("198.51.100.7", here, 22), verdict: program.Drop, by: "policy.yaml:1: ban"},
		{name: "ban IPv6", rules: []program.Rule{rule(5, "allow ssh", ssh, program.Accept)}, packet: syn("2001:db8:bad::7", "2001:db8::1", 22), verdict: program.Drop, by: "policy.yaml:1"},
		{name: "reject names its rule", rules: []program.Rule{rule(6, "reject ssh", ssh, program.Reject)}, packet: syn("192.0.2.1", here, 22), verdict: program.Reject, by: "policy.yaml:6: reject ssh"},
		{name: "limit holds", rules: []program.Rule{rule(5, "allow ssh limit", ssh, program.Limit{Name: "l"}, program.Accept)}, packet: syn("192.0.2.1", here, 22), verdict: program.Accept, assumed: "policy.yaml:5"},
		{
			name: "opaque decides", rules: []program.Rule{rule(5, "", []program.Condition{{Field: program.Opaque, Text: "meta skuid 7"}}, program.Accept)},
			packet: syn("192.0.2.1", here, 22), verdict: program.Drop, doubt: "meta skuid 7",
		},
		{
			name:   "opaque does not matter",
			rules:  []program.Rule{rule(5, "", []program.Condition{{Field: program.Opaque, Text: "x"}}, program.Accept), rule(6, "allow ssh", ssh, program.Accept)},
			packet: syn("192.0.2.1", here, 22), verdict: program.Accept,
		},
		{
			name: "one question has one answer", rules: []program.Rule{
				rule(5, "", []program.Condition{{Field: program.InInterface, Names: []string{"wan"}}}, program.Accept),
				rule(6, "", []program.Condition{{Field: program.InInterface, Names: []string{"wan"}, Not: true}}, program.Accept),
			},
			packet:  func() packet.Packet { p := syn("192.0.2.1", here, 22); p.In = ""; return p }(),
			verdict: program.Accept,
		},
		{name: "wildcard interface", rules: []program.Rule{rule(5, "", []program.Condition{{Field: program.InInterface, Names: []string{"eth*"}}}, program.Accept)}, packet: syn("192.0.2.1", here, 22), verdict: program.Accept},
		{name: "no outgoing interface at input", rules: []program.Rule{rule(5, "", []program.Condition{{Field: program.OutInterface, Names: []string{"eth0"}}}, program.Accept)}, packet: syn("192.0.2.1", here, 22), verdict: program.Drop, by: "default"},
		{name: "no outgoing interface at input is none of any name", rules: []program.Rule{rule(5, "", []program.Condition{{Field: program.OutInterface, Names: []string{"eth0"}, Not: true}}, program.Accept)}, packet: syn("192.0.2.1", here, 22), verdict: program.Accept},
		{name: "negated set", rules: []program.Rule{rule(5, "", []program.Condition{{Field: program.Source, Set: "banned", Not: true}}, program.Accept)}, packet: syn("192.0.2.1", here, 22), verdict: program.Accept},
		{name: "tuple", rules: []program.Rule{rule(5, "", []program.Condition{{Field: program.Destination, Set: "ends", SetKey: []program.Field{program.Destination, program.Port}}}, program.Accept)}, packet: syn("192.0.2.1", here, 443), verdict: program.Accept},
		{name: "tuple, other port", rules: []program.Rule{rule(5, "", []program.Condition{{Field: program.Destination, Set: "ends", SetKey: []program.Field{program.Destination, program.Port}}}, program.Accept)}, packet: syn("192.0.2.1", here, 444), verdict: program.Drop},
		{name: "dynamic", rules: []program.Rule{rule(5, "", []program.Condition{{Field: program.Source, Set: "recent"}}, program.Drop), rule(6, "", nil, program.Accept)}, packet: syn("192.0.2.1", here, 22), verdict: program.Accept, assumed: "recent"},
		{name: "untracked is not new", rules: []program.Rule{rule(5, "", []program.Condition{{Field: program.State, Names: []string{"new"}}}, program.Accept)}, packet: syn("192.0.2.1", here, 80), verdict: program.Drop},
		{name: "jump and fall through", rules: []program.Rule{rule(5, "", ssh, program.Jump{Chain: "sub"})}, packet: syn("192.0.2.1", here, 22), verdict: program.Accept},
		{name: "jump and return", rules: []program.Rule{rule(5, "", nil, program.Jump{Chain: "sub"}), rule(6, "", nil, program.Reject)}, packet: syn("192.0.2.1", here, 23), verdict: program.Reject, by: "policy.yaml:6"},
		{name: "goto does not come back", rules: []program.Rule{rule(5, "", nil, program.Goto{Chain: "sub"}), rule(6, "", nil, program.Accept)}, packet: syn("192.0.2.1", here, 23), verdict: program.Drop, by: "default"},
		{name: "redirected is forwarded", packet: syn("192.0.2.1", here, 8080), verdict: program.Accept},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			r := Evaluate(server(test.rules...), test.packet, In)
			if r.Verdict != test.verdict {
				t.Errorf("verdict %s, want %s (%s)", r.Verdict, test.verdict, r.Describe())
			}
			if !strings.Contains(r.Describe(), test.by) {
				t.Errorf("decided by %q, want %q", r.Describe(), test.by)
			}
			if r.Certain != (test.doubt == "") || !strings.Contains(strings.Join(r.Doubts, "\n"), test.doubt) {
				t.Errorf("certain %v, doubts %q, want %q", r.Certain, r.Doubts, test.doubt)
			}
			if !strings.Contains(strings.Join(r.Assumed, "\n"), test.assumed) {
				t.Errorf("assumed %q, want %q", r.Assumed, test.assumed)
			}
		})
	}
}

// TestBounded holds the search to its bound: each rule asks another question.
func TestBounded(t *testing.T) {
	var rules []program.Rule
	for i := range 40 {
		rules = append(rules, rule(i+10, "", []program.Condition{{Field: program.Opaque, Text: "x"}, {Field: program.Opaque, Text: strings.Repeat("y", i+1)}}, program.Accept))
	}
	if r := Evaluate(server(rules...), syn("192.0.2.1", "203.0.113.1", 22), In); r.Certain {
		t.Errorf("certain of %s by %s", r.Verdict, r.Describe())
	}
}

func TestMapPrefix(t *testing.T) {
	tests := []struct{ address, from, to, want string }{
		{"198.51.100.17", "198.51.100.16/28", "10.20.1.0/28", "10.20.1.1"},
		{"198.51.100.47", "198.51.100.32/27", "10.20.1.64/27", "10.20.1.79"},
		{"198.51.100.1", "198.51.100.16/28", "10.20.1.0/28", "198.51.100.1"},
		{"2001:db8:0:5::7", "2001:db8::/60", "fd00:0:0:10::/60", "fd00:0:0:15::7"},
		{"192.0.2.9", "0.0.0.0/0", "0.0.0.0/0", "192.0.2.9"},
		{"192.0.2.9", "192.0.2.9/32", "192.0.2.10/32", "192.0.2.10"},
	}
	for _, test := range tests {
		got := mapPrefix(addr(test.address), netip.MustParsePrefix(test.from), netip.MustParsePrefix(test.to))
		if got != addr(test.want) {
			t.Errorf("%s from %s to %s: %s, want %s", test.address, test.from, test.to, got, test.want)
		}
	}
}

// TestVerdictMap: the element that the packet's key is decides, through a chain
// too; without an element the next rule is asked.
func TestVerdictMap(t *testing.T) {
	element := func(address string, port uint64, verdict program.Action) program.Element {
		return program.Element{Parts: []program.Value{{Addresses: ranges(address, address)[0]}, {Numbers: program.NumberRange{From: port, To: port}}}, Verdict: verdict}
	}
	p := &program.Program{
		Hooks: []program.Hook{{Kind: program.Input, Phase: program.Filter, Default: program.Drop, Chain: "input"}},
		Chains: []program.Chain{
			{Name: "input", Rules: []program.Rule{
				{Actions: []program.Action{program.VerdictMap{Set: "map", Key: []program.Field{program.Source, program.Port}}}},
				{Match: []program.Condition{{Field: program.Port, Numbers: []program.NumberRange{{From: 25, To: 25}}}}, Actions: []program.Action{program.Accept}},
			}},
			{Name: "sub", Rules: []program.Rule{{Match: []program.Condition{{Field: program.Source, Addresses: ranges("192.0.2.9", "192.0.2.9")}}, Actions: []program.Action{program.Accept}}}},
		},
		Sets: []program.Set{{ID: "map", Key: []program.Field{program.Source, program.Port}, Life: program.Static, Verdicts: true, Elements: []program.Element{
			element("192.0.2.1", 22, program.Accept), element("192.0.2.2", 25, program.Drop), element("192.0.2.9", 80, program.Jump{Chain: "sub"}), element("192.0.2.8", 25, program.Goto{Chain: "sub"}),
		}}},
	}
	if err := p.Check(); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		from string
		port uint16
		want program.Verdict
	}{
		{"192.0.2.1", 22, program.Accept},
		{"192.0.2.1", 23, program.Drop},
		{"192.0.2.2", 25, program.Drop},
		{"192.0.2.3", 25, program.Accept}, // no element: the rule behind
		{"192.0.2.9", 80, program.Accept}, // by the chain
		{"192.0.2.8", 25, program.Drop},   // a goto does not come back
	} {
		if got := Evaluate(p, syn(c.from, "203.0.113.1", c.port), In); got.Verdict != c.want {
			t.Errorf("%s to port %d: %s, want %s", c.from, c.port, got.Verdict, c.want)
		}
	}
}

// TestManyAsked gives up what nobody can follow, and says so: 14 chains that each call the
// next eight times are 112 rules, and a packet is asked by 8^14.
func TestManyAsked(t *testing.T) {
	p := &program.Program{Hooks: []program.Hook{{Kind: program.Input, Phase: program.Filter, Default: program.Accept, Chain: "0"}}}
	const deep = 14
	var match []program.Condition
	for i := range deep {
		c := program.Chain{Name: strconv.Itoa(i)}
		for range 8 {
			c.Rules = append(c.Rules, program.Rule{Match: match, Actions: []program.Action{program.Jump{Chain: strconv.Itoa(i + 1)}}})
		}
		p.Chains = append(p.Chains, c)
	}
	p.Chains = append(p.Chains, program.Chain{Name: strconv.Itoa(deep)})
	pkt := packet.Packet{Source: addr("192.0.2.1"), Destination: addr("198.51.100.1"), Protocol: packet.TCP, Port: 22}
	if got := Evaluate(p, pkt, In); got.Certain || len(got.Doubts) != 1 || !strings.Contains(got.Doubts[0], "4194304 rules") {
		t.Errorf("%+v", got)
	}
	asked := 0
	m := &Meter{Base: func(program.Hook) {}, Rule: func(*program.Rule) { asked++ }, Order: func(*program.Rule) []int { return nil }, Done: func(program.Action) {}}
	if Measure(p, pkt, In, m); asked != maxAsked {
		t.Errorf("%d rules are told of", asked)
	}
	// With what is not known, not all ways are tried, and the first is what is said.
	p.Chains = p.Chains[:1]
	p.Chains[0].Rules = []program.Rule{}
	for i := range 20 {
		p.Chains[0].Rules = append(p.Chains[0].Rules, rule(i, "", []program.Condition{{Field: program.Length, Numbers: numbers(uint64(i))}}, program.Count{}))
	}
	p.Chains[0].Rules = append(p.Chains[0].Rules, slices.Repeat([]program.Rule{rule(0, "", nil, program.Count{})}, manyAsked/20)...)
	if got := Evaluate(p, pkt, In); got.Certain || got.Verdict != program.Accept || len(got.Doubts) != 20 {
		t.Errorf("%t %v %v", got.Certain, got.Verdict, got.Doubts)
	}
}

// TestStateBeforeTracking: what comes before connection tracking sees no connection, though the packet is of one.
func TestStateBeforeTracking(t *testing.T) {
	for phase, want := range map[program.Phase]program.Verdict{program.Raw: program.Drop, program.Mangle: program.Accept} {
		p := &program.Program{
			Hooks: []program.Hook{{Kind: program.Prerouting, Phase: phase, Default: program.Drop, Chain: "c"}},
			Chains: []program.Chain{{Name: "c", Rules: []program.Rule{
				rule(1, "established", []program.Condition{{Field: program.State, Names: []string{"established"}}}, program.Accept),
				rule(2, "reply", []program.Condition{{Field: program.Direction, Names: []string{"reply"}}}, program.Accept),
			}}},
		}
		pkt := packet.Packet{In: "eth0", Source: addr("192.0.2.1"), Destination: addr("192.0.2.2"), Protocol: 6, State: packet.Established, Reply: true}
		if got := Evaluate(p, pkt, In); got.Verdict != want || !got.Certain {
			t.Errorf("%s: %+v", phase, got)
		}
	}
}

// TestDeepJumps: who jumps deeper than nf_tables may, as legacy iptables can, is not said to drop.
func TestDeepJumps(t *testing.T) {
	p := &program.Program{Hooks: []program.Hook{{Kind: program.Input, Phase: program.Filter, Default: program.Accept, Chain: "0"}}}
	const deep = 10_000
	for i := range deep {
		p.Chains = append(p.Chains, program.Chain{Name: strconv.Itoa(i), Rules: []program.Rule{{Actions: []program.Action{program.Jump{Chain: strconv.Itoa(i + 1)}}}}})
	}
	p.Chains = append(p.Chains, program.Chain{Name: strconv.Itoa(deep)})
	pkt := packet.Packet{Source: addr("192.0.2.1"), Destination: addr("198.51.100.1"), Protocol: packet.TCP, Port: 22}
	if got := Evaluate(p, pkt, In); got.Certain || len(got.Doubts) != 1 || !strings.Contains(got.Doubts[0], "16 jumps") {
		t.Errorf("%+v", got)
	}
	p.Hooks[0].Chain = strconv.Itoa(deep - maxDepth + 1)
	if got := Evaluate(p, pkt, In); !got.Certain || got.Verdict != program.Accept {
		t.Errorf("%+v", got)
	}
}
