package optimize

import (
	"testing"

	"sluice/internal/program"
	"sluice/internal/prove/reach"
)

// alone is a program that counts what matches a rule's conditions.
func alone(p *program.Program, r program.Rule) *program.Program {
	out := copyOf(p)
	out.Counters = append(out.Counters, program.Counter{Name: "met"})
	r.Actions = []program.Action{program.Count{Counter: "met"}}
	out.Chain("rules").Rules = []program.Rule{r}
	out.Chain("raw").Rules = nil
	return out
}

// What facts promises of two rules holds for packets.
func TestFactsAgainstPackets(t *testing.T) {
	m := newMaker(t)
	disjoint, covers, commute := 0, 0, 0
	for range 300 {
		p := m.make(6)
		f := newFacts(p)
		rules := p.Chain("rules").Rules
		for i := 1; i < len(rules); i++ {
			a, b := rules[i-1], rules[i]
			apart, over, swap := f.disjoint(&a, &b), f.covers(&a, &b), f.commute(&a, &b)
			if f.disjoint(&b, &a) != apart || f.commute(&b, &a) != swap {
				t.Fatalf("not the same both ways round:\n%s\n%s", a.Text(), b.Text())
			}
			onlyA, onlyB := alone(p, a), alone(p, b)
			swapped := copyOf(p)
			turned := swapped.Chain("rules").Rules
			turned[i-1], turned[i] = turned[i], turned[i-1]
			for range 40 {
				pkt := m.packet()
				metA, metB := len(reach.Evaluate(onlyA, pkt, reach.In).Done) > 0, len(reach.Evaluate(onlyB, pkt, reach.In).Done) > 0
				if apart && metA && metB {
					t.Fatalf("said to be disjoint, and %+v matches both:\n%s\n%s", pkt, a.Text(), b.Text())
				}
				if over && metB && !metA {
					t.Fatalf("said to cover, and %+v matches the second alone:\n%s\n%s", pkt, a.Text(), b.Text())
				}
			}
			if swap {
				m.same(t, p, swapped, 40)
				commute++
			}
			if apart {
				disjoint++
			}
			if over {
				covers++
			}
		}
	}
	if disjoint < 50 || covers < 5 || commute < 50 {
		t.Errorf("too little was tried: %d disjoint, %d covered, %d that commute", disjoint, covers, commute)
	}
}

func TestTerminal(t *testing.T) {
	p := &program.Program{Chains: []program.Chain{
		{Name: "ends", Rules: []program.Rule{{Actions: []program.Action{program.Drop}}}},
		{Name: "open", Rules: []program.Rule{{Match: []program.Condition{{Field: program.Mark, Numbers: number(1)}}, Actions: []program.Action{program.Drop}}}},
		{Name: "back", Rules: []program.Rule{
			{Match: []program.Condition{{Field: program.Mark, Numbers: number(1)}}, Actions: []program.Action{program.Return}},
			{Actions: []program.Action{program.Drop}},
		}},
		{Name: "further", Rules: []program.Rule{{Actions: []program.Action{program.Goto{Chain: "back"}}}}},
	}}
	f := newFacts(p)
	limit := program.Limit{Name: "l", Rate: program.Rate{Packets: 1, Per: 1000, Burst: 1}}
	for _, c := range []struct {
		actions []program.Action
		want    bool
	}{
		{[]program.Action{program.Accept}, true},
		{[]program.Action{program.NoTrack{}}, false},
		{[]program.Action{limit, program.Drop}, false},
		{[]program.Action{program.Log{}, program.Reject}, true},
		{[]program.Action{program.Jump{Chain: "ends"}}, true},
		{[]program.Action{limit, program.Jump{Chain: "ends"}}, false},
		{[]program.Action{program.Jump{Chain: "open"}}, false},
		{[]program.Action{program.Jump{Chain: "back"}}, false},
		{[]program.Action{program.Jump{Chain: "further"}}, false},
		{[]program.Action{program.Goto{Chain: "open"}}, true},
	} {
		r := program.Rule{Actions: c.actions}
		if got := f.terminal(&r); got != c.want {
			t.Errorf("%s: terminal %v, want %v", r.Text(), got, c.want)
		}
	}
}
