package optimize

import (
	"fmt"
	"slices"
	"strings"

	"sluice/internal/base/addrset"
	"sluice/internal/program"
)

// keyFields are the fields in which rules that are merged may differ, in the
// order in which a key has them.
var keyFields = []program.Field{
	program.InInterface, program.OutInterface, program.Source, program.Destination,
	program.Protocol, program.SourcePort, program.Port, program.Mark,
}

const (
	// fewestRules are worth a set: below that, one comparison after the other
	// costs less than a lookup.
	fewestRules = 5
	// mostBoxes bounds what one rule that lists many values becomes.
	mostBoxes = 64
	// keyBytes is what a key may have in the kernel, each part a multiple of 4
	// (NFT_DATA_VALUE_MAXLEN of nf_tables.h).
	keyBytes = 64
)

// candidate is a rule as the merging sees it.
type candidate struct {
	rule   *program.Rule
	said   *scope // by scopeOf
	effect effect
	alone  bool // it is not of a kind that is merged

	shape     string              // fields and the other conditions
	signature string              // what rules of one group have in common
	fields    []program.Field     // in which they may differ
	values    [][]interval        // of this rule, for each field
	constants []program.Condition // the other conditions
	counter   string              // that it counts on
	rest      []program.Action    // what it does beside counting, before the verdict
	tail      program.Action      // the verdict; nil where it goes on
}

func sameAction(a, b program.Action) bool { return program.ActionText(a) == program.ActionText(b) }

// cuts says whether a packet that the rule matches is none of a later rule's
// business: the rule ends it, or both only do the same.
func (c *candidate) cuts(later *candidate) bool {
	if c.effect.ends {
		return true
	}
	return c.tail == nil && later.tail == nil && c.counter == "" && later.counter == ""
}

// openField is the field whose ranges are searched: an address, else a port.
func openField(fields []program.Field) int {
	for _, is := range []func(program.Field) bool{isAddress, func(f program.Field) bool { return f == program.Port || f == program.SourcePort }} {
		if i := slices.IndexFunc(fields, is); i >= 0 {
			return i
		}
	}
	return 0
}

// boxes are the combinations of the rule's values. Of two families nothing is.
func (c *candidate) boxes() []box {
	out := []box{nil}
	for _, values := range c.values {
		var next []box
		for _, b := range out {
			for _, v := range values {
				if !otherFamily(b, v) {
					next = append(next, append(slices.Clone(b), v))
				}
			}
		}
		out = next
	}
	return out
}

func otherFamily(b box, v interval) bool {
	return v.from.kind >= anAddress4 && slices.ContainsFunc(b, func(o interval) bool {
		return o.from.kind >= anAddress4 && o.from.kind != v.from.kind
	})
}

// candidate reads a rule.
func (m *merger) candidate(r *program.Rule) *candidate {
	c := &candidate{rule: r}
	shared := c.readActions()
	if !m.readMatch(c) {
		c.fields, c.values, c.constants, shared = nil, nil, nil, false
	}
	c.alone = !shared
	var parts []string
	for _, f := range c.fields {
		parts = append(parts, "by "+string(f))
	}
	constants := make([]string, len(c.constants))
	for i := range c.constants {
		constants[i] = conditionText(&c.constants[i])
	}
	slices.Sort(constants)
	parts = append(parts, constants...)
	c.shape = strings.Join(parts, "\n")
	if c.alone {
		c.effect = m.effect(r)
		return c
	}
	parts = append(parts, "stage "+string(r.Stage))
	for _, a := range c.rest {
		parts = append(parts, "do "+program.ActionText(a))
	}
	if len(c.rest) > 0 && c.tail != nil {
		// A map says the verdict and nothing else of a packet, and what is
		// before it is done to those too that it does not have.
		parts = append(parts, "then "+program.ActionText(c.tail))
	}
	parts = append(parts, fmt.Sprint("ends ", c.tail != nil))
	if !m.counters {
		parts = append(parts, "count "+c.counter)
	}
	c.signature = strings.Join(parts, "\n")
	key := c.signature
	if c.tail != nil {
		key += "\n" + program.ActionText(c.tail)
	}
	effect, known := m.alike[key]
	if !known {
		effect = m.effect(r)
		m.alike[key] = effect
	}
	c.effect = effect
	return c
}

