package nftables

import (
	"slices"
	"testing"

	"sluice/internal/program"
)

// TestFamilyOfChain: where one family alone comes, it is not asked for, nothing is there
// for the other, and it is read back anyway; not where another rule leads there.
func TestFamilyOfChain(t *testing.T) {
	rule := func(a program.Action, match ...program.Condition) program.Rule {
		return program.Rule{Match: match, Actions: actions{a}}
	}
	both := addressesOf(program.Source, "192.0.2.0/24", "2001:db8::/32")
	p := func(more ...program.Rule) *program.Program {
		return &program.Program{
			Owner: "sluice",
			Hooks: []program.Hook{{Kind: program.Input, Phase: program.Filter, Default: program.Drop, Chain: "input"}},
			Chains: []program.Chain{
				{Name: "input", Rules: append(more, rule(program.Jump{Chain: "mine"}, addressesOf(program.Source, "2001:db8::/32")))},
				{Name: "mine", Rules: []program.Rule{
					rule(program.Accept, not(protocolIs(58))),
					rule(program.Drop, both, protocolIs(1, 17)),
					rule(program.Jump{Chain: "further"}),
				}},
				{Name: "further", Rules: []program.Rule{rule(program.Reject, v6, protocolIs(6)), rule(program.Drop, v4)}},
			},
		}
	}
	for _, test := range []struct {
		name          string
		p             *program.Program
		mine, further []string
	}{
		{
			"IPv6 alone", p(),
			[]string{"meta l4proto != icmpv6 accept", "meta l4proto udp ip6 saddr 2001:db8::/32 drop", "jump further"},
			[]string{"meta l4proto tcp reject with tcp reset"},
		},
		{
			"whatever is new", p(rule(program.Jump{Chain: "mine"}, namesOf(program.State, "new"))),
			[]string{
				"meta nfproto ipv4 accept", "meta l4proto != icmpv6 meta nfproto ipv6 accept",
				"meta l4proto { icmp, udp } ip saddr 192.0.2.0/24 drop", "meta l4proto udp ip6 saddr 2001:db8::/32 drop", "jump further",
			},
			[]string{"meta l4proto tcp meta nfproto != ipv4 reject with tcp reset", "meta nfproto ipv4 drop"},
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			tree := mustLower(t, test.p).Tree
			for chain, want := range map[string][]string{"mine": test.mine, "further": test.further} {
				var got []string
				for _, r := range tree.chain(chain).Rules {
					got = append(got, r.text())
				}
				if !slices.Equal(got, want) {
					t.Errorf("chain %s: %q, want %q", chain, got, want)
				}
			}
			if lifted := lift(tree); len(lifted.Unlifted) > 0 {
				t.Errorf("read back: %v", lifted.Unlifted)
			}
		})
	}
}
