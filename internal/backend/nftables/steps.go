package nftables

import (
	"fmt"
	"slices"
	"strings"

	"sluice/internal/addrset"
	"sluice/internal/backend"
	"sluice/internal/program"
)

// small sets, in elements, are filled together.
const small = 2048

// stepper makes the steps from one state to a tree.
type stepper struct {
	want  *Tree
	have  *State
	table string
	used  map[string]bool // by the rules that the kernel has
	made  map[string]bool // chains that exist before the switch, for the elements of verdict maps
	steps []backend.Step
	// define makes what holds no elements: one transaction, before sets are filled.
	define  strings.Builder
	fills   fills
	carry   map[string]backend.Count // of counters that are to count elsewhere
	passing openings                 // what the switch lets pass for a moment
	ahead   bool                     // what is new in living sets comes before the switch
	older   kept                     // stays, though nothing wants it
}

// kept is the tree whose objects stay in the kernel; nil where none do.
type kept struct{ *Tree }

func (k kept) set(name string) bool { return k.Tree != nil && k.Tree.set(name) != nil }

func (k kept) counter(name string) bool {
	return k.Tree != nil && slices.ContainsFunc(k.Counters, func(c Counter) bool { return c.Name == name })
}

func (k kept) limit(name string) bool {
	return k.Tree != nil && slices.ContainsFunc(k.Limits, func(l Limit) bool { return l.Name == name })
}

// chain says so of a chain without its rules: elements of maps that stay lead there.
func (k kept) chain(h *Chain) bool {
	return k.Tree != nil && h.Base == nil && len(h.Rules) == 0 && k.Tree.chain(h.Name) != nil
}

func steps(want *Tree, have *State, lets openings) []backend.Step {
	return stepsBeside(want, have, lets, nil)
}

// stepsBeside is steps that leave the objects of an older tree where they are.
func stepsBeside(want *Tree, have *State, lets openings, older *Tree) []backend.Step {
	s := &stepper{want: want, have: have, table: "inet " + want.Table, used: have.Tree.used(), passing: lets, older: kept{older}}
	s.objects()
	s.emptyChains()
	s.sets()
	s.comes()
	s.switchRules()
	s.living()
	s.settle()
	s.endGrace()
	s.sweep()
	return s.steps
}

func (s *stepper) add(purpose backend.Purpose, name, text string) {
	if text != "" {
		s.steps = append(s.steps, backend.Step{Purpose: purpose, Name: name, Text: text})
	}
}

// send adds a step that sends elements; those that are empty are left out.
func (s *stepper) send(purpose backend.Purpose, name string, f *fills, edits ...edit) {
	edits = slices.DeleteFunc(edits, func(e edit) bool {
		return (e.remove == nil || e.remove.Len() == 0) && (e.insert == nil || e.insert.Len() == 0)
	})
	if len(edits) > 0 {
		s.steps = append(s.steps, backend.Step{Purpose: purpose, Name: name, Contents: &contents{table: s.want.Table, edits: edits, fills: f}})
	}
}

// objects makes the table and what holds no elements.
func (s *stepper) objects() {
	b := &s.define
	for _, c := range s.want.Counters {
		if !slices.ContainsFunc(s.have.Tree.Counters, func(h Counter) bool { return h.Name == c.Name }) {
			start := ""
			if n, some := s.take(c.ID); some {
				start = fmt.Sprintf("packets %d bytes %d; ", n.Packets, n.Bytes)
			}
			fmt.Fprintf(b, "add counter %s %s { %s%s}\n", s.table, c.Name, start, c.body())
		}
	}
	for _, l := range s.want.Limits {
		if !slices.ContainsFunc(s.have.Tree.Limits, func(h Limit) bool { return h.Name == l.Name }) {
			fmt.Fprintf(b, "add limit %s %s { rate %s; }\n", s.table, l.Name, l.Rate.text())
		}
	}
	for _, k := range s.want.Sets {
		if k.Life == program.Dynamic && s.have.Tree.set(k.Name) == nil {
			fmt.Fprintf(b, "add set %s %s { %s }\n", s.table, k.Name, k.definition())
		}
	}
}

