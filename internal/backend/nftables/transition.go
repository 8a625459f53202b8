package nftables

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"sluice/internal/backend"
	"sluice/internal/system/kernel/nfset"
)

// A flow that ran before connection tracking saw it has no entry, so its next
// packet is new, and new packets that come the wrong way round are refused: the
// answers to a download of a host that tracked nothing, the data of a service
// that bypassed tracking. So for the time of the policy's grace such a change lets
// TCP pass that opens no connection. Conntrack takes up a flow in the middle
// (nf_conntrack_tcp_loose, net/netfilter/nf_conntrack_proto_tcp.c), the packet
// leaves an entry, and from then on the flow is established. A stranger gains
// nothing: without a connection, such a packet is answered by a reset.
//
// The kernel ends the grace: the rule asks a set whose one element has a time-out.
// What is left of it then, a rule that no packet matches, goes with the next change.
var passage = Rule{
	Statements: []Statement{
		{Kind: Match, Field: "ct state", Op: "==", Values: []string{"8"}},
		{Kind: Match, Field: "tcp flags", Mask: "18", Op: "!=", Values: []string{"2"}},
		{Kind: Match, Field: "meta l4proto", Op: "==", Set: graceSet},
		{Kind: Verdict, Name: "accept"},
	},
	Comment: "connections that ran before, for a moment",
}

// graceSet is no name that a set of a program can have: those with a slash begin
// with what marks them as escaped.
const graceSet = "grace/tcp"

// grace is what the kernel has of a transition.
type grace struct {
	set    bool     // it is there
	chains []string // with a passage
	// What its element says. With neither, it is over.
	given   time.Duration // the whole time
	left    time.Duration
	forEver bool // somebody put it there without a time-out
}

// live says that passages let packets pass.
func (g *grace) live() bool { return len(g.chains) > 0 && (g.left > 0 || g.forEver) }

// remains says that something of a transition is in the kernel.
func (g *grace) remains() bool { return g.set || len(g.chains) > 0 }

// Grace is how long TCP packets that belong to no known flow and open none still
// pass; 0: they do not.
func (s *State) Grace() time.Duration {
	if !s.grace.live() {
		return 0
	}
	return s.grace.left
}

// Passes says which flows they are of, by the chains with passages.
func (s *State) Passes() (own, forwarded bool) {
	for _, c := range s.Tree.Chains {
		if slices.Contains(s.grace.chains, c.Name) {
			own, forwarded = own || !c.forwards(), forwarded || c.forwards()
		}
	}
	return own, forwarded
}

// takePassages takes what belongs to a transition out of what was read: it is
// neither the artifact's nor somebody else's.
func (s *State) takePassages() {
	sets := s.Tree.Sets
	s.Tree.Sets = slices.DeleteFunc(sets, func(k *Set) bool { return k.Name == graceSet })
	s.grace.set = len(s.Tree.Sets) < len(sets)
	line := passage.normalLine()
	for _, c := range s.Tree.Chains {
		at := slices.IndexFunc(c.Rules, func(r Rule) bool { return r.Comment == passage.Comment && r.normalLine() == line })
		if c.Base != nil && at >= 0 {
			c.Rules = slices.Delete(c.Rules, at, at+1)
			s.grace.chains = append(s.grace.chains, c.Name)
		}
	}
}

// readGrace reads how long a transition lasts.
func (s *State) readGrace(ctx context.Context) error {
	if !s.grace.set {
		return nil
	}
	conn, err := nfset.Open()
	if err != nil {
		return err
	}
	defer conn.Close()
	begin := func() { s.grace.given, s.grace.left, s.grace.forEver = 0, 0, false }
	err = conn.Dump(ctx, nfset.Set{Table: s.Tree.Table, Name: graceSet}, begin, func(e nfset.Element) error {
		s.grace.forEver = s.grace.forEver || e.Timeout == 0
		s.grace.given, s.grace.left = max(s.grace.given, e.Timeout), max(s.grace.left, e.Expires)
		return nil
	})
	if errors.Is(err, nfset.ErrNoSet) {
		return nil
	}
	return err
}

// Begins says which flows the steps from have to the artifact begin to track: those
// of the host's own sockets, and those that it forwards, as far as its rules ask for
// the states of such packets and refuse what is not known.
func (a *artifact) Begins(have backend.State) (own, forwarded bool) {
	h, err := stateOf(have)
	if err != nil || !asksState(a.Tree) {
		return false, false
	}
	if !asksState(&h.Tree) {
		return true, slices.ContainsFunc(a.Tree.Chains, func(c *Chain) bool { return a.Tree.refuses(c) && c.forwards() })
	}
	// What bypasses tracking has this host as one of its ends.
	keeps := notrackRules(a.Tree)
	return slices.ContainsFunc(notrackRules(&h.Tree), func(rule string) bool { return !slices.Contains(keeps, rule) }), false
}

// Passing is the artifact whose steps let flows pass that have no entries.
func (a *artifact) Passing(own, forwarded bool, most time.Duration) backend.Artifact {
	out := *a
	out.passing = openings{own, forwarded, min(most, a.Grace())}
	return &out
}

