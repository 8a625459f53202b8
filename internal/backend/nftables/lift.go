package nftables

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"sluice/internal/backend"
	"sluice/internal/base/addrset"
	"sluice/internal/program"
)

// The way back: what was read from the kernel becomes a program. Rules are read
// statement by statement, whoever wrote them; what one of them means that is not
// known here is refused by name, and never left out silently. Three things of the
// lowering are more than one rule each and are recognised by their shape: limits by
// source (lift_limit.go), sets that are laid out in chains (lift_layout.go), and
// the two ways of rejecting.
//
// Names of the kernel's sets, limits and counters are hints: they label what is
// free in a proof (whether a table holds a source, whether a limit holds), so that
// both sides call it the same.

// lifter is one tree on its way to a program.
type lifter struct {
	tree   *Tree
	out    *program.Program
	failed []backend.Unlifted
	banned int

	queue   []string
	queued  map[string]bool
	ids     map[string]string   // of the program's sets, by the kernel's name
	tcp     map[string]bool     // chains that TCP may reach
	only    map[string][]uint64 // of rules by chain: the protocol that alone comes there
	offsets map[string]bool     // chains that ask for parts of addresses alone
	gates   map[string]*gate
	subs    map[string]int // chains that were made beside one
	work    int            // blocks of addresses looked at so far
	foreign *foreign       // nil: of the table of this backend
}

// Lift makes the program that a state is.
func (nftables) Lift(have backend.State) (*backend.Lifted, error) {
	s, err := stateOf(have)
	if err != nil {
		return nil, err
	}
	if s.Present && !s.Whole {
		return nil, errors.New("not all elements of the sets were read")
	}
	out := lift(&s.Tree)
	for _, e := range s.Extra {
		if e.Kind == "chain" {
			out.Unlifted = append(out.Unlifted, backend.Unlifted{Chain: e.Name, Text: "chain " + e.Name, Why: "in table " + e.Family + " " + s.Tree.Table + " is no such chain"})
		}
	}
	return out, nil
}

func lift(t *Tree) *backend.Lifted { return newLifter(t).lift() }

func newLifter(t *Tree) *lifter {
	r := &lifter{
		tree: t, out: &program.Program{Owner: programName(t.Table)},
		only: onlyProtocols(t), queued: map[string]bool{}, ids: map[string]string{}, gates: map[string]*gate{}, subs: map[string]int{},
	}
	r.reachedByTCP()
	return r
}

func (r *lifter) lift() *backend.Lifted {
	t := r.tree
	for _, c := range t.Counters {
		r.out.Counters = append(r.out.Counters, program.Counter{Name: programName(bare(c.Name)), Comment: c.Comment})
	}
	for _, f := range t.Flowtables {
		r.out.Flowtables = append(r.out.Flowtables, program.Flowtable{Name: programName(f.Name), Devices: f.Devices})
	}
	for _, c := range t.Chains {
		if c.Base != nil && !slices.Contains(t.Dormant, tableFamily(c.Name)) {
			r.hook(c)
			r.lead(c.Name)
		}
	}
	for len(r.queue) > 0 {
		c := t.chain(r.queue[0])
		r.queue = r.queue[1:]
		r.chain(c)
	}
	out := &backend.Lifted{Program: r.out, Unlifted: r.failed, Rules: t.ruleCount(), Banned: r.banned}
	used := t.used()
	for _, k := range t.Sets {
		out.Elements += k.Len()
		for _, e := range k.Strange {
			if used["set "+k.Name] {
				out.Strange = append(out.Strange, backend.StrangeElement{Set: cmp.Or(r.ids[k.Name], k.Name), Want: e.want(), Have: e.text()})
			}
		}
	}
	return out
}

// refuse names what is not known; n is the rule's number from 0, or -1.
func (r *lifter) refuse(c *Chain, n int, text string, why error) {
	u := backend.Unlifted{Chain: c.Name, Rule: n + 1, Text: text, Why: why.Error()}
	if n >= 0 {
		u.Number = c.Rules[n].Handle
		if text == "" {
			u.Text = c.Rules[n].text()
		}
	}
	r.failed = append(r.failed, u)
}

