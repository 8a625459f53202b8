package nftables

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"sluice/internal/base/addrset"
	"sluice/internal/program"
)

// ruleLifter makes the rules of the program of one rule of the kernel's. Its
// conditions come before its actions; where the kernel asks on behind an action,
// what follows goes into a chain of its own, from which packets come back that it
// does not match.
type ruleLifter struct {
	*lifter
	chain   *Chain
	number  int
	comment string
	tcp     bool   // TCP packets get here
	at      string // the statement that is looked at

	match   []program.Condition
	actions []program.Action
	above   []program.Condition // that hold where the rest of a rule is in a chain of its own
	inner   bool                // in such a chain
	closed  bool                // nothing of the rule comes after
	counts  bool                // an element has counted, so that no condition may follow
	others  []program.Rule      // of a foreign rule: verdicts that somebody else may give instead
}

func (w *ruleLifter) made() program.Rule {
	return program.Rule{ID: w.id(), Match: w.match, Actions: w.actions, Comment: w.comment, Origin: w.origin()}
}

var (
	errUnknown = errors.New("what it means is not known")
	errBehind  = errors.New("something follows it")
	errReturn  = errors.New("a return after a condition that follows an action")
)

// rule lifts statements in order; a rule that does nothing becomes none.
func (w *ruleLifter) rule(statements []Statement) ([]program.Rule, error) {
	if s, is := eitherNot(statements); is {
		w.at = s.text()
		return nil, errEither
	}
	if f := w.packets(); f != 0 && !w.inner {
		w.match = familyCondition(f)
	}
	if n := w.only[w.chain.Name]; len(n) > 0 && n[w.number] != 0 && !w.inner && w.asksPorts(statements) {
		w.match = append(w.match, protocolCondition(strconv.FormatUint(n[w.number], 10))...)
	}
	statements = flagsLast(statements)
	for i := 0; i < len(statements); i++ {
		s := statements[i]
		w.at = s.text()
		rest := statements[i+1:]
		if w.closed {
			return nil, errBehind
		}
		switch {
		case s.Kind == Match && w.offset(s):
			if len(w.actions) > 0 {
				return w.split(statements[i:])
			}
			c, err := w.offsetCondition(s)
			if err != nil && w.foreign != nil {
				c, err = w.opaque(s, err), nil
			}
			if err == nil {
				err = w.and(c)
			}
			if err != nil {
				return nil, err
			}
		case s.Kind == Match:
			conditions, err := w.conditions(s)
			if err != nil && w.foreign != nil {
				if conditions, err = w.more(s); err != nil {
					conditions, err = []program.Condition{w.opaque(s, err)}, nil
				}
			}
			if err != nil {
				return nil, err
			}
			if len(w.actions) > 0 && !w.holds(conditions) {
				return w.split(statements[i:])
			}
			if err := w.and(conditions...); err != nil {
				return nil, err
			}
		case s.Kind == VerdictMap && w.offset(s), (s.Kind == Jump || s.Kind == Goto) && w.asksOffsets(s.Name):
			if len(rest) > 0 {
				return nil, errBehind
			}
			return w.layout(s)
		case s.Kind == Jump && w.gate(s.Name) != nil:
			if len(rest) > 0 {
				return nil, errBehind
			}
			if !w.fits(w.gate(s.Name)) {
				return nil, errUnknown
			}
			return w.throughGate(w.gate(s.Name))
		case s.Kind == Goto && w.gate(s.Name) != nil:
			if len(rest) > 0 {
				return nil, errBehind
			}
			if !w.fits(w.gate(s.Name)) {
				return nil, errUnknown
			}
			return w.goneToGate(w.gate(s.Name))
		case s.Kind == RateLimit && len(rest) == 1 && rest[0].Kind == Log && s.Name == "" && !s.Over:
			// A log's own rate gates nothing, where nothing is behind the log.
			w.act(program.Log{Prefix: w.prefix(rest[0].Name), Rate: s.Rate.program()})
			i++
		case w.foreign != nil && s.Kind == SetAdd && w.bucket(s):
		case w.foreign != nil && s.opaqueGate():
			c := w.opaque(s, errUnknown)
			if len(w.actions) > 0 && !w.holds([]program.Condition{c}) {
				return w.split(statements[i:])
			}
			if err := w.and(c); err != nil {
				return nil, err
			}
		case w.foreign != nil && s.Kind == VerdictMap && len(rest) == 0 && w.spelt(s):
			return w.eachVerdict(s)
		default:
			needed, err := w.implied(s)
			if err != nil {
				return nil, err
			}
			if len(w.actions) > 0 && !w.holds(needed) {
				return w.splitAt(needed, statements[i:])
			}
			if err := w.and(needed...); err != nil {
				return nil, err
			}
			if err := w.action(s); err != nil && (w.foreign == nil || !w.instead(s, err)) {
				return nil, err
			}
		}
	}
	if len(w.actions) == 0 {
		return nil, nil
	}
	return append(w.others, w.made()), nil
}

func (w *ruleLifter) act(a program.Action) { w.actions = append(w.actions, a) }

