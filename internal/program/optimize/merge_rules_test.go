package optimize

import (
	"fmt"
	"net/netip"
	"testing"

	"sluice/internal/base/addrset"
	"sluice/internal/base/testseed"
	"sluice/internal/program"
)

// Each pass, and all of them in turn, leaves verdict, tracking, marks, counters
// and log of every packet as they were.
func TestMergingAgainstPackets(t *testing.T) {
	m := newMaker(t)
	merged := map[string]int{}
	for range testseed.Rounds(60, 120) {
		p := m.make(10 + m.IntN(50))
		for _, names := range [][]string{{"rules-to-sets"}, {"verdict-maps"}, {"concatenations"}, {"rules-to-sets", "verdict-maps", "concatenations", "factor"}, {"factor"}} {
			after := copyOf(p)
			for _, name := range names {
				pass := Named(name)
				if pass == nil {
					t.Fatalf("no pass %s", name)
				}
				w := &work{Program: after, options: &Options{}}
				pass.run(w)
				if len(w.did) > 0 {
					merged[name]++
				}
				if err := after.Check(); err != nil {
					t.Fatalf("pass %s left a broken program: %v\n%s", name, err, after.Text())
				}
			}
			m.same(t, p, after, 60)
		}
	}
	t.Log("programs that passes changed:", merged)
	for _, name := range []string{"rules-to-sets", "verdict-maps", "concatenations", "factor"} {
		if merged[name] < 3 {
			t.Errorf("pass %s found something to do in %d programs of 120", name, merged[name])
		}
	}
}

// counted gives n rules of a policy, each with a counter of its own.
func counted(p *program.Program, n int, rule func(i int) (match []program.Condition, verdict program.Action)) []program.Rule {
	var out []program.Rule
	for i := range n {
		match, verdict := rule(i)
		line := len(p.Counters) + 10
		counter := fmt.Sprintf("input_%04d", line)
		p.Counters = append(p.Counters, program.Counter{Name: counter})
		out = append(out, program.Rule{
			ID: counter, Match: match, Actions: []program.Action{program.Count{Counter: counter}, verdict},
			Origin: program.Origin{File: "/etc/sluice/policy.yaml", Line: line, Text: fmt.Sprintf("rule %d", line)},
		})
	}
	return out
}

func from(text string) program.Condition {
	p, err := netip.ParsePrefix(text)
	if err != nil {
		a := netip.MustParseAddr(text)
		return program.Condition{Field: program.Source, Addresses: []addrset.Range{{From: a, To: a}}}
	}
	last := p.Addr()
	for next := last; p.Contains(next); next = next.Next() {
		last = next
	}
	return program.Condition{Field: program.Source, Addresses: []addrset.Range{{From: p.Addr(), To: last}}}
}

func to(address string) program.Condition {
	c := from(address)
	c.Field = program.Destination
	return c
}

func tcp(ports ...uint64) []program.Condition {
	c := program.Condition{Field: program.Port}
	for _, n := range ports {
		c.Numbers = append(c.Numbers, program.NumberRange{From: n, To: n})
	}
	return []program.Condition{{Field: program.Protocol, Numbers: number(6)}, c}
}

// inRules is a program whose rules chain has the rules.
func inRules(rules func(p *program.Program) []program.Rule) *program.Program {
	p := &program.Program{
		Hooks:  []program.Hook{{Kind: program.Input, Phase: program.Filter, Default: program.Drop, Chain: "input"}},
		Chains: []program.Chain{{Name: "input", Rules: []program.Rule{{Stage: program.StageRules, Actions: []program.Action{program.Goto{Chain: "input_rules"}}}}}, {Name: "input_rules"}},
	}
	p.Chains[1].Rules = rules(p)
	return p
}

func TestRulesToSets(t *testing.T) {
	golden(t, "rules-to-sets", "rules-to-sets", inRules(func(p *program.Program) []program.Rule {
		bans := counted(p, 6, func(i int) ([]program.Condition, program.Action) {
			return []program.Condition{from(fmt.Sprintf("192.0.2.%d", 7*i))}, program.Drop
		})
		six := counted(p, 2, func(i int) ([]program.Condition, program.Action) {
			return []program.Condition{from(fmt.Sprintf("2001:db8::%d", i))}, program.Drop
		})
		between := counted(p, 1, func(int) ([]program.Condition, program.Action) {
			return append(tcp(22), from("203.0.113.9")), program.Accept
		})
		// The first ports share a set. The limit between them and the last one
		// is about the same packets as that.
		ports := counted(p, 4, func(i int) ([]program.Condition, program.Action) { return tcp(uint64(80 + i)), program.Accept })
		limited := counted(p, 1, func(int) ([]program.Condition, program.Action) { return tcp(443), program.Accept })
		limited[0].Actions = append([]program.Action{program.Limit{Name: "limit", Rate: program.Rate{Packets: 1, Per: 1000, Burst: 5}}}, limited[0].Actions...)
		last := counted(p, 1, func(int) ([]program.Condition, program.Action) { return tcp(443), program.Accept })
		return append(append(append(append(append(append(bans[:4:4], between...), bans[4:]...), six...), ports...), limited...), last...)
	}))
}

