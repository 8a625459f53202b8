package query

import (
	"cmp"
	"maps"
	"regexp"
	"slices"
	"strings"
	"sync"

	"sluice/internal/program"
	"sluice/internal/prove/reach"
)

// keyed is packets by some text that is said of them.
type keyed struct {
	texts  []string
	way    reach.Way
	region reach.Region
}

// by parts the packets of outcomes by what a function says of them.
func (x *comparison) by(i int, within reach.Region, say func(*reach.Outcome) ([]string, bool), ways bool) []keyed {
	var out []keyed
	at := map[string]int{}
	for _, way := range x.ways {
		for j := range x.outcomes[i][way] {
			o := &x.outcomes[i][way][j]
			texts, counts := say(o)
			r := x.u.And(o.Region, within)
			if !counts || x.u.Empty(r) {
				continue
			}
			key := string(o.Verdict) + "\n" + strings.Join(texts, "\n")
			if ways {
				key = string(way) + "\n" + key
			}
			n, known := at[key]
			if !known {
				n = len(out)
				at[key] = n
				out = append(out, keyed{texts: texts, way: way})
			}
			out[n].region = x.u.Or(out[n].region, r)
		}
	}
	return out
}

// otherwise reports packets of which one thing is said under the one policy and
// another under the other.
func (x *comparison) otherwise(within reach.Region, ways bool, say func(*reach.Outcome) ([]string, bool), kind Kind) error {
	old, next := x.by(0, within, say, ways), x.by(1, within, say, ways)
	for _, a := range old {
		for _, b := range next {
			if slices.Equal(a.texts, b.texts) && (!ways || a.way == b.way) {
				continue
			}
			r := x.u.And(a.region, b.region)
			if x.u.Empty(r) {
				continue
			}
			other := ways && a.way != b.way
			what := kind
			if kind == Rewritten && ledOn(a, b) {
				what = Reached
			}
			if err := x.change(what, r, described(kind, a, other), described(kind, b, other)); err != nil {
				return err
			}
		}
	}
	return nil
}

// described is what is said of packets, or that nothing is.
func described(kind Kind, k keyed, way bool) []string {
	out := slices.Clone(k.texts)
	for i, text := range out {
		if prefix, is := strings.CutPrefix(text, "log "); is {
			out[i] = "logged as " + prefix
		}
	}
	if way {
		out = append(out, "on "+string(k.way))
	}
	if len(out) > 0 {
		return out
	}
	switch kind {
	case Logged:
		return []string{"not logged"}
	case Tracked:
		return []string{"tracked"}
	case Handled:
		return []string{"not handed on"}
	}
	return []string{"not rewritten"}
}

// effects reports what else is done with packets of one verdict.
func (x *comparison) effects(within reach.Region) error {
	const untracked = "not tracked"
	change := func(tracking bool) func(o *reach.Outcome) ([]string, bool) {
		return func(o *reach.Outcome) ([]string, bool) {
			var out []string
			for _, text := range o.Change {
				if (text == untracked) == tracking {
					out = append(out, text)
				}
			}
			return out, o.Verdict == program.Accept
		}
	}
	effect := func(prefixes ...string) func(o *reach.Outcome) ([]string, bool) {
		return func(o *reach.Outcome) ([]string, bool) {
			var out []string
			for _, text := range o.Effects {
				if slices.ContainsFunc(prefixes, func(p string) bool { return strings.HasPrefix(text, p) }) {
					text, _, _ = strings.Cut(text, " (") // the rate of a log is always the same
					out = append(out, text)
				}
			}
			return slices.Compact(out), true
		}
	}
	if err := x.otherwise(within, true, change(false), Rewritten); err != nil {
		return err
	}
	if err := x.otherwise(within, false, change(true), Tracked); err != nil {
		return err
	}
	accepted := x.u.And(within, x.u.And(x.verdicts[0][program.Accept], x.verdicts[1][program.Accept]))
	if err := x.otherwise(accepted, false, effect("offload", "clamp", "mark"), Handled); err != nil {
		return err
	}
	for _, v := range verdicts {
		both := x.u.And(within, x.u.And(x.verdicts[0][v], x.verdicts[1][v]))
		if err := x.otherwise(both, false, effect("log"), Logged); err != nil {
			return err
		}
	}
	return nil
}

// limits reports packets whose verdict differs only when limits are reached: of
// all that differ without those that always do.
func (x *comparison) limits(different, always, unlimited reach.Region) error {
	rest := x.u.And(x.u.Minus(x.u.Whatever(different), x.u.Whatever(always)), unlimited)
	if x.u.Empty(rest) {
		return nil
	}
	gates := func(o *reach.Outcome) ([]string, bool) {
		var out []string
		for _, text := range o.Effects {
			if x.say.bounds[text] != "" {
				out = append(out, text)
			}
		}
		return out, true
	}
	more := x.u.Whatever(x.u.And(different, x.u.Minus(x.verdicts[1][program.Accept], x.verdicts[0][program.Accept])))
	params := map[string]program.Action{}
	for _, c := range x.policies {
		for _, g := range gatesOf(c.Program) {
			params[program.ActionText(*g.action)] = *g.action
		}
	}
	old, next := x.by(0, rest, gates, false), x.by(1, rest, gates, false)
	for _, a := range old {
		for _, b := range next {
			r := x.u.And(a.region, b.region)
			if x.u.Empty(r) {
				continue
			}
			if slices.Equal(a.texts, b.texts) {
				if err := x.over(r, different, unlimited, a.texts); err != nil {
					return err
				}
				continue
			}
			kind := Tightened
			if !x.u.Empty(x.u.And(r, more)) && !asTight(a.texts, b.texts, params) {
				kind = Loosened
			}
			if err := x.change(kind, r, x.limitTexts(a.texts), x.limitTexts(b.texts)); err != nil {
				return err
			}
		}
	}
	return nil
}

