package nftables

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"net/netip"
	"regexp"
	"slices"
	"strings"
	"sync"

	"sluice/internal/base/addrset"
	"sluice/internal/program"
)

// What a rule of another owner says that a program has no words for. A condition becomes
// an opaque one, an effect is left out where the packet goes on, and a verdict that others
// give is opaque too. Each is refused by name as well.

// id is that of a rule of another owner; other rules have none.
func (w *ruleLifter) id() string {
	if w.foreign == nil {
		return ""
	}
	return fmt.Sprintf("%s:%d", w.chain.Name, w.number+1)
}

// origin is where the rule is.
func (w *ruleLifter) origin() program.Origin {
	k := w.lifter.tree.chain(w.chain.Name).Rules[w.number]
	out := program.Origin{Foreign: true, File: "chain " + w.chain.Name, Line: w.number + 1, Text: k.text()}
	if w.foreign != nil {
		out.File = fmt.Sprintf("nft %s %s %s", w.foreign.out.Family, w.foreign.out.Name, w.chain.Name)
		out.Text = cmp.Or(w.foreign.texts[k.Handle], out.Text)
	}
	return out
}

// packets is the family of the packets that the rule sees; 0 is both.
func (w *ruleLifter) packets() int {
	if w.foreign != nil {
		return map[string]int{"ip": 4, "ip6": 6}[w.foreign.out.Family]
	}
	return packetFamily(w.chain.Name)
}

// opaque stands for a statement that packets may not pass.
func (w *ruleLifter) opaque(s Statement, why error) program.Condition {
	text := w.said(s)
	w.refuse(w.chain, w.number, text, why)
	c := program.Condition{Field: program.Opaque, Text: text}
	if s.Kind != Match {
		c.Text = fmt.Sprintf("%s (%s)", c.Text, w.id()) // two of one text answer one packet differently
	}
	return c
}

// said is a statement as nft lists it; of one that is not known the rule, since there is
// but its JSON.
func (w *ruleLifter) said(s Statement) string {
	if text := w.foreign.texts[w.chain.Rules[w.number].Handle]; text != "" && s.Kind == Unknown {
		return fmt.Sprintf("%s in %q", s.keyword(), text)
	}
	return s.text()
}

// more lifts conditions that the backend itself never makes.
func (w *ruleLifter) more(s Statement) ([]program.Condition, error) {
	if s.Mask != "" {
		return w.prefixes(s)
	}
	return w.among(s)
}

// prefixes lifts an address under a mask, which is compared or looked up.
func (w *ruleLifter) prefixes(s Statement) ([]program.Condition, error) {
	field := addressField(s.Field)
	mask, err := netip.ParseAddr(s.Mask)
	if field == "" || err != nil || s.Op != "==" && s.Op != "!=" {
		return nil, errUnknown
	}
	host := hostBits(complement(mask).String())
	if host < 0 {
		return nil, fmt.Errorf("the mask %s is not a prefix", s.Mask)
	}
	var all, of addrset.Builder
	for _, v := range s.Values {
		r, err := addrset.ParseRange(v)
		if err != nil {
			return nil, err
		}
		all.AddRange(r)
	}
	if k := w.lifter.tree.set(s.Set); k != nil {
		if k.Elements.Unknown || k.Asks || len(k.Types) != 1 || len(k.Elements.Tuples) > 0 {
			return nil, errUnread
		}
		all.AddSet(k.Elements.all())
	} else if s.Set != "" {
		return nil, errUnknown
	}
	for r := range all.Set().Each() {
		p := netip.PrefixFrom(r.From, host)
		if r.From != r.To || p.Masked().Addr() != r.From || r.From.BitLen() != mask.BitLen() {
			return nil, fmt.Errorf("%s is not an address with the mask %s", r, s.Mask)
		}
		of.AddPrefix(p)
	}
	return append(impliedBy(s.Field), program.Condition{Field: field, Not: s.Op == "!=", Set: w.keep(w.chain, w.number, of.Set())}), nil
}

func complement(a netip.Addr) netip.Addr {
	b := a.AsSlice()
	for i := range b {
		b[i] = ^b[i]
	}
	out, _ := netip.AddrFromSlice(b)
	return out
}

