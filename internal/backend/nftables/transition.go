package nftables

import (
	"fmt"
	"slices"
	"strings"

	"sluice/internal/backend"
)

// A flow that ran before connection tracking saw it has no entry, so its next
// packet is new, and new packets that come the wrong way round are refused: the
// answers to a download of a host that tracked nothing, the data of a service
// that bypassed tracking. So the first moment of such a change lets pass TCP
// that opens no connection. Conntrack takes up a flow in the middle
// (nf_conntrack_tcp_loose, net/netfilter/nf_conntrack_proto_tcp.c), the packet
// leaves an entry, and from then on the flow is established. A stranger gains
// nothing: without a connection, such a packet is answered by a reset.
var passage = Rule{
	Statements: []Statement{
		{Kind: Opaque, Name: "ct state new tcp flags & (syn | ack) != syn"},
		{Kind: Verdict, Name: "accept"},
	},
	Comment: "connections that ran before, for a moment",
}

// startsTracking says whether packets become tracked that were not: nothing
// of ours looked at states before, or something is no longer kept out. A
// passage that is still open is of such a change that was killed: connections
// have not had their time yet.
func (s *stepper) startsTracking() bool {
	if !asksState(&s.have.Tree) || hasPassage(&s.have.Tree) {
		return true
	}
	keeps := notrackRules(s.want)
	return slices.ContainsFunc(notrackRules(&s.have.Tree), func(rule string) bool { return !slices.Contains(keeps, rule) })
}

// passes says whether a chain has to let running connections pass for a
// moment: it decides by state, and refuses by default.
func (s *stepper) passes(c *Chain) bool {
	return s.transition && c.Base != nil && c.Base.Policy == "drop" && len(c.Rules) > 0 && slices.ContainsFunc(c.Rules, Rule.asksState)
}

// withPassage is the chain with the passage before its last rule, which goes
// on to the policy's own rules, and before those that lead new packets there
// earlier.
func withPassage(c *Chain) *Chain {
	out := *c
	at := len(c.Rules) - 1
	if goal := c.Rules[at].goal(); goal != "" {
		at = slices.IndexFunc(c.Rules, func(r Rule) bool { return r.goal() == goal })
	}
	out.Rules = slices.Insert(slices.Clone(c.Rules), at, passage)
	return &out
}

// goal is the chain that a rule goes on in for good; "" where it does not.
func (r Rule) goal() string {
	if n := len(r.Statements); n > 0 && r.Statements[n-1].Kind == Goto {
		return r.Statements[n-1].Name
	}
	return ""
}

// closePassages waits for running connections and ends the transition.
func (s *stepper) closePassages() {
	var b strings.Builder
	for _, c := range s.want.Chains {
		if s.passes(c) {
			fmt.Fprintf(&b, "flush chain %s %s\n", s.table, c.Name)
			for _, r := range c.Rules {
				fmt.Fprintf(&b, "add rule %s %s %s\n", s.table, c.Name, r.line())
			}
		}
	}
	if b.Len() > 0 {
		s.steps = append(s.steps, backend.Step{Purpose: backend.Hold, Name: "running connections get their entries"})
		s.add(backend.Sweep, "no more connections without an entry", b.String())
	}
}

func hasPassage(t *Tree) bool {
	return slices.ContainsFunc(t.Chains, func(c *Chain) bool {
		return slices.ContainsFunc(c.Rules, func(r Rule) bool { return r.Comment == passage.Comment })
	})
}

func asksState(t *Tree) bool {
	return slices.ContainsFunc(t.Chains, func(c *Chain) bool { return slices.ContainsFunc(c.Rules, Rule.asksState) })
}

func (r Rule) asksState() bool {
	return slices.ContainsFunc(r.Statements, func(s Statement) bool { return s.Field == "ct state" })
}

// notrackRules are the rules that keep packets out of tracking, without their
// comments.
func notrackRules(t *Tree) []string {
	var out []string
	for _, c := range t.Chains {
		for _, r := range c.Rules {
			if slices.ContainsFunc(r.Statements, func(s Statement) bool { return s.Kind == NoTrack }) {
				out = append(out, Rule{Statements: normal(r.Statements)}.line())
			}
		}
	}
	return out
}
