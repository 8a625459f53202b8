package nftables

import (
	"maps"
	"slices"
	"strconv"
	"strings"

	"sluice/internal/base/addrset"
	"sluice/internal/program"
)

// Where packets of one protocol alone get to a chain, its rules need not ask for the
// protocol: neither the lowering writes the question there, nor has the reader of the
// kernel to find it.

// protocols are some of those that have ports, by their place in withPorts, and one bit
// for all others.
type protocols uint64

var withPorts = slices.Sorted(maps.Keys(portHeaders))

func someProtocols(has func(n uint64) bool) (out protocols) {
	for i, n := range withPorts {
		if has(n) {
			out |= 1 << i
		}
	}
	return out
}

func otherProtocols() protocols { return 1 << len(withPorts) }

// onlyProtocols gives, by chain and place in it, the number of the protocol with ports
// that alone comes to a rule; 0: there is none.
func onlyProtocols(t *Tree) map[string][]uint64 {
	out := map[string][]uint64{}
	for chain, come := range t.come(otherProtocols()<<1-1, protocolsOf, Rule.takes) {
		for _, some := range come {
			out[chain] = append(out[chain], some.single())
		}
	}
	return out
}

// come gives, by chain and place in it, which of all come to a rule, told by which of them
// a statement passes, and of which none come past a rule.
func (t *Tree) come(all protocols, pass func(Statement) protocols, takes func(Rule) protocols) map[string][]protocols {
	come := map[string]protocols{}
	out := map[string][]protocols{}
	var queue []string
	reach := func(chain string, some protocols) {
		if come[chain]|some != come[chain] {
			come[chain] |= some
			queue = append(queue, chain)
		}
	}
	for _, c := range t.Chains {
		if c.Base != nil {
			reach(c.Name, all)
		}
	}
	for len(queue) > 0 {
		c := t.chain(queue[0])
		queue = queue[1:]
		if c == nil {
			continue
		}
		left := come[c.Name]
		out[c.Name] = make([]protocols, len(c.Rules))
		for i, r := range c.Rules {
			out[c.Name][i] = left
			some := left
			for _, s := range r.Statements {
				some &= pass(s)
				if s.Kind == Jump || s.Kind == Goto {
					reach(s.Name, some)
				}
				for _, verdict := range t.verdicts(s) {
					if _, chain, leads := strings.Cut(verdict, " "); leads {
						reach(chain, some)
					}
				}
			}
			left &^= takes(r)
		}
	}
	return out
}

// single is the number of the one protocol with ports that they are, or 0.
func (p protocols) single() uint64 {
	for _, n := range withPorts {
		if p == someProtocols(func(m uint64) bool { return m == n }) {
			return n
		}
	}
	return 0
}

// takes are the protocols of which no packet comes past a rule.
func (r Rule) takes() protocols {
	if len(r.Statements) != 2 || !r.Statements[1].ends() || goesOn(r.Statements[1]) {
		return 0
	}
	switch s := r.Statements[0]; {
	case s.Kind != Match || s.Field != "meta l4proto" || s.Set != "" || s.Mask != "":
		return 0
	case s.Op == "==":
		return someProtocols(func(n uint64) bool { return slices.Contains(s.Values, strconv.FormatUint(n, 10)) })
	case s.Op == "!=" && !slices.ContainsFunc(s.Values, func(v string) bool { return portHeaders[numberOf(v)] == "" }):
		return otherProtocols() | someProtocols(func(n uint64) bool { return !valuesHold(s.Values, n) })
	}
	return 0
}

// protocolsOf are those whose packets may come past a statement.
func protocolsOf(s Statement) protocols {
	out := otherProtocols()<<1 - 1
	if s.Kind != Match && s.Kind != VerdictMap {
		return out
	}
	if s.Field == "meta l4proto" && s.Kind == Match && s.Set == "" && s.Mask == "" {
		is := someProtocols(func(n uint64) bool { return valuesHold(s.Values, n) })
		switch {
		case s.Op == "==" && slices.ContainsFunc(s.Values, func(v string) bool { return portHeaders[numberOf(v)] == "" }):
			return is | otherProtocols()
		case s.Op == "==":
			return is
		case s.Op == "!=":
			return out &^ someProtocols(func(n uint64) bool { return slices.Contains(s.Values, strconv.FormatUint(n, 10)) })
		}
	}
	for part := range strings.SplitSeq(s.Field, " . ") {
		header, _, _ := strings.Cut(part, " ")
		if n := protocolOf[header]; n != "" && portHeaders[numberOf(n)] == "" {
			out &= otherProtocols()
		} else if n != "" {
			out &= someProtocols(func(m uint64) bool { return m == numberOf(n) })
		}
	}
	return out
}

