package optimize

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"

	"sluice/internal/program"
)

// merged is what an item becomes.
type merged struct {
	fields  []int // of the members' fields: those in which they differ
	several bool  // more than one verdict
}

// differ says in what the members of an item differ.
func (x *item) differ() merged {
	var out merged
	first := x.members[0]
	for i := range first.fields {
		if slices.ContainsFunc(x.members, func(c *candidate) bool { return !slices.Equal(c.values[i], first.values[i]) }) {
			out.fields = append(out.fields, i)
		}
	}
	out.several = first.tail != nil && slices.ContainsFunc(x.members, func(c *candidate) bool { return !sameAction(c.tail, first.tail) })
	return out
}

// piece is one element to be: values of some fields, and the rule that decides
// them.
type piece struct {
	box box
	by  *candidate
}

// pieces gives what the item decides, in the fields alone in which its members
// differ.
func (x *item) pieces(fields []int) []piece {
	seen := map[string]bool{}
	out := make([]piece, 0, len(x.kept))
	for i, b := range x.kept {
		small := make(box, len(fields))
		for j, f := range fields {
			small[j] = b[f]
		}
		key := string(small.appendTo(nil))
		if !seen[key] {
			seen[key] = true
			out = append(out, piece{small, x.members[x.of[i]]})
		}
	}
	return out
}

// emitter writes the rules that take the place of an item.
type emitter struct {
	*merger
	program *program.Program
	chain   string
	taken   map[string]bool // ids of sets
	x       *item
	rules   []program.Rule
}

// emit gives the rules of an item that is merged.
func (e *emitter) emit(how merged) {
	first := e.x.members[0]
	fields := make([]program.Field, len(how.fields))
	for i, f := range how.fields {
		fields[i] = first.fields[f]
	}
	common := slices.Clone(first.constants)
	for i, f := range first.fields {
		if !slices.Contains(how.fields, i) {
			common = append(common, conditionOn(e.names, f, first.values[i]))
		}
	}
	pieces := e.x.pieces(how.fields)
	if len(fields) == 1 {
		e.set(common, fields, pieces)
		return
	}
	var exact, wide []piece
	for _, p := range pieces {
		if slices.ContainsFunc(p.box, func(i interval) bool { return !i.single() }) {
			wide = append(wide, p)
		} else {
			exact = append(exact, p)
		}
	}
	// All pieces are apart, so what stands first does not matter.
	e.set(common, fields, exact)
	e.ranges(common, fields, wide)
}

// mostLookups is how many sets of one field are better than one of several with
// ranges in it.
const mostLookups = 4

// ranges writes elements of several fields with ranges. The protocol and
// interfaces cannot be part of such a key, and with few different ports a set
// of addresses for each is quicker.
func (e *emitter) ranges(common []program.Condition, fields []program.Field, pieces []piece) {
	if len(pieces) == 0 {
		return
	}
	split := func(f program.Field) bool { return !isAddress(f) }
	if parts := e.parts(fields, pieces, split); len(parts) > mostLookups {
		split = func(f program.Field) bool { return neverInRanges[f] }
	}
	var inner []program.Field
	for _, f := range fields {
		if !split(f) {
			inner = append(inner, f)
		}
	}
	for _, part := range e.parts(fields, pieces, split) {
		conditions := slices.Clone(common)
		small := make([]piece, len(part))
		for i, p := range part {
			small[i].by = p.by
		}
		for i, f := range fields {
			if split(f) {
				conditions = append(conditions, conditionOn(e.names, f, []interval{part[0].box[i]}))
				continue
			}
			for j := range part {
				small[j].box = append(small[j].box, part[j].box[i])
			}
		}
		if len(inner) == 0 {
			e.plain(conditions, nil, small)
			continue
		}
		e.set(conditions, inner, small)
	}
}

// neverInRanges are fields that a key with ranges cannot have: for the one byte
// of a protocol nft 1.0.6 writes what kernels refuse, and names have no order.
var neverInRanges = map[program.Field]bool{program.Protocol: true, program.InInterface: true, program.OutInterface: true, program.Mark: true}

// parts divides pieces by their values in some fields, in the order of the first.
func (e *emitter) parts(fields []program.Field, pieces []piece, by func(program.Field) bool) [][]piece {
	var order []string
	parts := map[string][]piece{}
	for _, p := range pieces {
		var key []byte
		for i, f := range fields {
			if by(f) {
				key = p.box[i : i+1].appendTo(key)
			}
		}
		if parts[string(key)] == nil {
			order = append(order, string(key))
		}
		parts[string(key)] = append(parts[string(key)], p)
	}
	out := make([][]piece, len(order))
	for i, key := range order {
		out[i] = parts[key]
	}
	return out
}

// plain writes a rule for each element.
func (e *emitter) plain(common []program.Condition, fields []program.Field, pieces []piece) {
	for _, p := range pieces {
		r := *p.by.rule
		r.Match = slices.Clone(common)
		for i, f := range fields {
			r.Match = append(r.Match, conditionOn(e.names, f, p.box[i:i+1]))
		}
		e.rules = append(e.rules, r)
	}
}