// over reports packets of the same limits of which only those over a limit are
// treated otherwise.
func (x *comparison) over(r, different, unlimited reach.Region, texts []string) error {
	over := x.u.And(x.u.Minus(x.u.Whatever(r), unlimited), different)
	become := map[Kind]bool{}
	var how [2][]string
	for _, from := range verdicts {
		for _, to := range verdicts {
			if from == to || x.u.Empty(x.u.And(over, x.u.And(x.verdicts[0][from], x.verdicts[1][to]))) {
				continue
			}
			become[verdictKind(from, to)] = true
			for i, v := range []program.Verdict{from, to} {
				if text := ActionOf(v).Done() + " over it"; !slices.Contains(how[i], text) {
					how[i] = append(how[i], text)
				}
			}
		}
	}
	kind := Silenced
	for _, of := range []struct{ verdict, limit Kind }{{Opened, Loosened}, {Closed, Tightened}, {Rejected, Rejected}} {
		if become[of.verdict] {
			kind = of.limit
			break
		}
	}
	within := x.limitTexts(texts)
	return x.change(kind, r, slices.Concat(within, how[0]), slices.Concat(within, how[1]))
}

func (x *comparison) limitTexts(texts []string) []string {
	if len(texts) == 0 {
		return []string{"without a limit"}
	}
	out := make([]string, len(texts))
	for i, t := range texts {
		out[i] = "within " + x.say.bounds[t]
	}
	return out
}

// unspoken reports packets that no other host sends, where they alone are treated
// otherwise: else what is said of the others goes for them too. The kernel drops
// most of them before any rule.
func (x *comparison) unspoken(r reach.Region) {
	for _, way := range x.ways {
		mine := x.u.And(x.u.Unlimited(r), x.u.Or(x.taken[0][way], x.taken[1][way]))
		if way == reach.In {
			mine = x.u.Minus(mine, x.u.And(x.led[0], x.led[1]))
		}
		if x.u.Empty(mine) {
			continue
		}
		witness := x.u.Witness(way, mine)
		kind := Closed
		if x.u.Holds(x.verdicts[1][program.Accept], witness) {
			kind = Opened
		}
		c := Change{Kind: kind, Traffic: Traffic{
			Hook: string(way), Services: []string{everyProtocol}, Example: exampleOf(witness),
			When: []string{"with addresses or an interface that no packet from another host has"},
		}}
		for i, side := range []*Side{&c.Old, &c.New} {
			for j := range x.outcomes[i][way] {
				if o := &x.outcomes[i][way][j]; x.u.Holds(o.Region, witness) {
					*side = Side{Verdict: ActionOf(o.Verdict).Done(), By: []Decider{deciderOf(o, policed(x.policies[i], way), string(way))}}
				}
			}
		}
		x.changes = append(x.changes, c)
		return
	}
}

// thenBan is what a rule says of banning, which is not part of what it does to a packet.
var thenBan = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(` then ban \S+( widen)?`) })

// limitBans are the limits whose bans differ, of rules that both policies have.
func limitBans(old, next *program.Program) (out []string) {
	bans := func(p *program.Program) map[string]string {
		of := map[string]string{}
		for i := range p.Chains {
			for _, r := range p.Chains[i].Rules {
				text := r.Origin.Text
				if slices.ContainsFunc(r.Actions, func(a program.Action) bool { _, limits := a.(program.Limit); return limits }) && text != "" {
					of[thenBan().ReplaceAllString(text, "")] = cmp.Or(strings.TrimSpace(thenBan().FindString(text)), "no ban")
				}
			}
		}
		return of
	}
	was, is := bans(old), bans(next)
	for _, rule := range slices.Sorted(maps.Keys(is)) {
		if before, both := was[rule]; both && before != is[rule] {
			out = append(out, rule+": "+before+" to "+is[rule])
		}
	}
	return out
}

// settings are kernel settings that differ.
func settings(old, next *program.Program) []string {
	values := func(p *program.Program) map[string]string {
		of := map[string]string{}
		for _, s := range p.Sysctls {
			of[s.Name] = s.Value
		}
		return of
	}
	was, is := values(old), values(next)
	var out []string
	for _, s := range slices.Concat(old.Sysctls, next.Sysctls) {
		before, after := was[s.Name], is[s.Name]
		var text string
		switch {
		case before == after:
			continue
		case before == "":
			text = s.Name + " is set to " + after
		case after == "":
			text = s.Name + " is no longer set to " + before
		default:
			text = s.Name + ": from " + before + " to " + after
		}
		if !slices.Contains(out, text) {
			out = append(out, text)
		}
	}
	return out
}
