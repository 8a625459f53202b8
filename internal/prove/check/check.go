package check

import (
	"fmt"
	"slices"

	"sluice/internal/base/addrset"
	"sluice/internal/language/policy"
	"sluice/internal/language/resolve"
	"sluice/internal/system/host"
)

// Run returns what it finds in a resolved policy, in the order of the policy's
// text. The facts are those of the host that the policy is for.
func Run(r *resolve.Resolved, facts host.Facts) []Finding {
	return newChecker(r, facts).run()
}

func newChecker(r *resolve.Resolved, facts host.Facts) *checker {
	r = r.Unexcepted()
	c := &checker{Resolved: r, policy: r.Policy, facts: facts, boxes: map[boxKey][]box{}, universes: map[universeKey]box{}, standing: map[policy.Hook][]*standing{}}
	c.own = ownAddresses(facts)
	c.names = newInterfaceNames(r)
	c.effort.left = effortAtLeast
	for _, s := range c.sections() {
		c.effort.left += effortPerRule * len(s.Rules)
	}
	return c
}

func (c *checker) run() []Finding {
	for _, find := range passes {
		find(c)
	}
	return order(c.policy, c.found)
}

// passes are independent of each other; the order is that of the policy's keys.
var passes = []func(*checker){
	(*checker).interfaces,
	(*checker).emptySets,
	(*checker).bans,
	(*checker).bypasses,
	(*checker).repliesCut,
	(*checker).hidden,
	(*checker).families,
	(*checker).localAddresses,
	(*checker).untrackedRules,
	(*checker).unprovenBans,
	(*checker).unprovenPlaces,
	(*checker).waysBack,
	(*checker).masquerades,
	(*checker).hostNeeds,
}

type checker struct {
	*resolve.Resolved
	policy    *policy.Policy
	facts     host.Facts
	own       addrset.Set // addresses that packets to this host can have; of unknown hosts empty
	names     interfaceNames
	boxes     map[boxKey][]box
	universes map[universeKey]box
	standing  map[policy.Hook][]*standing
	effort    effort
	found     []Finding
	options   Options
}

// report adds a finding.
func (c *checker) report(code Code, severity Severity, pos policy.Pos, hint, format string, args ...any) *Finding {
	e := c.policy.Errorf(pos, hint, format, args...)
	c.found = append(c.found, Finding{Code: code, Severity: severity, Pos: pos, Message: e.Message, Hint: hint, Line: e.Line})
	return &c.found[len(c.found)-1]
}

func (c *checker) sections() []*policy.Section {
	var out []*policy.Section
	for _, s := range []*policy.Section{c.policy.Input, c.policy.Output, c.policy.Forward} {
		if s != nil {
			out = append(out, s)
		}
	}
	return out
}

// whoAddresses is the addresses that a side names: of its sets, literals, and
// zones with networks. Who is not turned round.
func (c *checker) whoAddresses(w *policy.Who) addrset.Set {
	var out addrset.Set
	if w == nil {
		return out
	}
	for _, item := range w.Items {
		out = out.Union(c.itemAddresses(item))
	}
	return out
}

func (c *checker) itemAddresses(item policy.WhoItem) addrset.Set {
	if item.Name == "" {
		return addrset.Of(item.Literal)
	}
	if z := c.Zones[item.Name]; z != nil {
		return z.Networks
	}
	s := c.Sets[item.Name]
	if s == nil {
		return addrset.Set{}
	}
	out := s.Addresses
	for _, e := range s.Endpoints {
		out = out.Union(addrset.Of(e.Address))
	}
	return out
}

// itemText is a name or literal as the policy has it.
func itemText(item policy.WhoItem) string {
	if item.Name != "" {
		return item.Name
	}
	return item.Literal.String()
}

// changing says whether the addresses of a side change without the policy: a
// list that is downloaded again, or what commands or another program put there. What is found of it holds for now only.
func (c *checker) changing(w *policy.Who) bool {
	if w == nil {
		return false
	}
	for _, item := range w.Items {
		if item.Name != "" && c.downloaded(item.Name, 0) {
			return true
		}
	}
	return false
}

// mayShrink says of a side that it is all but sets to which commands or another program
// may add anything.
func (c *checker) mayShrink(w *policy.Who) bool {
	return w != nil && w.Not && slices.ContainsFunc(w.Items, func(item policy.WhoItem) bool {
		s := c.policy.Set(item.Name)
		return s != nil && (s.Living || s.Others)
	})
}

// downloaded follows unions and exceptions; policy has refused cycles.
func (c *checker) downloaded(name string, depth int) bool {
	s := c.policy.Set(name)
	if s == nil || depth > len(c.policy.Sets) {
		return false
	}
	if s.URL != nil || s.Living || s.Others || s.IsGroup() {
		return true
	}
	for _, words := range [][]policy.Word{s.Union, s.Except} {
		for _, w := range words {
			if c.downloaded(w.Text, depth+1) {
				return true
			}
		}
	}
	return false
}

func quoted(text string) string { return fmt.Sprintf("%q", text) }