// set writes one rule that asks a set.
func (e *emitter) set(common []program.Condition, fields []program.Field, pieces []piece) {
	if len(pieces) == 0 {
		return
	}
	if len(pieces) < fewestRules {
		e.plain(common, fields, pieces)
		return
	}
	first := pieces[0].by
	r := program.Rule{Stage: first.rule.Stage, ID: first.rule.ID, Match: slices.Clone(common), Origin: first.rule.Origin, Comment: first.rule.Comment}
	set := program.Set{Key: fields, Life: program.Static}
	for _, p := range pieces {
		set.Counters = set.Counters || p.by.counter != first.counter
		set.Verdicts = set.Verdicts || !sameAction(tailOf(p.by), tailOf(first))
	}
	rules := map[*program.Rule]bool{}
	for _, p := range pieces {
		rules[p.by.rule] = true
		if p.by.rule.Origin != first.rule.Origin {
			r.ID, r.Origin, r.Comment = "", program.Origin{}, ""
		}
		el := program.Element{Origin: p.by.rule.Origin}
		for _, i := range p.box {
			el.Parts = append(el.Parts, e.names.value(i))
		}
		if set.Counters {
			el.Counter = p.by.counter
		}
		if set.Verdicts {
			el.Verdict = p.by.tail
		}
		set.Elements = append(set.Elements, el)
	}
	if r.Origin == (program.Origin{}) && r.Comment == "" {
		r.Comment = linesOf(pieces, len(rules))
	}
	set.ID = e.id(common, fields)
	if !set.Counters && first.counter != "" {
		r.Actions = append(r.Actions, program.Count{Counter: first.counter})
	}
	r.Actions = append(r.Actions, first.rest...)
	if set.Verdicts {
		r.Actions = append(r.Actions, program.VerdictMap{Set: set.ID, Key: fields})
	} else {
		asks := program.Condition{Field: fields[0], Set: set.ID}
		if len(fields) > 1 {
			asks.SetKey = fields
		}
		r.Match = append(r.Match, asks)
		if first.tail != nil {
			r.Actions = append(r.Actions, first.tail)
		}
	}
	e.program.Sets = append(e.program.Sets, set)
	e.rules = append(e.rules, r)
}

// tailOf is the verdict of a rule; what has none goes on.
func tailOf(c *candidate) program.Action {
	if c.tail == nil {
		return program.NoTrack{} // no verdict is this
	}
	return c.tail
}

// id names a set after where it is asked and for what, so that it is the same
// set with other contents when a rule comes or goes.
func (e *emitter) id(common []program.Condition, fields []program.Field) string {
	first := e.x.members[0]
	h := sha256.New()
	for _, a := range first.rest {
		fmt.Fprintln(h, program.ActionText(a))
	}
	texts := make([]string, len(common))
	for i := range common {
		texts[i] = conditionText(&common[i])
	}
	slices.Sort(texts)
	fmt.Fprintln(h, strings.Join(texts, "\n"))
	keys := make([]string, len(fields))
	for i, f := range fields {
		keys[i] = string(f)
	}
	base := fmt.Sprintf("rules.%s.%s.%s", e.chain, strings.Join(keys, "-"), hex.EncodeToString(h.Sum(nil)[:3]))
	if len(base) > 80 {
		sum := sha256.Sum256([]byte(base))
		base = "rules." + hex.EncodeToString(sum[:8])
	}
	id := base
	for n := 2; e.taken[id]; n++ {
		id = fmt.Sprintf("%s.%d", base, n)
	}
	e.taken[id] = true
	return id
}

// linesOf says which rules were merged.
func linesOf(pieces []piece, rules int) string {
	text := fmt.Sprintf("%d rules", rules)
	first, last := 0, 0
	file := ""
	for _, p := range pieces {
		o := p.by.rule.Origin
		if o.Line == 0 || file != "" && o.File != file {
			return text
		}
		file = o.File
		if first == 0 || o.Line < first {
			first = o.Line
		}
		last = max(last, o.Line)
	}
	return fmt.Sprintf("%s, %s:%d to %d", text, file[strings.LastIndexByte(file, '/')+1:], first, last)
}

// conditionOn says in the rule itself which values a field has.
func conditionOn(known names, f program.Field, values []interval) program.Condition {
	c := program.Condition{Field: f}
	for _, i := range values {
		switch v := known.value(i); i.from.kind {
		case aName:
			c.Names = append(c.Names, v.Name)
		case aNumber:
			c.Numbers = append(c.Numbers, v.Numbers)
		default:
			c.Addresses = append(c.Addresses, v.Addresses)
		}
	}
	if len(c.Numbers) > 1 {
		c.Numbers = program.MergeNumbers(c.Numbers)
	}
	return c
}
