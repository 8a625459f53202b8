package nftables

import (
	"encoding/base64"
	"slices"
	"strings"

	"sluice/internal/base/addrset"
)

// A tree has rules for every set that commands fill. What is loaded has those
// of the sets that are in use: rules that ask another one are left out, and so
// are chains that nothing is left of, and what leads to them.

// packed is a set of addresses that is kept as text.
type packed struct{ addrset.Set }

// IsZero says that the set is empty.
func (p packed) IsZero() bool { return p.IsEmpty() }

// MarshalText writes the set's binary form.
func (p packed) MarshalText() ([]byte, error) {
	data, err := p.MarshalBinary()
	return []byte(base64.StdEncoding.EncodeToString(data)), err
}

// UnmarshalText reads what MarshalText wrote.
func (p *packed) UnmarshalText(text []byte) error {
	data, err := base64.StdEncoding.DecodeString(string(text))
	if err != nil {
		return err
	}
	return p.UnmarshalBinary(data)
}

// asking is the tree with rules that ask the given sets.
func (t *Tree) asking(a askedSets) *Tree {
	p := pruning{silent: map[string]bool{}, held: t.held()}
	for _, k := range t.Sets {
		if k.byCommand() && !a.asks(k.commandSet()) {
			p.silent[k.Name] = true
		}
	}
	if len(p.silent) == 0 {
		return t
	}
	out := *t
	out.Chains = p.prune(t.Chains)
	return &out
}

func (s *Set) commandSet() commandSet {
	family := 4
	if slices.Contains(s.Types, addressType(6)) {
		family = 6
	}
	return commandSet{Name: s.Name, Family: family, Ranges: s.Side, Counted: s.Counted}
}

// held are the chains that something leads to which cannot be left out alone: a
// goto, a verdict map, a jump behind an effect.
func (t *Tree) held() map[string]bool {
	out := map[string]bool{}
	for _, k := range t.Sets {
		for _, v := range k.Elements.Verdicts {
			if _, chain, leads := strings.Cut(v, " "); leads {
				out[chain] = true
			}
		}
	}
	for _, c := range t.Chains {
		for _, r := range c.Rules {
			for _, s := range r.Statements {
				switch {
				case s.Kind == Goto, s.Kind == Jump && !leadsOnly(r):
					out[s.Name] = true
				case s.Kind == VerdictMap:
					for _, v := range s.Map {
						if _, chain, leads := strings.Cut(v, " "); leads {
							out[chain] = true
						}
					}
				}
			}
		}
	}
	return out
}

// leadsOnly says that a rule does nothing but match and jump.
func leadsOnly(r Rule) bool {
	n := len(r.Statements)
	return n > 0 && r.Statements[n-1].Kind == Jump &&
		!slices.ContainsFunc(r.Statements[:n-1], func(s Statement) bool { return s.Kind != Match })
}

type pruning struct {
	silent map[string]bool // sets that are not asked
	held   map[string]bool // chains that stay
}

// prune gives the chains without the rules that ask silent sets. A chain
// of which all stays is the same one.
func (p *pruning) prune(chains []*Chain) []*Chain {
	out := slices.Clone(chains)
	gone := map[string]bool{}
	less := map[string]bool{}
	led := jumpedTo(chains)
	for again := true; again; {
		again = false
		now := jumpedTo(out)
		for i, c := range out {
			if c == nil {
				continue
			}
			rules := slices.DeleteFunc(slices.Clone(c.Rules), func(r Rule) bool { return p.falls(r, gone) })
			if len(rules) < len(c.Rules) {
				c = &Chain{Name: c.Name, Comment: c.Comment, Base: c.Base, Rules: rules}
				out[i], less[c.Name], again = c, true, true
			}
			alone := c.Base == nil && led[c.Name] && !now[c.Name]
			if (alone || less[c.Name] && c.pointless()) && !p.held[c.Name] {
				gone[c.Name], out[i], again = true, nil, true
			}
		}
	}
	return slices.DeleteFunc(out, func(c *Chain) bool { return c == nil })
}

// jumpedTo says which chains a jump leads to.
func jumpedTo(chains []*Chain) map[string]bool {
	out := map[string]bool{}
	for _, c := range chains {
		if c == nil {
			continue
		}
		for _, r := range c.Rules {
			for _, s := range r.Statements {
				if s.Kind == Jump {
					out[s.Name] = true
				}
			}
		}
	}
	return out
}

// falls says whether a rule never does anything: it asks for an element of a
// silent set, or leads to a chain that is gone.
func (p *pruning) falls(r Rule, gone map[string]bool) bool {
	for _, s := range r.Statements {
		if s.Kind == Match && s.Op == "==" && p.silent[s.Set] {
			return true
		}
	}
	return leadsOnly(r) && gone[r.Statements[len(r.Statements)-1].Name]
}

// pointless says whether packets leave the chain as they came, whatever they
// are.
func (c *Chain) pointless() bool {
	if c.Base != nil && c.Base.Policy != "accept" {
		return false
	}
	for _, r := range c.Rules {
		for _, s := range r.Statements {
			ends := s.Kind == Verdict && (s.Name == "return" || s.Name == "accept" && c.Base != nil)
			if s.Kind != Match && !ends {
				return false
			}
		}
	}
	return true
}

// tree is what is loaded of the artifact.
func (a *artifact) tree() *Tree { return a.Tree.asking(a.asked).comparing(nil) }

// shown is the tree for a reader, without the sets that nothing asks.
func (a *artifact) shown() *Tree {
	t := *a.tree()
	t.Sets = slices.DeleteFunc(slices.Clone(t.Sets), func(k *Set) bool { return k.byCommand() && !a.asked.asks(k.commandSet()) })
	return &t
}