// among lifts the look-up of a key of several parts among values that are in the rule.
func (w *ruleLifter) among(s Statement) ([]program.Condition, error) {
	key, err := w.key(s.Field)
	switch {
	case err != nil:
		return nil, err
	case s.Kind != Match || s.Set != "" || s.Mask != "" || len(key) < 2 || s.Op != "==" && s.Op != "!=":
		return nil, errUnknown
	}
	k := &Set{Name: fmt.Sprintf("%s set %d", w.id(), len(w.out.Sets)), Types: typesOf(s.Field), Elements: Elements{Tuples: s.Values}}
	id, err := w.set(k, key)
	if err != nil {
		return nil, err
	}
	return append(impliedBy(s.Field), program.Condition{Field: key[0], SetKey: key, Set: id, Not: s.Op == "!="}), nil
}

// keyword is what the JSON of an unknown statement is about.
func (s Statement) keyword() string {
	var object map[string]json.RawMessage
	if s.Kind != Unknown || json.Unmarshal([]byte(s.Name), &object) != nil || len(object) != 1 {
		return ""
	}
	for word := range object {
		return word
	}
	return ""
}

// opaqueGate says of a statement that packets may end their way through the rule at it,
// by what no program says.
func (s Statement) opaqueGate() bool {
	switch s.Kind {
	case RateLimit, ConnLimit:
		return s.Over
	case SetAdd:
		return len(s.Inner) > 0
	case Unknown:
		return slices.Contains([]string{"match", "limit", "quota", "ct count", "meter", "set", "tproxy", "xt", "osf"}, s.keyword())
	}
	return false
}

// bucket lifts a limit by source or destination, whose buckets are in a set that nothing
// else asks.
func (w *ruleLifter) bucket(s Statement) bool {
	family, per := sourceFamily(s)
	k := w.lifter.tree.set(s.Set)
	if family == 0 || k == nil || len(s.Inner) != 1 || s.Number != 0 || len(w.actions) > 0 {
		return false
	}
	inner := s.Inner[0]
	if inner.Over || inner.Name != "" || inner.Kind != RateLimit && inner.Kind != ConnLimit {
		return false
	}
	if w.out.Set(k.Name) == nil {
		w.out.Sets = append(w.out.Sets, program.Set{ID: k.Name, Key: []program.Field{program.Source}, Life: program.Dynamic, Size: k.Size, Timeout: k.Timeout})
	}
	if set := w.out.Set(k.Name); set.Life != program.Dynamic || w.and(impliedBy(s.Field)...) != nil {
		return false
	}
	w.ids[k.Name] = k.Name
	if inner.Kind == ConnLimit {
		w.act(program.ConnectionLimit{Name: perSourceName(k.Name), Max: uint32(inner.Number), Per: per, Table: k.Name}) //nolint:gosec // the kernel has 32 bits
	} else {
		w.act(program.Limit{Name: perSourceName(k.Name), Rate: inner.Rate.program(), Per: per, Table: k.Name})
	}
	return true
}

// countHere counts on the rule's own counter, which is the last one where it has several.
func (w *ruleLifter) countHere() {
	own := 0
	for _, s := range w.chain.Rules[w.number].Statements {
		if s.Kind == Count && s.Name == "" {
			own++
		}
	}
	if w.foreign.counts[w.id()]++; w.foreign.counts[w.id()] < own {
		return
	}
	w.out.Counters = append(w.out.Counters, program.Counter{Name: w.id()})
	w.act(program.Count{Counter: w.id()})
}

// instead does what of a statement can be said; false where that is not known.
func (w *ruleLifter) instead(s Statement, why error) bool {
	w.closed = s.ends()
	switch s.Kind {
	case SetAdd, Rewrite, Offload:
	case Reject:
		w.act(program.Reject)
		return true // which error it answers by is not told apart
	case DNAT, SNAT, DNATPrefix, SNATPrefix, Masquerade, Redirect:
		w.act(program.Accept)
	case Unknown:
		switch s.keyword() {
		case "log":
			w.act(s.log())
			return true
		case "reject":
			w.act(program.Reject)
			w.closed = true
			return true
		case "dnat", "snat", "masquerade", "redirect":
			w.act(s.translation())
			w.closed = true
		case "queue":
			w.other(w.said(s), program.Drop)
			w.act(program.Accept)
			w.closed = true
		case "fwd", "synproxy":
			w.other(w.said(s), program.Drop)
		case "", "vmap":
			return false
		}
	default:
		return false
	}
	w.refuse(w.chain, w.number, w.said(s), why)
	return true
}

// log is what an unknown statement logs: the level and what of the packet is written are
// not told apart.
func (s Statement) log() program.Log {
	var of struct {
		Log struct {
			Prefix string
			Group  uint16
		}
	}
	_ = json.Unmarshal([]byte(s.Name), &of) // null has neither
	return program.Log{Prefix: of.Log.Prefix, Group: of.Log.Group}
}