// sets defines and fills what is missing. What is there in full is left alone.
func (s *stepper) sets() {
	var together, large []edit
	var mended []*Set
	for _, k := range s.want.Sets {
		if k.Life == program.Dynamic {
			continue
		}
		h := s.have.Tree.set(k.Name)
		switch {
		case h == nil:
		case k.Life == program.Living:
			continue // edited in place
		case s.used["set "+k.Name]:
			mended = append(mended, k)
			continue
		case !h.Elements.Unknown && !k.Counted && sameElements(k.Elements, h.Elements):
			continue
		default:
			// Nobody uses it and it may be half filled, by a load that was killed.
			fmt.Fprintf(&s.define, "delete %s %s %s\n", h.noun(), s.table, h.Name)
		}
		s.chainsOf(k)
		fmt.Fprintf(&s.define, "add %s %s %s { %s }\n", k.noun(), s.table, k.Name, k.definition())
		fill := edit{insert: k, counts: s.counts(k)}
		if k.Len() <= small {
			together = append(together, fill)
		} else {
			large = append(large, fill)
		}
	}
	if s.define.Len() > 0 || !s.have.Present {
		s.add(backend.Fill, "definitions", "add table "+s.table+"\n"+s.define.String())
	}
	s.unmade()
	for _, k := range mended {
		s.mend(k, s.have.Tree.set(k.Name))
	}
	s.send(backend.Fill, plural(len(together), "small set"), &s.fills, together...)
	for _, fill := range large {
		s.send(backend.Fill, fmt.Sprintf("set %s (%s)", fill.insert.Name, plural(fill.insert.Len(), "element")), &s.fills, fill)
	}
}

// chainsOf makes the chains that the elements of a verdict map lead to, empty:
// the kernel takes no element whose chain is not there.
func (s *stepper) chainsOf(k *Set) {
	for _, verdict := range k.Elements.Verdicts {
		_, chain, _ := strings.Cut(verdict, " ")
		if chain == "" || s.made[chain] || s.have.Tree.chain(chain) != nil {
			continue
		}
		if s.made == nil {
			s.made = map[string]bool{}
		}
		s.made[chain] = true
		fmt.Fprintf(&s.define, "add chain %s %s\n", s.table, chain)
	}
}