// lead makes sure that a chain becomes one of the program.
func (r *lifter) lead(name string) string {
	if !r.queued[name] && r.tree.chain(name) != nil {
		r.queued[name] = true
		r.queue = append(r.queue, name)
	}
	return programName(name)
}

// hook lifts a base chain's place. What a chain of type route does more than one
// of type filter, to ask the routing table again, no program says: where one
// rewrites packets of the host's own it has to be of that type.
func (r *lifter) hook(c *Chain) {
	h := program.Hook{Kind: program.HookKind(c.Base.Hook), Devices: c.Base.Devices, Default: program.Verdict(c.Base.Policy), Chain: programName(c.Name)}
	if h.Default == "" {
		h.Default = program.Accept
	}
	phase, err := phaseOf(c.Base)
	if r.foreign != nil {
		phase, err = foreignPhase(c.Base)
	}
	if err != nil {
		r.refuse(c, -1, c.title(), err)
	}
	if phase == "" {
		return
	}
	h.Phase = phase
	if h.Kind == program.Ingress && len(h.Devices) == 0 {
		r.refuse(c, -1, c.title(), errors.New("its devices are not known"))
	}
	if r.foreign == nil && h.Kind == program.Output && phase != program.Filter && phase != program.NAT && c.Base.Type != "route" && c.rewrites() {
		r.refuse(c, -1, c.title(), fmt.Errorf("it rewrites packets of the host itself and is not of type route"))
	}
	r.out.Hooks = append(r.out.Hooks, h)
}

func (c *Chain) rewrites() bool {
	return slices.ContainsFunc(c.Rules, func(r Rule) bool {
		return slices.ContainsFunc(r.Statements, func(s Statement) bool {
			return s.Kind == Rewrite && (s.Field == "meta mark" || strings.HasSuffix(s.Field, "addr"))
		})
	})
}

// phaseOf tells the phase of a base chain. The kernel knows more places than a
// program does.
func phaseOf(b *Base) (program.Phase, error) {
	switch program.HookKind(b.Hook) {
	case program.Ingress, program.Prerouting, program.Input, program.Forward, program.Output, program.Postrouting:
	default:
		return "", fmt.Errorf("hook %s is not known", b.Hook)
	}
	if b.Type == "nat" {
		source := b.Hook == string(program.Postrouting) || b.Hook == string(program.Input)
		if source && b.Priority == prioritySourceNAT || !source && b.Priority == priorityDestinationNAT {
			return program.NAT, nil
		}
		return "", fmt.Errorf("a chain of type nat at priority %d of %s", b.Priority, b.Hook)
	}
	if (b.Hook == string(program.Ingress)) != (b.Priority == priorities[program.Early]) {
		return "", fmt.Errorf("a chain at priority %d of %s", b.Priority, b.Hook)
	}
	for phase, priority := range priorities {
		if b.Priority == priority {
			return phase, nil
		}
	}
	return "", fmt.Errorf("a chain at priority %d", b.Priority)
}

// chain lifts the rules of a chain.
func (r *lifter) chain(c *Chain) {
	at := len(r.out.Chains)
	name := programName(c.Name)
	r.out.Chains = append(r.out.Chains, program.Chain{Name: name, Comment: c.Comment})
	var rules []program.Rule
	tcp := r.tcp[c.Name]
	for n, k := range c.Rules {
		w := &ruleLifter{lifter: r, chain: c, number: n, comment: k.Comment, tcp: tcp}
		more, err := w.rule(k.Statements)
		if err != nil {
			if r.foreign != nil {
				more, w.at = w.anything(k.Statements), w.origin().Text
			}
			r.refuse(c, n, w.at, err)
		}
		rules = append(rules, more...)
		tcp = tcp && !endsTCP(k)
	}
	r.out.Chains[at].Rules = rules
}

// endsTCP says whether no TCP packet comes past a rule.
func endsTCP(k Rule) bool {
	for i, s := range k.Statements {
		switch {
		case s.Kind == Match && s.Field == "meta l4proto" && s.Op == "==" && slices.Contains(s.Values, "6"):
		case s.Kind == Count:
		default:
			return i == len(k.Statements)-1 && s.ends() && !goesOn(s)
		}
	}
	return false
}

