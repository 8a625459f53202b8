package optimize

import (
	"fmt"
	"slices"
	"strings"

	"sluice/internal/base/english"
	"sluice/internal/program"
)

// dispatch asks once, in a verdict map, what many rules of a chain ask each for
// itself: protocol and port, an interface, or the protocol. Rules with one value
// of the key are in a chain of their own then, in their order; what has no
// rule goes on behind the map, and what falls out of such a chain too.
func dispatch(w *work) {
	for i := 0; i < len(w.Chains); i++ { //nolint:intrange // chains are added on the way
		for range mostMaps {
			plan := bestDispatch(w.facts(), &w.Chains[i])
			if plan == nil {
				break
			}
			w.say(plan.apply(w.Program, i))
		}
	}
}

const (
	// worthDispatch is from how many comparisons on a map is asked instead: asking it
	// takes as long as four or five, and the jump as one. So does asking for one of
	// several values, which is a look-up too.
	worthDispatch, lookUp = 10, 4
	// fewestKeys is how many different keys they have at the least.
	fewestKeys = 4
	// mostChains bounds how many chains a map leads to: names of chains are
	// looked for one by one, here and in the kernel's own listing.
	mostChains = 1024
	// mostMaps bounds how many maps one chain gets.
	mostMaps = 4
	// mostKeys bounds in how many chains one rule may come to stand.
	mostKeys = 16
)

// dispatchKeys are what is asked, the best first where they save the same.
var dispatchKeys = [][]program.Field{
	{program.Protocol, program.Port},
	{program.InInterface},
	{program.OutInterface},
	{program.Protocol},
}

// dispatching is a map in place of rules of one chain.
type dispatching struct {
	fields []program.Field
	rules  []int            // places of the rules that the map stands for, in order
	keys   map[string][]int // their places by key
	parts  map[string][]program.Value
	order  []string // keys in the order in which they come up
	asked  int      // comparisons that it is asked instead of
}

// bestDispatch gives the map that spares a chain most conditions; nil for none.
func bestDispatch(known *facts, chain *program.Chain) *dispatching {
	f := known.ordered(chain)
	var best *dispatching
	gain := func(d *dispatching) int { return len(d.rules) - len(d.rules)/len(d.keys) }
	for _, fields := range dispatchKeys {
		for start := 0; start < len(chain.Rules); {
			d := gatherOnce(f, chain, fields, start)
			if d.worth() && (best == nil || gain(d) > gain(best)) {
				best = d
			}
			start = d.next(start)
		}
	}
	if best == nil || !slices.Contains(best.fields, program.Port) {
		return best
	}
	// What a policy says first is often what comes most: it need not wait for the map.
	if d := gatherOnce(f, chain, best.fields, best.rules[0]+1); d.worth() && len(d.rules) == len(best.rules)-1 {
		return d
	}
	return best
}

func (d *dispatching) worth() bool {
	return d.asked >= worthDispatch && len(d.keys) >= fewestKeys && len(d.keys) <= mostChains
}

// next is where the next run may begin.
func (d *dispatching) next(start int) int {
	if len(d.rules) == 0 {
		return start + 1
	}
	return d.rules[len(d.rules)-1] + 1
}

// gatherOnce gathers rules, unless that would duplicate one of which there may be only one.
func gatherOnce(f *ordered, chain *program.Chain, fields []program.Field, start int) *dispatching {
	d := gather(f, chain, fields, start, false)
	if d.twice(chain) {
		d = gather(f, chain, fields, start, true)
	}
	return d
}

// gather collects rules with the key from a place on. A rule may be taken past
// others that stay when it commutes with them. Strictly, none that there may be only
// one of has several keys.
func gather(f *ordered, chain *program.Chain, fields []program.Field, start int, strict bool) *dispatching {
	d := &dispatching{fields: fields, keys: map[string][]int{}, parts: map[string][]program.Value{}}
	var stay []int
	const farthest = 64 // rules that stay and are gone past
	for i := start; i < len(chain.Rules) && len(stay) <= farthest; i++ {
		r := &chain.Rules[i]
		keys := keysOf(r, fields)
		// What leaves the chain by a return or at the end of a goto would come
		// back behind the map, and not to where the chain was entered.
		if keys == nil || strict && len(keys) > 1 && bounds(r) || f.comesBack(r) || slices.ContainsFunc(stay, func(s int) bool { return !f.commuteAt(s, i) }) {
			if len(d.rules) == 0 {
				return d
			}
			stay = append(stay, i)
			continue
		}
		d.rules = append(d.rules, i)
		asked := 1
		if len(keys) > 1 && slices.Contains(fields, program.Port) {
			asked = lookUp
		}
		d.asked += asked * f.written(r)
		for _, parts := range keys {
			key := keyText(parts)
			if d.keys[key] == nil {
				d.order = append(d.order, key)
				d.parts[key] = parts
			}
			d.keys[key] = append(d.keys[key], i)
		}
	}
	return d
}

// written says as how many rules the backend writes one: addresses of both families are
// asked by a rule for each.
func (f *facts) written(r *program.Rule) int {
	four, six, asked := true, true, false
	for i := range r.Match {
		if e, ok := f.extentOf(&r.Match[i]); ok && e.kind == ofAddresses {
			asked, four, six = true, four && e.addresses.Has4(), six && e.addresses.Has6()
		}
	}
	if asked && four && six {
		return 2
	}
	return 1
}

// twice says that a rule that there may be only one of would be in two chains.
func (d *dispatching) twice(chain *program.Chain) bool {
	in := map[int]string{} // the places of the rules of its chain, by its own
	for _, places := range d.keys {
		text := fmt.Sprint(places)
		for _, i := range places {
			if bounds(&chain.Rules[i]) && in[i] != "" && in[i] != text {
				return true
			}
			in[i] = text
		}
	}
	return false
}