// TestMergedRuleSaysItsLines: of rules of several lines that became one, its comment says
// which.
func TestMergedRuleSaysItsLines(t *testing.T) {
	p := inRules(func(p *program.Program) []program.Rule {
		return counted(p, 5, func(i int) ([]program.Condition, program.Action) { return tcp(uint64(80 + 2*i)), program.Accept })
	})
	Named("rules-to-sets").run(&work{Program: p, options: &Options{}})
	if rules := p.Chain("input_rules").Rules; len(rules) != 1 || rules[0].Comment != "5 rules, policy.yaml:10 to 14" {
		t.Errorf("rules are %+v", rules)
	}
}

// Rules of one line, whose counter is one, need none in the elements.
func TestRulesToSetsOfOneCounter(t *testing.T) {
	golden(t, "rules-to-sets-one-counter", "rules-to-sets", inRules(func(p *program.Program) []program.Rule {
		rules := counted(p, 1, func(int) ([]program.Condition, program.Action) { return tcp(80), program.Accept })
		for _, name := range []string{"eth0", "eth1", "eth2", "eth3", "wg0"} {
			r := rules[0]
			r.Match = append(tcp(80), program.Condition{Field: program.InInterface, Names: []string{name}})
			rules = append(rules, r)
		}
		return rules[1:]
	}))
}

func TestVerdictMaps(t *testing.T) {
	verdicts := []program.Action{program.Accept, program.Drop, program.Reject, program.Jump{Chain: "sub"}}
	p := inRules(func(p *program.Program) []program.Rule {
		some := counted(p, 5, func(i int) ([]program.Condition, program.Action) {
			return []program.Condition{from(fmt.Sprintf("192.0.2.%d", 7+i))}, verdicts[i%4]
		})
		// Cut by the ones above, except for the jump, which may come back.
		return append(some, counted(p, 2, func(i int) ([]program.Condition, program.Action) {
			return []program.Condition{from([]string{"192.0.2.0/29", "192.0.2.0/24"}[i])}, program.Drop
		})...)
	})
	p.Chains = append(p.Chains, program.Chain{Name: "sub", Rules: counted(p, 1, func(int) ([]program.Condition, program.Action) { return tcp(22), program.Accept })})
	golden(t, "verdict-maps", "verdict-maps", p)
}

func TestConcatenations(t *testing.T) {
	golden(t, "concatenations", "concatenations", inRules(func(p *program.Program) []program.Rule {
		exact := counted(p, 5, func(i int) ([]program.Condition, program.Action) {
			return append(tcp(uint64(22+i), 443), from(fmt.Sprintf("192.0.2.%d", 7+i))), program.Accept
		})
		// With ranges: one set of addresses for each port while ports are few.
		return append(exact, counted(p, 8, func(i int) ([]program.Condition, program.Action) {
			return append(tcp(uint64(22+i/4)), from(fmt.Sprintf("198.51.100.%d/28", 16*i))), []program.Action{program.Accept, program.Drop}[i%5%2]
		})...)
	}))
	golden(t, "concatenations-ranges", "concatenations", inRules(func(p *program.Program) []program.Rule {
		return counted(p, 8, func(i int) ([]program.Condition, program.Action) {
			return append(tcp(uint64(22+i)), from(fmt.Sprintf("198.51.100.%d/28", 16*i))), program.Accept
		})
	}))
}

// A hundred services that keep no state, each at its address, are one look-up
// in each direction.
func TestConcatenationOfBypass(t *testing.T) {
	p := &program.Program{
		Hooks:  []program.Hook{{Kind: program.Prerouting, Phase: program.Raw, Default: program.Accept, Chain: "prerouting_raw"}},
		Chains: []program.Chain{{Name: "prerouting_raw"}},
	}
	for i := range 100 {
		protocol := []uint64{6, 17}[i%2]
		p.Chains[0].Rules = append(p.Chains[0].Rules, program.Rule{
			Stage: program.StageTrack, Actions: []program.Action{program.NoTrack{}}, Origin: program.Origin{File: "policy.yaml", Line: i + 1},
			Match: []program.Condition{
				{Field: program.Protocol, Numbers: number(protocol)},
				{Field: program.Port, Numbers: number(uint64(8000 + i))},
				to(fmt.Sprintf("198.51.100.%d", 1+i%20)),
				{Field: program.DestinationType, Names: []string{"local"}},
			},
		})
	}
	golden(t, "concatenations-bypass", "concatenations", p)
	if len(p.Chains[0].Rules) != 1 || p.Sets[0].Len() != 100 {
		t.Errorf("%d rules, %d elements", len(p.Chains[0].Rules), p.Sets[0].Len())
	}
}