// goesOn says of a verdict that it only ends the rule.
func goesOn(s Statement) bool { return s.Kind == Verdict && s.Name == "continue" }

// reachedByTCP finds the chains that a TCP packet may get to: what is answered by
// ICMP alone, which a program does to no TCP packet, has to be elsewhere.
func (r *lifter) reachedByTCP() {
	r.tcp = map[string]bool{}
	var queue []string
	reach := func(name string) {
		if name != "" && !r.tcp[name] {
			r.tcp[name] = true
			queue = append(queue, name)
		}
	}
	for _, c := range r.tree.Chains {
		if c.Base != nil {
			reach(c.Name)
		}
	}
	for len(queue) > 0 {
		c := r.tree.chain(queue[0])
		queue = queue[1:]
		if c == nil {
			continue
		}
		for _, k := range c.Rules {
			for _, name := range r.targetsOfTCP(k) {
				reach(name)
			}
			if endsTCP(k) {
				break
			}
		}
	}
}

// targetsOfTCP are the chains that a rule leads TCP packets to.
func (r *lifter) targetsOfTCP(k Rule) []string {
	var out []string
	for _, s := range k.Statements {
		if s.Kind == Match && !mayBeTCP(s) {
			return out
		}
		switch s.Kind {
		case Jump, Goto:
			out = append(out, s.Name)
		case VerdictMap:
			out = append(out, r.ledTCP(s)...)
		}
	}
	return out
}

func (r *lifter) ledTCP(s Statement) []string {
	var out []string
	parts := strings.Split(s.Field, " . ")
	at := slices.Index(parts, "meta l4proto")
	for _, p := range parts {
		if header, _, _ := strings.Cut(p, " "); protocolOf[header] != "" && protocolOf[header] != "6" {
			return nil
		}
	}
	lead := func(tuple, verdict string) {
		if at >= 0 {
			values := strings.Split(tuple, " . ")
			if at < len(values) && !valuesHold(values[at:at+1], tcp) {
				return
			}
		}
		if _, chain, leads := strings.Cut(verdict, " "); leads {
			out = append(out, chain)
		}
	}
	for tuple, verdict := range s.Map {
		lead(tuple, verdict)
	}
	if k := r.tree.set(s.Set); k != nil {
		for i, tuple := range k.Elements.Tuples {
			if i < len(k.Elements.Verdicts) {
				lead(tuple, k.Elements.Verdicts[i])
			}
		}
	}
	return out
}

// mayBeTCP says whether a TCP packet may meet a condition.
func mayBeTCP(s Statement) bool {
	if s.Field == "meta l4proto" && s.Set == "" && s.Mask == "" {
		switch s.Op {
		case "==":
			return valuesHold(s.Values, tcp)
		case "!=":
			return !valuesHold(s.Values, tcp)
		}
		return true
	}
	for part := range strings.SplitSeq(s.Field, " . ") {
		if header, _, _ := strings.Cut(part, " "); protocolOf[header] != "" && protocolOf[header] != "6" {
			return false
		}
	}
	return true
}

// valuesHold says whether a number is among values.
func valuesHold(values []string, n uint64) bool {
	return slices.ContainsFunc(values, func(v string) bool {
		x, ok := parseNumberValue(v)
		return !ok || x.From <= n && n <= x.To
	})
}

// keep puts a set of addresses of its own into the program and gives its id.
func (r *lifter) keep(c *Chain, n int, addresses addrset.Set) string {
	r.subs["set "+c.Name]++
	id := fmt.Sprintf("%s rule %d part %d", c.Name, n+1, r.subs["set "+c.Name])
	r.out.Sets = append(r.out.Sets, program.Set{ID: id, Key: []program.Field{program.Source}, Life: program.Static, Addresses: addresses})
	return id
}

// Loaded is what the kernel holds when the artifact has been loaded, without asking
// it.
func (a *artifact) Loaded() backend.State {
	t := a.tree()
	return &State{Present: true, Contents: true, Whole: true, Tree: *t}
}
