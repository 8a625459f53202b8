package nftables

import (
	"fmt"
	"slices"
	"strings"

	"sluice/internal/backend"
	"sluice/internal/base/sorting"
	"sluice/internal/program"
)

// pass is one step from a program to a tree.
type pass struct {
	name     string
	needs    []string // passes that come before it
	promises string   // what holds afterwards
	reason   string   // why it stands where it stands
	run      func(*lowering)
}

// passes is the way from a program to a tree, in order.
var passes = []pass{
	{
		name:     "capabilities",
		promises: "nothing uses features that this kernel lacks: they are dropped with a note, or the rule is refused",
		reason:   "what is dropped needs no sets and no chains",
		run:      (*lowering).capabilities,
	},
	{
		name:     "counters",
		promises: "every counter of the program is an object of the tree",
		reason:   "rules name counters",
		run:      (*lowering).counters,
	},
	{
		name:     "layouts",
		promises: "every large static set has a layout, within the budget of the policy",
		reason:   "a set that is laid out in chains has none of its own",
		run:      (*lowering).layOut,
	},
	{
		name: "sets", needs: []string{"layouts"},
		promises: "every set of the program has its parts: kernel sets of one family and one layout",
		reason:   "a rule becomes one rule for each part that it matches",
		run:      (*lowering).sets,
	},
	{
		name: "chains", needs: []string{"capabilities"},
		promises: "every chain of the program is a chain of the tree, without rules",
		reason:   "the program's names come before those that rules make",
		run:      (*lowering).chains,
	},
	{
		name: "rules", needs: []string{"counters", "sets", "chains"},
		promises: "every rule is there, as statements, by family where it has to be",
		reason:   "sets and names are known",
		run:      (*lowering).rules,
	},
	{
		name: "families", needs: []string{"rules"},
		promises: "where only packets of one family arrive, rules do not match it, and none is for the other",
		reason:   "one comparison for each rule; which sets and chains are used is known afterwards",
		run:      (*lowering).families,
	},
	{
		name: "unused", needs: []string{"families"},
		promises: "every set and limit is used by a rule, every chain is reached",
		reason:   "a set costs memory; which ones are used is known only now",
		run:      (*lowering).unused,
	},
	{
		name: "tables", needs: []string{"unused"},
		promises: "chains of type nat are in tables of one family, each with the chains and sets that it uses",
		reason:   "the chains that NAT rules jump to are known only now",
		run:      (*lowering).tables,
	},
	{
		name: "protocols", needs: []string{"unused"},
		promises: "where only packets of one protocol arrive, rules about its ports do not match it",
		reason:   "one comparison for each rule; which chains are left and what jumps there is known only now",
		run:      (*lowering).protocols,
	},
}

// lowering is one program on its way to a tree.
type lowering struct {
	program  *program.Program
	costs    *CostModel
	can      backend.Capabilities
	tree     *Tree
	parts    map[string]*parts
	laid     map[string]map[int]*laid // sets that are laid out in chains, by family
	layouts  []backend.LayoutReport
	choice   layoutChoice
	offloads bool
	made     map[string]*Chain // chains that rules made, by key and contents
	notes    []program.Note
	refusals []backend.Refusal
	rejects  bool  // a verdict map leads to the chain that rejects
	failed   error // a mistake of the program's maker
}

// lower runs the passes, each behind what it needs, and checks the tree that they
// leave: in between it names what is made later.
func (n nftables) lower(p *program.Program, can backend.Capabilities) (*lowering, error) {
	return lowerChoosing(p, can, n.costs, n.choice())
}

func lowerChoosing(p *program.Program, can backend.Capabilities, costs *CostModel, choice layoutChoice) (*lowering, error) {
	l := &lowering{
		choice: choice, costs: costs,
		program: p, can: can, tree: &Tree{Table: name(p.Owner), Grace: p.Grace}, parts: map[string]*parts{}, laid: map[string]map[int]*laid{}, made: map[string]*Chain{},
		notes: slices.Clone(p.Notes),
	}
	var done []string
	for _, pass := range passes {
		for _, need := range pass.needs {
			if !slices.Contains(done, need) {
				return nil, fmt.Errorf("pass %s of backend %s comes before %s", pass.name, Name, need)
			}
		}
		pass.run(l)
		if l.failed != nil {
			return nil, fmt.Errorf("pass %s of backend %s: %w", pass.name, Name, l.failed)
		}
		done = append(done, pass.name)
	}
	if len(l.refusals) > 0 {
		return nil, &backend.RefusedError{Backend: Name, Refusals: l.refusals}
	}
	if err := l.tree.check(); err != nil {
		return nil, fmt.Errorf("backend %s made an incomplete tree: %w", Name, err)
	}
	if p.CountsOnly {
		if err := l.tree.countsOnly(); err != nil {
			return nil, fmt.Errorf("backend %s made a tree that does more than count: %w", Name, err)
		}
	}
	return l, nil
}