// readActions takes the actions apart; false where they are not of a kind that
// several rules can share: limits and logs are each rule's own.
func (c *candidate) readActions() bool {
	counted := false
	for i, a := range c.rule.Actions {
		switch a := a.(type) {
		case program.Count:
			if counted {
				return false
			}
			counted, c.counter = true, a.Counter
		case program.NoTrack, program.SetMark:
			c.rest = append(c.rest, a)
		case program.Verdict, program.Jump, program.Goto:
			if i != len(c.rule.Actions)-1 {
				return false
			}
			c.tail = a
		default:
			return false
		}
	}
	return len(c.rest) > 0 || c.tail != nil
}

// readMatch parts the conditions into those in which rules may differ and the
// others; false where there is none of the former.
func (m *merger) readMatch(c *candidate) bool {
	times := map[program.Field]int{}
	for _, k := range c.rule.Match {
		times[k.Field]++
		for _, f := range k.SetKey {
			times[f]++
		}
		if set := m.sets[k.Set]; set != nil && set.Counters {
			return false // it would count before the others have been asked
		}
	}
	values := map[program.Field][]interval{}
	boxes := 1
	for _, k := range c.rule.Match {
		v := m.valuesOf(&k)
		if times[k.Field] > 1 || len(v) == 0 || k.Field == program.Protocol && times[program.OriginalPort] > 0 { // which needs it
			c.constants = append(c.constants, k)
			continue
		}
		values[k.Field] = v
		boxes *= len(v)
	}
	for _, f := range keyFields {
		if v := values[f]; v != nil {
			c.fields = append(c.fields, f)
			c.values = append(c.values, v)
		}
	}
	return len(c.fields) > 0 && boxes <= mostBoxes
}

// valuesOf gives the values that a condition lists, as far as they can be part
// of a key.
func (m *merger) valuesOf(k *program.Condition) []interval {
	if k.Not || k.Mask != 0 || k.Set != "" || !slices.Contains(keyFields, k.Field) {
		return nil
	}
	var out []interval
	switch {
	case len(k.Addresses) > 0:
		var b addrset.Builder
		for _, r := range k.Addresses {
			b.AddRange(addrset.Range{From: r.From, To: r.To})
		}
		for r := range b.Set().Each() {
			out = append(out, interval{addressPoint(r.From), addressPoint(r.To)})
		}
	case len(k.Numbers) > 0:
		for _, r := range program.MergeNumbers(k.Numbers) {
			// ICMP is of one family each, which the key of a set does not say.
			if k.Field == program.Protocol && (r.From != r.To || r.From == protocolICMP || r.From == protocolICMPv6) {
				return nil
			}
			if k.Field == program.Mark && r.From != r.To {
				return nil // in the machine's byte order, which ranges cannot have
			}
			out = append(out, fewValues(r)...)
		}
	default:
		for _, n := range slices.Compact(slices.Sorted(slices.Values(k.Names))) {
			if strings.HasSuffix(n, "*") || followed(n) {
				return nil
			}
			p := m.names.of(n)
			out = append(out, interval{p, p})
		}
	}
	return out
}

// mostValues is how many values of a range stand one by one, which lets them be
// part of a hash.
const mostValues = 8

func fewValues(r program.NumberRange) []interval {
	if r.To-r.From >= mostValues {
		return []interval{{numberPoint(r.From), numberPoint(r.To)}}
	}
	var out []interval
	for n := r.From; n <= r.To; n++ {
		out = append(out, interval{numberPoint(n), numberPoint(n)})
	}
	return out
}

const (
	protocolICMP   = 1
	protocolICMPv6 = 58
)
