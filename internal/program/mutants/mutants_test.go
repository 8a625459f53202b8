package mutants

import (
	"net/netip"
	"testing"

	"sluice/internal/base/addrset"
	"sluice/internal/base/packet"
	"sluice/internal/program"
	"sluice/internal/prove/reach"
)

func addressRange(from, to string) []addrset.Range {
	return []addrset.Range{{From: netip.MustParseAddr(from), To: netip.MustParseAddr(to)}}
}

func tcp(port uint64, actions ...program.Action) program.Rule {
	return program.Rule{ID: "x", Origin: program.Origin{Line: 1}, Actions: actions, Match: []program.Condition{
		{Field: program.Protocol, Numbers: []program.NumberRange{{From: 6, To: 6}}},
		{Field: program.Port, Numbers: []program.NumberRange{{From: port, To: port}}},
	}}
}

func example() *program.Program {
	office := tcp(22, program.Accept)
	office.Match = append(office.Match, program.Condition{Field: program.Source, Addresses: append(addressRange("203.0.113.0", "203.0.113.127"), addressRange("2001:db8::", "2001:db8::ffff")...)})
	return &program.Program{
		Hooks: []program.Hook{{Kind: program.Input, Phase: program.Filter, Default: program.Drop, Chain: "input"}},
		Chains: []program.Chain{
			{Name: "input", Rules: []program.Rule{
				{Stage: program.StageState, Match: []program.Condition{{Field: program.State, Names: []string{"established", "related"}}}, Actions: []program.Action{program.Accept}},
				{Stage: program.StageRules, Actions: []program.Action{program.Goto{Chain: "rules"}}},
			}},
			{Name: "rules", Rules: []program.Rule{
				office, tcp(22, program.Reject), tcp(80, program.Accept),
				{Actions: []program.Action{program.Drop}, Origin: program.Origin{Line: 9}},
			}},
		},
	}
}

// Each pass changes the example's meaning for the packet that is named, and
// leaves the copy's rules alone.
func TestPassesAreWrong(t *testing.T) {
	packets := map[string]packet.Packet{
		"drop-last-rule":         {Source: netip.MustParseAddr("192.0.2.1"), Port: 80},
		"swap-overlapping-rules": {Source: netip.MustParseAddr("203.0.113.1"), Port: 22},
		"widen-prefix":           {Source: netip.MustParseAddr("203.0.113.128"), Port: 22},
		"forget-ipv6":            {Source: netip.MustParseAddr("2001:db8::1"), Port: 22},
		"established-as-new":     {Source: netip.MustParseAddr("192.0.2.1"), Port: 23, State: packet.Established},
	}
	for _, pass := range Passes {
		p := packets[pass.Name]
		p.In, p.Protocol, p.Owner, p.Destination = "eth0", packet.TCP, -1, netip.MustParseAddr("198.51.100.1")
		if p.Source.Is6() {
			p.Destination = netip.MustParseAddr("2001:db8:100::1")
		}
		right, wrong := example(), example()
		text := right.Text()
		if !pass.Run(wrong) {
			t.Errorf("%s found nothing to do", pass.Name)
			continue
		}
		if err := wrong.Check(); err != nil {
			t.Errorf("%s: %v", pass.Name, err)
		}
		before, after := reach.Evaluate(right, p, reach.In), reach.Evaluate(wrong, p, reach.In)
		if before.Verdict == after.Verdict {
			t.Errorf("%s: still %s\n%s", pass.Name, after.Verdict, wrong.Text())
		}
		copied := *right
		copied.Chains = append([]program.Chain(nil), right.Chains...)
		pass.Run(&copied)
		if right.Text() != text {
			t.Errorf("%s writes into what it was given", pass.Name)
		}
		if empty := (&program.Program{}); pass.Run(empty) {
			t.Errorf("%s changed an empty program", pass.Name)
		}
	}
}

// A swap needs a packet that both rules want, and that no rule before took.
func TestSwapLeavesWhatDoesNotMatter(t *testing.T) {
	apart := example()
	apart.Chains[1].Rules = []program.Rule{tcp(22, program.Accept), tcp(80, program.Drop), tcp(443, program.Accept)}
	if swapOverlapping(apart) {
		t.Errorf("swapped rules without a packet in common:\n%s", apart.Text())
	}
	taken := example()
	taken.Chains[1].Rules = []program.Rule{tcp(22, program.Drop), tcp(22, program.Accept), tcp(22, program.Reject)}
	swapOverlapping(taken)
	if verdict(&taken.Chains[1].Rules[0]) != program.Accept {
		t.Errorf("the first of three was not swapped:\n%s", taken.Text())
	}
}