// and adds conditions that are not there yet.
func (w *ruleLifter) and(conditions ...program.Condition) error {
	for _, c := range conditions {
		if w.holds([]program.Condition{c}) {
			continue
		}
		if w.counts {
			return errors.New("it follows an element that counts")
		}
		w.match = append(w.match, c)
		if s := w.out.Set(c.Set); s != nil && s.Counters && !c.Not && !s.Verdicts && s.Life == program.Static {
			w.counts = slices.ContainsFunc(s.Elements, func(e program.Element) bool { return e.Counter != "" })
		}
	}
	return nil
}

// holds says whether conditions are among those of the rule, and nothing was done
// that could have changed them.
func (w *ruleLifter) holds(conditions []program.Condition) bool {
	known := w.known()
	for _, c := range conditions {
		if !slices.ContainsFunc(known, func(m program.Condition) bool { return m.String() == c.String() }) {
			return false
		}
	}
	return true
}

// known are the conditions that hold where the next statement stands.
func (w *ruleLifter) known() []program.Condition {
	all := slices.Concat(w.above, w.match)
	for _, a := range w.actions {
		all = slices.DeleteFunc(all, func(c program.Condition) bool { return changes(a, &c) })
	}
	return all
}

// changes says whether an action may change what a condition asks. Family and
// protocol of a packet never change.
func changes(a program.Action, c *program.Condition) bool {
	e := program.EffectOf(a)
	written := func(f program.Field) bool { return slices.Contains(e.Writes, f) }
	switch {
	case len(c.SetKey) == 0 && (c.Field == program.Family || c.Field == program.Protocol):
		return false
	case e.Calls != "" || e.Map != "" || slices.Contains(e.Fills, c.Set):
		return true
	}
	return written(c.Field) || slices.ContainsFunc(c.SetKey, written)
}

// split puts the rest of a rule into a chain of its own, since an action has been
// done before.
func (w *ruleLifter) split(rest []Statement) ([]program.Rule, error) { return w.splitAt(nil, rest) }

func (w *ruleLifter) splitAt(needed []program.Condition, rest []Statement) ([]program.Rule, error) {
	below := *w
	below.match, below.above, below.actions, below.inner = slices.Clone(needed), w.known(), nil, true
	rules, err := below.rule(rest)
	w.at = below.at
	if err != nil {
		return nil, err
	}
	w.subs[w.chain.Name]++
	name := fmt.Sprintf("%s rule %d behind %d", w.chain.Name, w.number+1, w.subs[w.chain.Name])
	w.out.Chains = append(w.out.Chains, program.Chain{Name: name, Rules: rules})
	w.act(program.Jump{Chain: name})
	return []program.Rule{w.made()}, nil
}

// action lifts a statement that is not a condition.
func (w *ruleLifter) action(s Statement) error {
	// Behind a jump the kernel goes on with the next rule, and a key that a map of
	// verdicts does not have ends the rule (nft_lookup_eval).
	w.closed = s.ends() || s.Kind == Jump || s.Kind == VerdictMap
	switch s.Kind {
	case Verdict:
		return w.verdict(s.Name)
	case Jump, Goto:
		if w.lifter.tree.chain(s.Name) == nil {
			return fmt.Errorf("there is no chain %s", s.Name)
		}
		if s.Kind == Jump {
			w.act(program.Jump{Chain: w.lead(s.Name)})
			break
		}
		if w.inner && !w.lifter.tree.alwaysDecides(s.Name) {
			return errReturn // the end of the other chain would come back to the wrong place
		}
		w.act(program.Goto{Chain: w.lead(s.Name)})
	case VerdictMap:
		return w.verdictMap(s)
	case Count:
		if s.Name == "" && w.foreign != nil {
			w.countHere()
		}
		if s.Name != "" {
			w.act(program.Count{Counter: programName(bare(s.Name))})
		}
	case RateLimit:
		return w.limit(s)
	case ConnLimit:
		if s.Over {
			return errUnknown
		}
		w.act(program.ConnectionLimit{Name: connectionsName(s.Number, w.label()), Max: uint32(s.Number)}) //nolint:gosec // the kernel has 32 bits
	case Log:
		if s.Number != 0 {
			w.act(program.Log{Prefix: s.Name, Group: uint16(s.Number)}) //nolint:gosec // the kernel has 16 bits
			break
		}
		w.act(program.Log{Prefix: w.prefix(s.Name)})
	case NoTrack:
		w.act(program.NoTrack{})
	case Reject:
		return w.reject(s)
	case SetAdd:
		return w.setAdd(s)
	case Rewrite:
		return w.rewrite(s)
	case DNAT, SNAT, DNATPrefix, SNATPrefix:
		return w.translate(s)
	case Masquerade:
		ports, err := portRange(s.Ports)
		if err != nil {
			return err
		}
		w.act(program.Masquerade{Ports: ports})
	case Redirect:
		w.act(program.Redirect{Port: uint16(s.Number)}) //nolint:gosec // a port
	case Offload:
		w.act(program.Offload{Flowtable: programName(s.Name)})
	default:
		return errUnknown
	}
	return nil
}