// translation is the first of what an unknown statement may choose; or that the packet
// leaves its chain as accepted.
func (s Statement) translation() program.Action {
	type body struct {
		Addr any
		Port any
	}
	var of map[string]body
	d := json.NewDecoder(strings.NewReader(s.Name))
	d.UseNumber()
	_ = d.Decode(&of) // what is another thing has no address
	b := of[s.keyword()]
	text, _ := valueOf(b.Addr)
	text, _, _ = strings.Cut(text, "-")
	to, err := netip.ParseAddr(text)
	ports, _ := readPorts(b.Port)
	first, _ := portRange(ports)
	switch word := s.keyword(); {
	case word == "masquerade":
		return program.Masquerade{Ports: first}
	case word == "redirect":
		return program.Redirect{Port: uint16(first.From)} //nolint:gosec // 16 bits
	case err == nil && word == "dnat":
		return program.DNAT{To: to, Port: uint16(first.From)} //nolint:gosec // 16 bits
	case err == nil:
		return program.SNAT{To: to, Ports: first}
	}
	return program.Accept
}

// other is a verdict that somebody else may give in this place.
func (w *ruleLifter) other(text string, does program.Action) {
	rule := w.made()
	rule.Match = append(slices.Clone(w.match), program.Condition{Field: program.Opaque, Text: fmt.Sprintf("%s: %s (%s)", text, program.ActionText(does), w.id())})
	rule.Actions = append(slices.Clone(w.actions), does)
	w.others = append(w.others, rule)
}

// spelt says of a verdict map that it is read key by key: its field has no key in a
// program, and the keys are in the rule.
func (w *ruleLifter) spelt(s Statement) bool {
	_, err := w.key(s.Field)
	return s.Set == "" && (err != nil || s.Mask != "")
}

// eachVerdict makes a rule of each key of a verdict map.
func (w *ruleLifter) eachVerdict(s Statement) ([]program.Rule, error) {
	rules := w.others
	if len(w.actions) > 0 {
		if slices.ContainsFunc(w.actions, func(a program.Action) bool { return program.EffectOf(a).Gates }) {
			return nil, errBehind
		}
		rules = append(rules, w.made())
		w.actions = nil
	}
	for _, value := range slices.Sorted(maps.Keys(s.Map)) {
		one := *w
		one.match, one.others = slices.Clone(w.match), nil
		of := Statement{Kind: Match, Field: s.Field, Mask: s.Mask, Op: "==", Values: []string{value}}
		conditions, err := one.conditions(of)
		if err != nil {
			conditions, err = one.more(of)
		}
		if err != nil || value == "*" {
			conditions = []program.Condition{one.opaque(of, errUnknown)}
		}
		if err := one.and(conditions...); err != nil {
			return nil, err
		}
		does := Statement{Kind: Verdict, Name: s.Map[value]}
		if verb, chain, leads := strings.Cut(s.Map[value], " "); leads {
			does = Statement{Kind: Kind(verb), Name: chain}
		}
		if err := one.action(does); err != nil {
			return nil, err
		}
		if len(one.actions) > 0 {
			rules = append(rules, one.made())
		}
	}
	return rules, nil
}

// target is that of a verdict in the JSON of a statement.
var target = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`"target":"([^"]*)"`) })

// anything stands for a rule of which it is not known how it ends: each end that it has
// is possible.
func (w *ruleLifter) anything(statements []Statement) []program.Rule {
	text := w.origin().Text
	w.match, w.actions, w.others, w.inner = nil, nil, nil, false
	if f := w.packets(); f != 0 {
		w.match = familyCondition(f)
	}
	chains := map[string]bool{}
	for _, s := range statements {
		switch {
		case s.Kind == Jump || s.Kind == Goto:
			chains[s.Name] = true
		case s.Kind == Unknown:
			for _, m := range target().FindAllStringSubmatch(s.Name, -1) {
				chains[m[1]] = true
			}
		case s.Kind == VerdictMap:
			for _, verdict := range w.lifter.tree.verdicts(s) {
				if _, chain, leads := strings.Cut(verdict, " "); leads {
					chains[chain] = true
				}
			}
		}
	}
	for _, chain := range slices.Sorted(maps.Keys(chains)) {
		if w.lifter.tree.chain(chain) != nil {
			w.other(text, program.Jump{Chain: w.lead(chain)})
		}
	}
	w.other(text, program.Drop)
	w.other(text, program.Accept)
	return w.others
}