// keysOf gives the keys with which a rule matches; nil where they are not some
// few exact ones.
func keysOf(r *program.Rule, fields []program.Field) [][]program.Value {
	out := [][]program.Value{nil}
	for _, field := range fields {
		values := exactValues(r, field)
		if len(values) == 0 || len(values)*len(out) > mostKeys {
			return nil
		}
		var next [][]program.Value
		for _, parts := range out {
			for _, v := range values {
				next = append(next, append(slices.Clone(parts), v))
			}
		}
		out = next
	}
	return out
}

// bounds says that a rule bounds something for all packets together, so that
// there may be only one of it.
func bounds(r *program.Rule) bool {
	return slices.ContainsFunc(r.Actions, func(a program.Action) bool { return program.EffectOf(a).Bounds })
}

// exactValues gives the values of a field with which a rule matches, where they
// are few and single.
func exactValues(r *program.Rule, field program.Field) []program.Value {
	var out []program.Value
	add := func(v program.Value) {
		if !slices.Contains(out, v) {
			out = append(out, v)
		}
	}
	for _, c := range r.Match {
		if slices.Contains(c.SetKey, field) {
			return nil // it is a part of another key
		}
		if c.Field != field {
			continue
		}
		if out != nil || c.Not || c.Set != "" || c.Mask != 0 || c.Text != "" {
			return nil
		}
		for _, n := range c.Numbers {
			if n.To-n.From >= mostKeys {
				return nil
			}
			for v := n.From; v <= n.To; v++ {
				add(program.Value{Numbers: program.NumberRange{From: v, To: v}})
			}
		}
		for _, name := range c.Names {
			if strings.HasSuffix(name, "*") || followed(name) {
				return nil
			}
			add(program.Value{Name: name})
		}
	}
	return out
}

func keyText(parts []program.Value) string {
	texts := make([]string, len(parts))
	for i, p := range parts {
		texts[i] = p.String()
	}
	return strings.Join(texts, "_")
}

// apply puts the map into the place of the first of its rules, and says so.
func (d *dispatching) apply(p *program.Program, at int) string {
	name := p.Chains[at].Name
	rules := p.Chains[at].Rules
	asked := d.common(rules)
	set := program.Set{ID: freeSet(p, name+".by."+fieldsName(d.fields)), Key: d.fields, Life: program.Static, Verdicts: true}
	made := map[string]string{} // chains by the places of their rules
	for _, key := range d.order {
		places := fmt.Sprint(d.keys[key])
		if made[places] == "" {
			chain := program.Chain{Name: freeChain(p, name+"_"+key), Comment: fmt.Sprintf("the rules of %s with %s %s", name, fieldsName(d.fields), strings.ReplaceAll(key, "_", " . "))}
			for _, i := range d.keys[key] {
				chain.Rules = append(chain.Rules, d.without(rules[i]))
			}
			p.Chains = append(p.Chains, chain)
			made[places] = chain.Name
		}
		set.Elements = append(set.Elements, program.Element{Parts: d.parts[key], Verdict: program.Jump{Chain: made[places]}})
	}
	p.Sets = append(p.Sets, set)
	chain := &p.Chains[at]
	gone := map[int]bool{}
	for _, i := range d.rules[1:] {
		gone[i] = true
	}
	n := -1
	chain.Rules = slices.DeleteFunc(chain.Rules, func(program.Rule) bool { n++; return gone[n] })
	chain.Rules[d.rules[0]] = program.Rule{
		Stage: rules[d.rules[0]].Stage, Match: asked, Actions: []program.Action{program.VerdictMap{Set: set.ID, Key: d.fields}},
		Comment: "the rules of each " + fieldsName(d.fields) + " are in a chain",
	}
	return fmt.Sprintf("chain %s: %s → 1 verdict map by %s of %s to %s", name, english.Plural(len(d.rules), "rule"), fieldsName(d.fields), english.Plural(len(d.order), "key"), english.Plural(len(made), "chain"))
}

// common takes the protocol out of the key where the rules have but one: asking for
// one value takes less than a longer key.
func (d *dispatching) common(rules []program.Rule) []program.Condition {
	if d.fields[0] != program.Protocol || len(d.fields) == 1 {
		return nil
	}
	for _, parts := range d.parts {
		if parts[0] != d.parts[d.order[0]][0] {
			return nil
		}
	}
	d.fields = d.fields[1:]
	for key := range d.parts {
		d.parts[key] = d.parts[key][1:]
	}
	r := rules[d.rules[0]]
	return []program.Condition{r.Match[slices.IndexFunc(r.Match, func(c program.Condition) bool { return c.Field == program.Protocol })]}
}

// without gives a rule without what the map has asked. The protocol stays where
// other conditions or actions are about its header.
func (d *dispatching) without(r program.Rule) program.Rule {
	r.Stage = ""
	r.Match = slices.DeleteFunc(slices.Clone(r.Match), func(c program.Condition) bool {
		return slices.Contains(d.fields, c.Field) && c.Field != program.Protocol
	})
	return r
}

func fieldsName(fields []program.Field) string {
	texts := make([]string, len(fields))
	for i, f := range fields {
		texts[i] = string(f)
	}
	return strings.Join(texts, ".")
}

func freeSet(p *program.Program, wanted string) string {
	name := wanted
	for n := 2; p.Set(name) != nil; n++ {
		name = fmt.Sprintf("%s.%d", wanted, n)
	}
	return name
}

func freeChain(p *program.Program, wanted string) string {
	name := wanted
	for n := 2; p.Chain(name) != nil; n++ {
		name = fmt.Sprintf("%s_%d", wanted, n)
	}
	return name
}