func (l *lowering) note(o program.Origin, format string, args ...any) {
	n := program.Note{Origin: o, Text: fmt.Sprintf(format, args...)}
	if !slices.Contains(l.notes, n) {
		l.notes = append(l.notes, n)
	}
}

func (l *lowering) refuse(o program.Origin, hint, format string, args ...any) {
	r := backend.Refusal{Origin: o, Why: fmt.Sprintf(format, args...), Hint: hint}
	if !slices.Contains(l.refusals, r) {
		l.refusals = append(l.refusals, r)
	}
}

func (l *lowering) counters() {
	own := countersOfRules(l.program)
	for _, c := range l.program.Counters {
		if !own[c.Name] {
			continue
		}
		l.tree.Counters = append(l.tree.Counters, Counter{Name: name(c.Name), ID: c.Name, Comment: origin(c.Origin, c.Comment)})
	}
	sorting.By(l.tree.Counters, func(a, b Counter) int { return strings.Compare(a.Name, b.Name) })
}

func (l *lowering) chains() {
	for i := range l.program.Chains {
		c := &l.program.Chains[i]
		l.tree.Chains = append(l.tree.Chains, &Chain{Name: name(c.Name), Comment: c.Comment})
	}
	for _, h := range l.program.Hooks {
		c := l.tree.chain(name(h.Chain))
		if c == nil {
			l.failed = fmt.Errorf("hook %s has no chain %s", h.Kind, h.Chain)
			return
		}
		c.Base = l.base(h)
	}
	if l.offloads {
		for _, f := range l.program.Flowtables {
			l.tree.Flowtables = append(l.tree.Flowtables, Flowtable{Name: name(f.Name), Devices: slices.Sorted(slices.Values(f.Devices))})
		}
	}
	for _, f := range l.tree.Flowtables {
		l.devices(f.Devices)
	}
	if l.rejects {
		l.rejectAny()
	}
}

func (l *lowering) devices(names []string) {
	for _, d := range names {
		if !validInterface(d) || strings.HasSuffix(d, "*") {
			l.refuse(program.Origin{}, "", "the interface %q cannot be named in a flowtable: rename it with \"ip link set dev NAME name OTHER\", or remove accelerate", d)
		}
	}
}

// priorities of phases, from include/uapi/linux/netfilter_ipv4.h; a flowtable
// is asked at 0 of ingress, so Early has to be before.
var priorities = map[program.Phase]int{
	program.Early: -10, program.Raw: -300, program.Mangle: -150, program.Watching: -1, program.Filter: 0, program.Behind: 99,
}

const (
	priorityDestinationNAT = -100 // NF_IP_PRI_NAT_DST
	prioritySourceNAT      = 100  // NF_IP_PRI_NAT_SRC
)

func (l *lowering) base(h program.Hook) *Base {
	b := &Base{Type: "filter", Hook: string(h.Kind), Priority: priorities[h.Phase], Policy: string(h.Default)}
	switch h.Kind {
	case program.Ingress:
		b.Devices = slices.Sorted(slices.Values(h.Devices))
		l.devices(b.Devices)
	case program.XDP, program.Egress:
		l.refuse(program.Origin{}, "", "chain %s: this backend has no hook %s", h.Chain, h.Kind)
	}
	switch {
	case h.Phase == program.NAT:
		b.Type = "nat"
		b.Priority = priorityDestinationNAT
		if h.Kind == program.Postrouting || h.Kind == program.Input {
			b.Priority = prioritySourceNAT
		}
	case h.Kind == program.Output && h.Phase != program.Filter && l.rewrites(h.Chain):
		// Only a chain of this type asks the routing table again.
		b.Type = "route"
	}
	return b
}

