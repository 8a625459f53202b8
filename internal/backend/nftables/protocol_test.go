package nftables

import (
	"slices"
	"strings"
	"testing"

	"sluice/internal/program"
)

// TestProtocolOfChain: where one protocol alone comes, it is not asked for, and read
// back anyway; not where another rule leads there without asking.
func TestProtocolOfChain(t *testing.T) {
	port := numbersOf(program.Port, exactly(22))
	rule := func(a program.Action, match ...program.Condition) program.Rule {
		return program.Rule{Match: match, Actions: actions{a}}
	}
	p := func(more ...program.Rule) *program.Program {
		return &program.Program{
			Owner: "sluice",
			Hooks: []program.Hook{{Kind: program.Input, Phase: program.Filter, Default: program.Drop, Chain: "input"}},
			Chains: []program.Chain{
				{Name: "input", Rules: append(more,
					rule(program.Goto{Chain: "mine"}, protocolIs(6)),
					rule(program.Jump{Chain: "both"}, protocolIs(17)))},
				{Name: "mine", Rules: []program.Rule{
					rule(program.Accept, protocolIs(6), port),
					rule(program.Drop, protocolIs(6), port, namesOf(program.State, "new")),
					rule(program.Reject, protocolIs(6), port),
					rule(program.Jump{Chain: "both"}),
				}},
				{Name: "both", Rules: []program.Rule{rule(program.Accept, protocolIs(6), port)}},
			},
		}
	}
	for _, test := range []struct {
		name string
		p    *program.Program
		mine []string
		told bool
	}{
		{"TCP alone", p(), []string{"th dport 22 accept", "ct state == new th dport 22 drop", "tcp dport 22 reject with tcp reset", "jump both"}, true},
		{"whatever is new", p(rule(program.Goto{Chain: "mine"}, namesOf(program.State, "new"))), []string{"tcp dport 22 accept", "ct state == new meta l4proto tcp tcp dport 22 drop", "tcp dport 22 reject with tcp reset", "jump both"}, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			tree := mustLower(t, test.p).Tree
			for chain, want := range map[string][]string{"mine": test.mine, "both": {"tcp dport 22 accept"}} {
				var got []string
				for _, r := range tree.chain(chain).Rules {
					got = append(got, r.text())
				}
				if !slices.Equal(got, want) {
					t.Errorf("chain %s: %q, want %q", chain, got, want)
				}
			}
			lifted := lift(tree)
			if len(lifted.Unlifted) > 0 || !slices.ContainsFunc(lifted.Program.Chain("mine").Rules[0].Match, func(c program.Condition) bool { return c.Field == program.Protocol }) {
				t.Errorf("read back: %v\n%s", lifted.Unlifted, lifted.Program.Text())
			}
			mine := test.p.Chain("mine").Rules
			pays := New().(nftables).Prices(test.p)
			if free := pays.Condition(&mine[0].Match[0], 4) == 0; free != test.told {
				t.Errorf("the protocol is free: %v", free)
			}
			if pays.Condition(&mine[2].Match[0], 4) == 0 {
				t.Error("nft asks for TCP before a reset")
			}
			tree.chain("input").Rules = append(tree.chain("input").Rules, Rule{Statements: []Statement{{Kind: Goto, Name: "mine"}}})
			if unlifted := lift(tree).Unlifted; (len(unlifted) > 0) != test.told || test.told && !strings.Contains(unlifted[0].Why, "an unknown protocol") {
				t.Errorf("a rule that leads all packets there: %v", unlifted)
			}
		})
	}
}