// label names a rule for what in it has no name of its own.
func (w *ruleLifter) label() string {
	if w.comment != "" {
		return comment(w.comment)
	}
	return fmt.Sprintf("chain %s rule %d", w.chain.Name, w.number+1)
}

func (w *ruleLifter) verdict(name string) error {
	switch name {
	case "accept":
		w.act(program.Accept)
	case "drop":
		w.act(program.Drop)
	case "return":
		if w.inner {
			return errReturn
		}
		w.act(program.Return)
	case "continue":
	default:
		return errUnknown
	}
	return nil
}

// reject: a program rejects TCP with a reset and the rest by ICMP.
func (w *ruleLifter) reject(s Statement) error {
	switch s.Name {
	case "tcp reset": // implied has asked for TCP
	case "icmpx 1", "icmp 3", "icmpv6 4":
		if w.tcp && w.foreign == nil && w.protocolHolds(tcp) {
			return fmt.Errorf("it answers TCP with ICMP, and a policy answers with a reset")
		}
	default:
		return errUnknown
	}
	w.act(program.Reject)
	return nil
}

// protocolHolds says whether packets of a protocol may meet the conditions.
func (w *ruleLifter) protocolHolds(n uint64) bool {
	for _, c := range slices.Concat(w.above, w.match) {
		if c.Field == program.Protocol && c.Set == "" && holds(c.Numbers, n) == c.Not {
			return false
		}
	}
	return true
}

// implied is what the kernel or nft asks before a statement that is not a condition.
func (w *ruleLifter) implied(s Statement) ([]program.Condition, error) {
	switch s.Kind {
	case Reject:
		switch kind, _, _ := strings.Cut(s.Name, " "); kind {
		case "tcp":
			return protocolCondition("6"), nil
		case "icmp":
			return familyCondition(4), nil
		case "icmpv6":
			return familyCondition(6), nil
		}
	case DNAT, SNAT, DNATPrefix, SNATPrefix:
		family := 4
		if s.Name == "ip6" {
			family = 6
		}
		if s.Kind == DNAT || s.Kind == SNAT {
			return familyCondition(family), nil
		}
		field := program.Destination
		if s.Kind == SNATPrefix {
			field = program.Source
		}
		from, err := netip.ParsePrefix(s.Values[0])
		if err != nil {
			return nil, err
		}
		inside := addrset.FromPrefixes(from)
		if w.within(field, inside) {
			return familyCondition(family), nil
		}
		return append(familyCondition(family), addressCondition(field, inside, false)), nil
	case Rewrite, SetAdd, VerdictMap:
		return impliedBy(s.Field), nil
	case Unknown:
		return s.looksInto(), nil
	}
	return nil, nil
}

// within says whether the rule's conditions keep an address in a set.
func (w *ruleLifter) within(field program.Field, inside addrset.Set) bool {
	return slices.ContainsFunc(w.known(), func(c program.Condition) bool {
		mine, ok := w.addressesOf(c)
		return ok && c.Field == field && !c.Not && inside.ContainsSet(mine)
	})
}

// addressesOf are the addresses of a condition on one address.
func (w *ruleLifter) addressesOf(c program.Condition) (addrset.Set, bool) {
	switch {
	case len(c.SetKey) > 0 || !isAddress(c.Field):
		return addrset.Set{}, false
	case c.Set != "":
		s := w.out.Set(c.Set)
		if s == nil || s.Life == program.Dynamic || s.Life == program.Followed || len(s.Elements) > 0 && s.Verdicts {
			return addrset.Set{}, false
		}
		return allAddresses(s), true
	}
	s, err := addressSet(c.Addresses)
	return s, err == nil
}

// alwaysDecides says whether every packet that enters a chain leaves it by a
// verdict.
func (t *Tree) alwaysDecides(name string) bool {
	c := t.chain(name)
	if c == nil {
		return false
	}
	b := make(block, len(c.Rules))
	for i, r := range c.Rules {
		b[i] = r.Statements
		if slices.ContainsFunc(b[i], goesOn) {
			return false
		}
	}
	return b.decides() && !b.returns()
}

func familyCondition(family int) []program.Condition {
	n := uint64(family) //nolint:gosec // 4 or 6
	return []program.Condition{{Field: program.Family, Numbers: []program.NumberRange{{From: n, To: n}}}}
}

func protocolCondition(number string) []program.Condition {
	n, _ := strconv.ParseUint(number, 10, 8)
	return []program.Condition{{Field: program.Protocol, Numbers: []program.NumberRange{{From: n, To: n}}}}
}

func addressCondition(field program.Field, s addrset.Set, not bool) program.Condition {
	return program.Condition{Field: field, Not: not, Addresses: s.Ranges()}
}

// prefix is what the policy says of a log line, without the owner's.
func (r *lifter) prefix(kernel string) string { return withoutOwner(r.out.Owner, kernel) }

func withoutOwner(owner, prefix string) string {
	if prefix == owner+": " {
		return ""
	}
	said, own := strings.CutPrefix(prefix, owner+" ")
	said, whole := strings.CutSuffix(said, ": ")
	if own && whole && said != "" {
		return said
	}
	return prefix
}