// Grace is how long they let them pass.
func (a *artifact) Grace() time.Duration { return a.Tree.graceTime() }

func (t *Tree) graceTime() time.Duration {
	return time.Duration(t.Grace) * time.Millisecond //nolint:gosec // of a policy: no more than days
}

// openings says for which flows a switch opens passages, and for how long.
type openings struct {
	own, forwarded bool
	most           time.Duration
}

// refuses says whether a chain may refuse running connections that have no entries:
// it decides by state, and by default or behind that by a rule not everything passes.
func (t *Tree) refuses(c *Chain) bool {
	if c.Base == nil || c.Base.Type != "filter" || len(c.Rules) == 0 || !slices.ContainsFunc(c.Rules, Rule.asksState) {
		return false
	}
	return c.Base.Policy == "drop" || t.drops(c.Rules[c.passageAt():], map[string]bool{})
}

// drops says whether rules, or the chains that they lead to, refuse anything.
func (t *Tree) drops(rules []Rule, seen map[string]bool) bool {
	leads := func(verdict string) bool {
		_, name, _ := strings.Cut(verdict, " ")
		if verdict == "drop" || name == "" || seen[name] {
			return verdict == "drop"
		}
		seen[name] = true
		c := t.chain(name)
		return c != nil && t.drops(c.Rules, seen)
	}
	for _, r := range rules {
		for _, s := range r.Statements {
			switch s.Kind {
			case Reject:
				return true
			case Verdict:
				if s.Name == "drop" {
					return true
				}
			case Jump, Goto:
				if leads("jump " + s.Name) {
					return true
				}
			case VerdictMap:
				verdicts := slices.Collect(maps.Values(s.Map))
				if k := t.set(s.Set); k != nil {
					verdicts = k.Elements.Verdicts
				}
				if slices.ContainsFunc(verdicts, leads) {
					return true
				}
			}
		}
	}
	return false
}

func (c *Chain) forwards() bool { return c.Base != nil && c.Base.Hook == "forward" }

// passes says whether a chain gets a passage: a new one, or that of a grace that is
// not over.
func (s *stepper) passes(c *Chain) bool {
	if s.want.Grace == 0 || !s.want.refuses(c) {
		return false
	}
	asked := s.passing.own
	if c.forwards() {
		asked = s.passing.forwarded
	}
	return asked || s.goesOn() && slices.Contains(s.have.grace.chains, c.Name)
}

// goesOn says that a grace which began before may last: it is none that the policy
// does not give.
func (s *stepper) goesOn() bool {
	g := &s.have.grace
	return g.live() && !g.forEver && g.given <= s.want.graceTime()
}

// withPassage is the chain with its passage, if it gets one: before its last rule,
// which goes on to the policy's own rules, and before those that lead new packets
// there earlier.
func (s *stepper) withPassage(c *Chain) *Chain {
	if !s.passes(c) {
		return c
	}
	out := *c
	out.Rules = slices.Insert(slices.Clone(c.Rules), c.passageAt(), passage)
	return &out
}

func (c *Chain) passageAt() int {
	at := len(c.Rules) - 1
	if goal := c.Rules[at].goal(); goal != "" {
		at = slices.IndexFunc(c.Rules, func(r Rule) bool { return r.goal() == goal })
	}
	return at
}

// goal is the chain that a rule goes on in for good; "" where it does not.
func (r Rule) goal() string {
	if n := len(r.Statements); n > 0 && r.Statements[n-1].Kind == Goto {
		return r.Statements[n-1].Name
	}
	return ""
}

// beginGrace is the part of the switch without which passages let nothing pass.
func (s *stepper) beginGrace() string {
	asked := s.passing.own || s.passing.forwarded
	begins := func(c *Chain) bool {
		return s.passes(c) && (!s.goesOn() || !slices.Contains(s.have.grace.chains, c.Name) || asked && s.passing.most > s.have.grace.left)
	}
	if !slices.ContainsFunc(s.want.Chains, begins) {
		return ""
	}
	return fmt.Sprintf("add set %[1]s { type inet_proto; flags timeout; }\nflush set %[1]s\nadd element %[1]s { tcp timeout %[2]dms }\n",
		s.at(graceSet), max(1, s.passing.most.Milliseconds()))
}

// endGrace removes what a grace left that is over, or that the policy does not
// give.
func (s *stepper) endGrace() {
	g := &s.have.grace
	switched := s.switches()
	if !g.remains() || slices.ContainsFunc(s.want.Chains, s.passes) && (switched || s.goesOn()) {
		return
	}
	var b strings.Builder
	for _, c := range s.want.Chains {
		if switched || !slices.Contains(g.chains, c.Name) {
			continue
		}
		fmt.Fprintf(&b, "flush chain %s\n", s.at(c.Name))
		for _, r := range c.Rules {
			fmt.Fprintf(&b, "add rule %s %s\n", s.at(c.Name), r.line())
		}
	}
	if g.set {
		fmt.Fprintf(&b, "delete set %s\n", s.at(graceSet))
	}
	s.add(backend.Sweep, "what let connections pass that ran before", b.String())
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