// Without counters in elements, rules with counters of their own stay as they are.
func TestNoElementCounters(t *testing.T) {
	p := inRules(func(p *program.Program) []program.Rule {
		return counted(p, 8, func(i int) ([]program.Condition, program.Action) { return tcp(uint64(80 + i)), program.Accept })
	})
	before := p.Text()
	rulesToSets(&work{Program: p, options: &Options{NoElementCounters: true}})
	if p.Text() != before {
		t.Errorf("rules with counters were merged:\n%s", p.Text())
	}
}

// Rules that ask for a large set ask once where one of them covers the others;
// what cannot come nearer stays where it is.
func TestFactor(t *testing.T) {
	served := program.Condition{Field: program.Source, Set: "served"}
	p := inRules(func(p *program.Program) []program.Rule {
		rules := counted(p, 6, func(i int) ([]program.Condition, program.Action) {
			switch i {
			case 0:
				return append(tcp(80, 443), served), program.Accept
			case 1: // nothing to do with the others
				return []program.Condition{{Field: program.Protocol, Numbers: number(17)}, {Field: program.Port, Numbers: number(53)}}, program.Accept
			case 2:
				return append(tcp(22), served), program.Drop
			case 3:
				return []program.Condition{{Field: program.Protocol, Numbers: number(6)}, served}, program.Reject
			case 4: // no packet is asked twice for these
				return []program.Condition{{Field: program.Protocol, Numbers: number(17)}, {Field: program.Port, Numbers: number(443)}, served}, program.Accept
			}
			return []program.Condition{{Field: program.Protocol, Numbers: number(17)}, {Field: program.Port, Numbers: number(500)}, served}, program.Accept
		})
		return rules
	})
	p.Sets = []program.Set{{ID: "served", Key: []program.Field{program.Source}, Life: program.Static, Addresses: many()}}
	golden(t, "factor", "factor", p)
}

// Rules that ask for a set of thousands and decide lead to one chain of what else they
// ask for, up to where a rule writes what they read.
func TestLeadToOneChain(t *testing.T) {
	served := program.Condition{Field: program.Source, Set: "served"}
	p := inRules(func(p *program.Program) []program.Rule {
		return counted(p, 6, func(i int) ([]program.Condition, program.Action) {
			switch i {
			case 2: // others may be in between
				return []program.Condition{{Field: program.Protocol, Numbers: number(17)}, {Field: program.Port, Numbers: number(53)}}, program.Accept
			case 3: // marks, and goes on
				return []program.Condition{{Field: program.Protocol, Numbers: number(6)}}, program.SetMark{Value: 7, Mask: 0xff}
			case 5:
				return append(tcp(25), served, program.Condition{Field: program.Mark, Mask: 0xff, Numbers: number(7)}), program.Reject
			}
			return append(tcp(uint64(80+i)), served, program.Condition{Field: program.Mark, Mask: 0xff, Not: true, Numbers: number(7)}), program.Accept
		})
	})
	var b addrset.Builder
	for i := range uint32(laidOutSet) {
		b.Add4(i<<12, i<<12+5)
	}
	p.Sets = []program.Set{{ID: "served", Key: []program.Field{program.Source}, Life: program.Static, Addresses: b.Set()}}
	before := copyOf(p)
	golden(t, "factor-lead", "factor", p)
	if d := differ(before, p); len(d) > 0 {
		t.Errorf("it means something else: %v", d[0])
	}
}

// BenchmarkMerging runs all passes over 10,000 rules that differ in one or two
// fields: bans by address, services by address and port, in turn.
func BenchmarkMerging(b *testing.B) {
	for b.Loop() {
		b.StopTimer()
		p := inRules(func(p *program.Program) []program.Rule {
			return counted(p, 10_000, func(i int) ([]program.Condition, program.Action) {
				source := from(fmt.Sprintf("10.%d.%d.%d", i%7, i>>8&255, i&255))
				if i%2 == 0 {
					return []program.Condition{source}, program.Drop
				}
				return append(tcp(uint64(1024+i%5000)), source), program.Accept
			})
		})
		b.StartTimer()
		if err := Run(p, Options{}); err != nil {
			b.Fatal(err)
		}
		if n := len(p.Chain("input_rules").Rules); n > 4 {
			b.Fatalf("%d rules are left", n)
		}
	}
}