// protocols leaves out what a chain tells.
func (l *lowering) protocols() {
	only := onlyProtocols(l.tree)
	for _, c := range l.tree.Chains {
		for i, n := range only[c.Name] {
			if r := &c.Rules[i]; n != 0 && !asksHeader(r.Statements) {
				r.Statements = withoutProtocol(r.Statements, n)
			}
		}
	}
}

// asksHeader says whether nft puts a question for the protocol before something in a
// rule, or wants to see one, whatever is known.
func asksHeader(statements []Statement) bool {
	return slices.ContainsFunc(statements, func(s Statement) bool {
		switch s.Kind {
		case Match, VerdictMap, Rewrite:
		case Reject, DNAT, SNAT, DNATPrefix, SNATPrefix, Masquerade, Redirect, Opaque, Unknown:
			return true
		default:
			return false
		}
		for part := range strings.SplitSeq(s.Field, " . ") {
			header, of, _ := strings.Cut(part, " ")
			if protocolOf[header] != "" && of != "sport" && of != "dport" || part == "ct original proto-dst" {
				return true
			}
		}
		return false
	})
}

// withoutProtocol is a rule for packets of one protocol.
func withoutProtocol(statements []Statement, protocol uint64) []Statement {
	var out []Statement
	for _, s := range statements {
		if s.Kind == Match && s.Field == "meta l4proto" && s.Op == "==" && s.Set == "" && s.Mask == "" && valuesHold(s.Values, protocol) {
			continue
		}
		parts := strings.Split(s.Field, " . ")
		for i, part := range parts {
			if of, is := strings.CutPrefix(part, portHeaders[protocol]+" "); is {
				parts[i] = "th " + of
			}
		}
		s.Field = strings.Join(parts, " . ")
		out = append(out, s)
	}
	return out
}

// asksPorts says whether statements are about ports, or flags, of a protocol that they
// do not ask for.
func (w *ruleLifter) asksPorts(statements []Statement) bool {
	return slices.ContainsFunc(statements, func(s Statement) bool {
		if s.Kind == Jump || s.Kind == Goto {
			g := w.gate(s.Name)
			return g != nil && g.resets
		}
		return s.Field == flagsWord || slices.ContainsFunc(strings.Split(s.Field, " . "), func(part string) bool { return strings.HasPrefix(part, "th ") })
	})
}

// toldProtocols are the conditions of a program that are not asked, since where they
// stand tells them: as its tree has it, with an address of each set.
func (n nftables) toldProtocols(p *program.Program) map[*program.Condition]bool {
	few := *p
	few.Sets = slices.Clone(p.Sets)
	for i := range few.Sets {
		var some addrset.Builder
		for _, family := range []addrset.Set{few.Sets[i].Addresses.Only4(), few.Sets[i].Addresses.Only6()} {
			if first, _, has := family.Bounds(); has {
				some.AddAddr(first)
			}
		}
		few.Sets[i].Addresses = some.Set()
	}
	l, err := n.lower(&few, nil)
	if err != nil {
		return nil // nobody can load it
	}
	out := map[*program.Condition]bool{}
	only := onlyProtocols(l.tree)
	for i := range p.Chains {
		c := &p.Chains[i]
		of := only[name(c.Name)]
		if len(of) == 0 {
			continue
		}
		protocol := of[len(of)-1]
		from := 0
		if of[0] != protocol {
			from = 1 + slices.IndexFunc(c.Rules, func(r program.Rule) bool {
				return len(r.Match) == 1 && r.Match[0].Field == program.Protocol && r.Match[0].Not
			})
		}
		for j := range c.Rules[from:] {
			r := &c.Rules[from+j]
			for k := range r.Match {
				c := &r.Match[k]
				out[c] = protocol != 0 && c.Field == program.Protocol && c.Set == "" && !c.Not && holds(c.Numbers, protocol) && !asksHeaderOf(r)
			}
		}
	}
	return out
}

// asksHeaderOf is asksHeader of what a rule becomes.
func asksHeaderOf(r *program.Rule) bool {
	return slices.ContainsFunc(r.Match, func(c program.Condition) bool {
		return c.Field == program.TCPFlags && !inWord(&c) || c.Field == program.OriginalPort
	}) || slices.ContainsFunc(r.Actions, func(a program.Action) bool {
		e := program.EffectOf(a)
		return e.Decides == program.Reject || e.Rewrites.Field != ""
	})
}