func elementText(verb, table, set string, items []string) string {
	if len(items) == 0 {
		return ""
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%s element %s %s {\n", verb, table, set)
	wrap(&b, items, "\t")
	b.WriteString("\n}\n")
	return b.String()
}

// counts is what elements of the set's predecessor have counted: a counted set
// goes on counting when it is replaced.
func (s *stepper) counts(k *Set) map[string]backend.Count {
	if !k.Counted {
		return nil
	}
	out := map[string]backend.Count{}
	for _, h := range s.have.Tree.Sets {
		if h.Counted && lineage(h.Name) == lineage(k.Name) {
			for element, c := range h.Elements.Counts {
				if old := out[element]; c.Packets >= old.Packets {
					out[element] = c
				}
			}
		}
	}
	s.countsOfRules(k, out)
	return out
}

// mend puts back what somebody changed by hand in a static set that is in use:
// the one case in which such a set is edited, since its name is right and a
// second set of that name cannot be.
func (s *stepper) mend(k, h *Set) {
	if h.Elements.Unknown {
		return
	}
	s.edit(backend.Fill, "mend set "+k.Name, k, h)
}

// living edits living sets by difference: elements that stay are not touched,
// and keep their counters.
func (s *stepper) living() {
	for _, k := range s.want.Sets {
		h := s.have.Tree.set(k.Name)
		switch {
		case k.Life != program.Living || h == nil:
		case s.ahead:
			remove := *h
			_, remove.Elements = difference(k, h)
			remove.Types = k.Types // nft lists less of them
			s.send(backend.Edit, fmt.Sprintf("set %s (-%d)", k.Name, remove.Len()), nil, edit{remove: &remove})
		default:
			s.edit(backend.Edit, "set "+k.Name, k, h)
		}
	}
}

// comes puts into living sets what is new in them before rules switch, and
// leaves what goes to living, behind the switch. An address may come to a living
// set from the set of ranges beside it, which the switch replaces, or go there:
// at every moment one of the two has it.
func (s *stepper) comes() {
	if s.ahead = !s.sameRules(); !s.ahead {
		return
	}
	for _, k := range s.want.Sets {
		h := s.have.Tree.set(k.Name)
		if k.Life != program.Living || h == nil {
			continue
		}
		missing, _ := difference(k, h)
		insert := *k
		insert.Elements = missing
		insert.Elements.Counters = k.Elements.Counters
		s.send(backend.Fill, fmt.Sprintf("set %s (+%d)", k.Name, insert.Len()), nil, edit{insert: &insert, counts: s.counts(k)})
	}
}

func (s *stepper) edit(purpose backend.Purpose, name string, k, h *Set) {
	missing, extra := difference(k, h)
	insert, remove := *k, *h
	insert.Elements, remove.Elements = missing, extra
	remove.Types = k.Types // nft lists less of them
	insert.Elements.Counters = k.Elements.Counters
	name = fmt.Sprintf("%s (+%d -%d)", name, insert.Len(), remove.Len())
	s.send(purpose, name, nil, edit{remove: &remove, insert: &insert, counts: s.counts(k)})
}

// emptyChains makes new base chains ahead of the switch, empty and open: the
// kernel may call a base chain before the transaction that makes it has
// published its rules (nf_tables_addchain registers the hook while it still
// reads the transaction), and then its policy would drop what they accept. On
// 6.18 no packet was seen lost either way.
func (s *stepper) emptyChains() {
	for _, c := range s.want.Chains {
		if c.Base == nil || s.have.Tree.chain(c.Name) != nil {
			continue
		}
		open := *c.Base
		open.Policy = "accept"
		fmt.Fprintf(&s.define, "add chain %s %s { %s }\n", s.table, c.Name, open.text())
	}
}

// switchRules makes the one transaction after which the new rules hold.
func (s *stepper) switchRules() {
	if s.sameRules() {
		return
	}
	var b strings.Builder
	fmt.Fprintf(&b, "flush table %s\n", s.table)
	b.WriteString(s.beginGrace())
	for _, h := range s.have.Tree.Chains {
		k := s.want.chain(h.Name)
		if k == nil && h.Base != nil && h.Base.Policy == "drop" {
			continue // closes before it is gone; settle deletes it
		}
		if k == nil && h.Base == nil {
			continue // elements of an old map may lead to it; sweep deletes it behind the map
		}
		if k == nil || (k.Base == nil) != (h.Base == nil) || !k.Base.sameHook(h.Base) {
			fmt.Fprintf(&b, "delete chain %s %s\n", s.table, h.Name)
		}
	}
	for _, h := range s.have.Tree.Flowtables {
		if !slices.ContainsFunc(s.want.Flowtables, h.same) {
			fmt.Fprintf(&b, "delete flowtable %s %s\n", s.table, h.Name)
		}
	}
	fmt.Fprintf(&b, "table %s {\n", s.table)
	for _, f := range s.want.Flowtables {
		if !slices.ContainsFunc(s.have.Tree.Flowtables, f.same) {
			fmt.Fprintf(&b, "\tflowtable %s { %s }\n", f.Name, f.body())
		}
	}
	for _, c := range s.want.Chains {
		c = s.withPassage(c)
		if s.opens(c.Name) {
			c = &Chain{Name: c.Name, Comment: c.Comment, Base: withPolicy(c.Base, "drop"), Rules: append(slices.Clip(c.Rules), acceptAll)}
		}
		c.write(&b)
	}
	for _, h := range s.vanishing() {
		(&Chain{Name: h.Name, Base: h.Base, Rules: []Rule{acceptAll}}).write(&b)
	}
	b.WriteString("}\n")
	s.add(backend.Switch, fmt.Sprintf("rules (%d)", s.want.ruleCount()), b.String())
}

var acceptAll = Rule{Statements: []Statement{{Kind: Verdict, Name: "accept"}}}

func withPolicy(base *Base, policy string) *Base {
	out := *base
	out.Policy = policy
	return &out
}

func (f Flowtable) same(o Flowtable) bool {
	return f.Name == o.Name && slices.Equal(f.Devices, o.Devices)
}

func (t *Tree) ruleCount() int {
	n := 0
	for _, c := range t.Chains {
		n += len(c.Rules)
	}
	return n
}

// opens says whether a base chain goes from drop to accept. The kernel changes
// a policy a moment after the rules, and the old policy must not meet the new
// rules: without this a flood on 6.18 loses a few packets at each such change.
func (s *stepper) opens(chain string) bool {
	k, h := s.want.chain(chain), s.have.Tree.chain(chain)
	return k != nil && h != nil && k.Base != nil && k.Base.sameHook(h.Base) && h.Base.Policy == "drop" && k.Base.Policy == "accept"
}

// vanishing are the base chains that drop by policy and are to go: they meet
// the same moment.
func (s *stepper) vanishing() []*Chain {
	var out []*Chain
	for _, h := range s.have.Tree.Chains {
		if h.Base != nil && h.Base.Policy == "drop" && s.want.chain(h.Name) == nil {
			out = append(out, h)
		}
	}
	return out
}

// settle brings base chains that opened to their form.
func (s *stepper) settle() {
	var policy, rules strings.Builder
	for _, c := range s.want.Chains {
		if s.opens(c.Name) {
			fmt.Fprintf(&policy, "add chain %s %s { policy accept; }\n", s.table, c.Name)
			fmt.Fprintf(&rules, "flush chain %s %s\n", s.table, c.Name)
			for _, r := range s.withPassage(c).Rules {
				fmt.Fprintf(&rules, "add rule %s %s %s\n", s.table, c.Name, r.line())
			}
		}
	}
	for _, h := range s.vanishing() {
		fmt.Fprintf(&policy, "add chain %s %s { policy accept; }\n", s.table, h.Name)
		fmt.Fprintf(&rules, "flush chain %s %s\ndelete chain %s %s\n", s.table, h.Name, s.table, h.Name)
	}
	s.add(backend.Sweep, "open the policy of chains", policy.String())
	s.add(backend.Sweep, "final form of these chains", rules.String())
}

// sameRules says whether chains, rules and flowtables are what they should be,
// the comments of rules included.
func (s *stepper) sameRules() bool {
	extra := func(h *Chain) bool { return s.want.chain(h.Name) == nil && (h.Base != nil || len(h.Rules) > 0) }
	if s.have.Tree.Dormant || slices.ContainsFunc(s.have.Tree.Chains, extra) || !slices.EqualFunc(s.want.Flowtables, s.have.Tree.Flowtables, Flowtable.same) {
		return false
	}
	for _, c := range s.want.Chains {
		h := s.have.Tree.chain(c.Name)
		if h == nil || (c.Base == nil) != (h.Base == nil) || c.Base != nil && c.Base.text() != h.Base.text() {
			return false
		}
		if !slices.EqualFunc(c.Rules, h.Rules, func(a, b Rule) bool { return a.normalLine() == b.normalLine() }) {
			return false
		}
	}
	return true
}

func (r Rule) normalLine() string {
	return Rule{Statements: normal(r.Statements), Comment: r.Comment}.line()
}

// sweep deletes what nobody uses any more.
func (s *stepper) sweep() {
	var b strings.Builder
	for _, h := range s.have.Tree.Sets {
		if s.want.set(h.Name) == nil && !s.older.set(h.Name) {
			fmt.Fprintf(&b, "delete %s %s %s\n", h.noun(), s.table, h.Name)
		}
	}
	for _, h := range s.have.Tree.Counters {
		if !s.older.counter(h.Name) && !slices.ContainsFunc(s.want.Counters, func(c Counter) bool { return c.Name == h.Name }) {
			fmt.Fprintf(&b, "delete counter %s %s\n", s.table, h.Name)
		}
	}
	for _, h := range s.have.Tree.Limits {
		if !s.older.limit(h.Name) && !slices.ContainsFunc(s.want.Limits, func(l Limit) bool { return l.Name == h.Name }) {
			fmt.Fprintf(&b, "delete limit %s %s\n", s.table, h.Name)
		}
	}
	for _, e := range s.have.Extra {
		fmt.Fprintf(&b, "delete %s %s %s\n", e.Kind, s.table, e.Name)
	}
	s.add(backend.Sweep, "what nobody uses any more", b.String())
	b.Reset()
	for _, h := range s.have.Tree.Chains {
		// Behind the maps whose elements lead there: the kernel gives up such an
		// element only when the transaction that deletes it is done.
		if h.Base == nil && s.want.chain(h.Name) == nil && (s.older.Tree == nil || s.older.Tree.chain(h.Name) == nil) {
			fmt.Fprintf(&b, "delete chain %s %s\n", s.table, h.Name)
		}
	}
	s.add(backend.Sweep, "chains that nobody uses any more", b.String())
}

// removal takes everything away: first the policies open, then the table goes.
func removal(table string, have *State) []backend.Step {
	if !have.Present {
		return nil
	}
	var open strings.Builder
	for _, c := range have.Tree.Chains {
		if c.Base != nil && c.Base.Policy == "drop" {
			fmt.Fprintf(&open, "add chain inet %s %s { policy accept; }\n", table, c.Name)
		}
	}
	var out []backend.Step
	if open.Len() > 0 {
		out = append(out, backend.Step{Purpose: backend.Switch, Name: "open the policy of chains", Text: open.String()})
	}
	return append(out, backend.Step{
		Purpose: backend.Switch, Name: "delete the table",
		// Adding first makes deleting work where somebody else was quicker.
		Text: fmt.Sprintf("add table inet %s\ndelete table inet %s\n", table, table),
	})
}

// sameElements says whether two sets hold the same.
func sameElements(a, b Elements) bool {
	return slices.Equal(a.Tuples, b.Tuples) && slices.Equal(a.Verdicts, b.Verdicts) && a.all().Equal(b.all())
}

// difference says what is missing in a set of the kernel and what is there too
// much. Of uncounted sets addresses count, not how they are cut into elements;
// but what is to be deleted has to be an element as the kernel has it.
func difference(want, have *Set) (missing, extra Elements) {
	missing, extra = tupleDifference(want.Elements, have.Elements)
	w, h := want.Elements.all(), have.Elements.all()
	switch {
	case !want.Counted && w.Equal(h):
		return missing, extra
	case !want.Interval:
		// Each address is an element.
		missing.Addresses, extra.Addresses = w.Difference(h), h.Difference(w)
		return missing, extra
	}
	wanted, held := map[addrset.Range]bool{}, map[addrset.Range]bool{}
	for r := range want.ranges() {
		wanted[r] = true
	}
	for r := range have.ranges() {
		held[r] = true
		if !wanted[r] {
			extra.Ranges = append(extra.Ranges, r)
		}
	}
	for r := range want.ranges() {
		if !held[r] {
			missing.Ranges = append(missing.Ranges, r)
		}
	}
	return missing, extra
}

// tupleDifference is difference for sets whose elements are no plain addresses;
// an element with another verdict is another one.
func tupleDifference(want, have Elements) (missing, extra Elements) {
	subtract := func(a, b Elements) (out Elements) {
		for i, t := range a.Tuples {
			j, found := slices.BinarySearch(b.Tuples, t)
			if found && (len(a.Verdicts) == 0 || a.Verdicts[i] == b.Verdicts[j]) {
				continue
			}
			out.Tuples = append(out.Tuples, t)
			if len(a.Verdicts) > 0 {
				out.Verdicts = append(out.Verdicts, a.Verdicts[i])
			}
		}
		return out
	}
	return subtract(want, have), subtract(have, want)
}

// lineage is the name of a set without the hash of its contents: sets of one
// lineage are versions of one another.
func lineage(name string) string {
	base, _ := cutHash(name, 16)
	if base == inlineSet+"4" || base == inlineSet+"6" {
		return name // the addresses of many rules, which have nothing to do with one another
	}
	return base
}

// cutHash cuts an underscore and n hexadecimal digits off the end of a name.
func cutHash(name string, n int) (base string, had bool) {
	at := len(name) - n - 1
	if at <= 0 || name[at] != '_' || strings.Trim(name[at+1:], "0123456789abcdef") != "" {
		return name, false
	}
	return name[:at], true
}