// rewrites says whether a chain changes what routing looks at.
func (l *lowering) rewrites(chain string) bool {
	c := l.program.Chain(chain)
	for _, r := range c.Rules {
		for _, a := range r.Actions {
			if slices.ContainsFunc(program.EffectOf(a).Writes, func(f program.Field) bool {
				return f == program.Mark || f == program.Source || f == program.Destination
			}) {
				return true
			}
		}
	}
	return false
}

// unused removes what no rule uses. Static sets that a policy names and no
// rule asks for are not worth their memory; living and dynamic ones neither.
func (l *lowering) unused() {
	t := l.tree
	chains := t.reached(func(c *Chain) bool { return c.Base != nil })
	t.Chains = slices.DeleteFunc(t.Chains, func(c *Chain) bool { return !chains[c.Name] })
	used := t.used()
	t.Sets = slices.DeleteFunc(t.Sets, func(s *Set) bool { return !used["set "+s.Name] })
	t.Limits = slices.DeleteFunc(t.Limits, func(x Limit) bool { return !used["limit "+x.Name] })
	t.Flowtables = slices.DeleteFunc(t.Flowtables, func(f Flowtable) bool { return !used["flowtable "+f.Name] })
	sorting.StableBy(t.Sets, func(a, b *Set) int { return strings.Compare(a.Name, b.Name) })
	// Two sets of one name have the same contents: the hash says so.
	t.Sets = slices.CompactFunc(t.Sets, func(a, b *Set) bool { return a.Name == b.Name })
	sorting.By(t.Limits, func(a, b Limit) int { return strings.Compare(a.Name, b.Name) })
}

// reached are the chains that packets get to from some of them.
func (t *Tree) reached(from func(*Chain) bool) map[string]bool {
	out := map[string]bool{}
	var walk func(c *Chain)
	walk = func(c *Chain) {
		if c == nil || out[c.Name] {
			return
		}
		out[c.Name] = true
		for _, r := range c.Rules {
			for _, s := range r.Statements {
				switch s.Kind {
				case VerdictMap:
					for _, verdict := range t.verdicts(s) {
						if _, chain, leads := strings.Cut(verdict, " "); leads && !out[chain] {
							walk(t.chain(chain))
						}
					}
				case Jump, Goto:
					walk(t.chain(s.Name))
				}
			}
		}
	}
	for _, c := range t.Chains {
		if from(c) {
			walk(c)
		}
	}
	return out
}

// check says what in a tree refers to something that is not in it.
func (t *Tree) check() error {
	counters, limits := map[string]bool{}, map[string]bool{}
	for _, c := range t.Counters {
		if counters[c.Name] {
			return fmt.Errorf("duplicate counter %s", c.Name)
		}
		counters[c.Name] = true
	}
	for _, x := range t.Limits {
		limits[x.Name] = true
	}
	for _, k := range t.Sets {
		if err := t.checkVerdicts(k); err != nil {
			return err
		}
	}
	for _, c := range t.Chains {
		for _, r := range c.Rules {
			for _, s := range slices.Concat(r.Statements, inner(r.Statements)) {
				switch {
				case s.Set != "" && t.set(s.Set) == nil:
					return fmt.Errorf("chain %s: no set %s", c.Name, s.Set)
				case (s.Kind == Jump || s.Kind == Goto) && t.chain(s.Name) == nil:
					return fmt.Errorf("chain %s: no chain %s", c.Name, s.Name)
				case s.Kind == Count && s.Name != "" && !counters[s.Name]:
					return fmt.Errorf("chain %s: no counter %s", c.Name, s.Name)
				case s.Kind == RateLimit && s.Name != "" && !limits[s.Name]:
					return fmt.Errorf("chain %s: no limit %s", c.Name, s.Name)
				}
			}
		}
	}
	return nil
}

func inner(statements []Statement) []Statement {
	var out []Statement
	for _, s := range statements {
		out = append(out, s.Inner...)
	}
	return out
}

// origin is what is behind an object or rule: where the policy says it and
// what, else what it is for.
func origin(o program.Origin, text string) string {
	if o.File == "" || o.Line == 0 {
		return text
	}
	said := o.Text
	if said == "" {
		said = text
	}
	file := o.File
	if strings.HasPrefix(file, "/") {
		file = file[strings.LastIndexByte(file, '/')+1:]
	}
	return strings.TrimSpace(fmt.Sprintf("%s:%d %s", file, o.Line, said))
}
