package shadow

import (
	"cmp"
	"fmt"
	"reflect"
	"slices"

	"golang.org/x/sys/unix"

	"sluice/internal/program"
)

// judging turns the chains of one hook. Chains that several hooks share are copied
// for each, so that counters say where a packet was.
type judging struct {
	*counting
	kind program.HookKind
	// outOfTracking says that what is turned is for packets that the candidate does
	// not track, whatever the running firewall does.
	outOfTracking bool
}

// name is that of the copy of a chain.
func (j *judging) name(chain string) string {
	name := string(j.kind) + "." + chain
	if j.outOfTracking {
		name += ".untracked"
	}
	return name
}

// first is the hook that packets reach before those that are judged.
func (j *judging) first() program.HookKind {
	if j.kind == program.Output {
		return program.Output
	}
	return program.Prerouting
}

// untracked sends packets that the candidate keeps out of tracking to chains in which
// they are untracked.
func (j *judging) untracked() []program.Rule {
	raw := j.from.Base(j.first(), program.Raw)
	if raw == nil {
		return nil
	}
	sorted := slices.Clone(raw.Rules)
	sortStages(sorted)
	var rules, rewritten []program.Rule
	for _, r := range sorted {
		tracks, maps := true, false
		for _, a := range r.Actions {
			e := program.EffectOf(a)
			rewrites := e.Rewrites.Field != "" && !e.Ends
			tracks, maps = tracks && !e.Untracks, maps || rewrites
			if !rewrites && !(e.Plain() && (!e.Ends || e.Decides == program.Accept)) {
				j.fail("chain %s decides more than what is tracked", raw.Name)
			}
		}
		r = program.Rule{Stage: program.StageRules, Match: r.Match, Origin: r.Origin, Comment: r.Comment}
		switch {
		case maps:
			chain := j.unjudged(j.kind, "map", "the policy would rewrite the destination, without state")
			r.Actions = []program.Action{program.Goto{Chain: chain}}
			rewritten = append(rewritten, r)
		case !tracks:
			there := &judging{counting: j.counting, kind: j.kind, outOfTracking: true}
			r.Actions = []program.Action{program.Goto{Chain: there.base()}}
			rules = append(rules, r)
		}
	}
	return append(rewritten, rules...)
}

// translated takes new flows out that the candidate would lead to another address or
// port, unless the running firewall has done so.
func (j *judging) translated() []program.Rule {
	chain := j.from.Base(j.first(), program.NAT)
	if chain == nil {
		return nil
	}
	var out []program.Rule
	for _, r := range j.led(chain) {
		leads := slices.ContainsFunc(r.Actions, func(a program.Action) bool {
			e := program.EffectOf(a)
			return e.Ends && e.Rewrites.Field == program.Destination
		})
		if !leads {
			continue
		}
		to := j.unjudged(j.kind, "nat", "a new flow that the policy would redirect")
		// What another flow expects begins one too, where it is not an ICMP error.
		for _, begins := range [][]program.Condition{
			{{Field: program.State, Names: []string{"new"}}},
			{
				{Field: program.State, Names: []string{"related"}},
				{Field: program.Protocol, Not: true, Numbers: []program.NumberRange{{From: unix.IPPROTO_ICMP, To: unix.IPPROTO_ICMP}, {From: unix.IPPROTO_ICMPV6, To: unix.IPPROTO_ICMPV6}}},
			},
		} {
			out = append(out, program.Rule{
				Stage:   program.StageRules,
				Match:   append(slices.Concat(r.Match, begins), program.Condition{Field: program.Status, Not: true, Names: []string{"dnat"}}),
				Actions: []program.Action{program.Goto{Chain: to}}, Origin: r.Origin, Comment: r.Comment,
			})
		}
	}
	return out
}

// led are the rules of a chain, and in place of one that jumps those that it leads to,
// with what it asks itself.
func (j *judging) led(chain *program.Chain) []program.Rule {
	var out []program.Rule
	for _, r := range chain.Rules {
		out = append(out, r)
		for _, a := range r.Actions {
			to := program.EffectOf(a).Calls
			if to == "" {
				continue
			}
			for _, behind := range j.led(j.from.Chain(to)) {
				asked := slices.DeleteFunc(slices.Clone(behind.Match), func(c program.Condition) bool {
					return slices.ContainsFunc(r.Match, func(before program.Condition) bool { return reflect.DeepEqual(c, before) })
				})
				behind.Match = slices.Concat(r.Match, asked)
				out = append(out, behind)
			}
		}
	}
	return out
}

// base copies the hook's base chain and gives the name of the copy.
func (j *judging) base() string {
	from := j.from.Base(j.kind, program.Filter)
	name := j.name(from.Name)
	if j.made[name] {
		return name
	}
	at := j.chain(name, from.Comment)
	// What counts handshakes goes by labels of connections, which the running firewall
	// has for itself; the limits count where a connection begins (see opens).
	rules := slices.DeleteFunc(slices.Clone(from.Rules), func(r program.Rule) bool { return r.Stage == program.StageProof })
	sortStages(rules)
	j.turnAll(at, rules)
	j.add(at, j.end(from))
	return name
}

// turnAll turns the rules of a chain. What the running firewall does not track is not
// judged from the first rule on that asks for its state.
func (j *judging) turnAll(at int, rules []program.Rule) {
	asked := j.outOfTracking
	for i := range rules {
		if !asked && slices.ContainsFunc(rules[i].Match, aboutTracking) {
			asked = true
			j.add(at, program.Rule{
				Match:   []program.Condition{{Field: program.State, Names: []string{"untracked"}}},
				Actions: []program.Action{program.Jump{Chain: j.unjudged(j.kind, untrackedHere, "the running firewall does not track it, and the policy would")}},
			})
		}
		j.turn(at, &rules[i])
	}
}

// end is what happens to a packet that no rule decides.
func (j *judging) end(from *program.Chain) program.Rule {
	i := slices.IndexFunc(j.from.Hooks, func(h program.Hook) bool { return h.Chain == from.Name })
	l := Line{Counter: string(j.kind) + ".end", Hook: j.kind, Verdict: Allow, Text: "the policy leaves " + string(j.kind) + " open"}
	then := program.Action(program.Accept)
	if j.from.Hooks[i].Default == program.Drop {
		l.Verdict, l.Text, then = Drop, "no rule decides", program.Goto{Chain: noted(j.kind)}
	}
	return program.Rule{Actions: []program.Action{j.line(l), then}}
}

// copied copies a chain that jumps reach and gives the name of the copy.
func (j *judging) copied(chain string) string {
	name := j.name(chain)
	if j.made[name] {
		return name
	}
	from := j.from.Chain(chain)
	if from == nil {
		j.fail("no chain %s", chain)
		return name
	}
	at := j.chain(name, from.Comment)
	j.turnAll(at, from.Rules)
	return name
}

// turn puts the counting form of a rule into a chain: nothing where it would only
// change a packet or cannot match.
func (j *judging) turn(at int, r *program.Rule) {
	match, can := j.match(r.Match)
	if !can {
		return
	}
	out := program.Rule{ID: r.ID, Match: match, Origin: r.Origin, Comment: r.Comment}
	counter := j.counterOf(r)
	decides := false
	for _, a := range r.Actions {
		switch a := a.(type) {
		case program.Count, program.Log, program.NoTrack, program.SetMark, program.SetLabel, program.ClampMSS, program.Offload:
		case program.Limit:
			decides = true
			if a.Asks {
				a = j.opens(r)
			}
			out.Actions = append(out.Actions, j.limit(r, a))
		case program.ConnectionLimit:
			// The kernel drops a packet for whose connection it finds no memory to count
			// (nft_connlimit_do_eval), so nothing is counted.
			if !slices.Contains(j.unlimited, r.Origin) {
				j.unlimited = append(j.unlimited, r.Origin)
			}
		case program.Jump:
			decides = true
			out.Actions = append(out.Actions, program.Jump{Chain: j.copied(a.Chain)})
		case program.Goto:
			decides = true
			out.Actions = append(out.Actions, program.Goto{Chain: j.copied(a.Chain)})
		case program.Verdict:
			decides = true
			out.Actions = append(out.Actions, j.verdict(r, counter, a)...)
		default:
			j.fail("%s: no way to count what %s does", where(r), program.ActionText(a))
		}
	}
	if decides {
		j.add(at, out)
	}
}

func where(r *program.Rule) string {
	if r.Origin.Line > 0 {
		return fmt.Sprintf("%s:%d", r.Origin.File, r.Origin.Line)
	}
	return r.Comment
}

// verdict counts on the line and ends the packet's way through the counting chain.
func (j *judging) verdict(r *program.Rule, counter string, v program.Verdict) []program.Action {
	l := Line{Counter: counter, Hook: j.kind, Origin: r.Origin, Text: r.Origin.Text}
	if l.Origin.Line == 0 {
		l.Origin, l.Text = j.counted(r)
	}
	if l.Text == "" {
		l.Text = r.Comment
	}
	switch v {
	case program.Return:
		return []program.Action{v}
	case program.Accept:
		l.Verdict = Allow
		return []program.Action{j.line(l), program.Accept}
	case program.Drop:
		l.Verdict = Drop
	case program.Reject:
		l.Verdict = Reject
	}
	return []program.Action{j.line(l), program.Goto{Chain: noted(j.kind)}}
}

// counted is what the candidate says of the counter of a rule.
func (j *judging) counted(r *program.Rule) (program.Origin, string) {
	for _, a := range r.Actions {
		for _, c := range j.from.Counters {
			if c.Name == program.EffectOf(a).Counts {
				return c.Origin, cmp.Or(c.Origin.Text, c.Comment)
			}
		}
	}
	return program.Origin{}, ""
}

// counterOf names the counter of a line at this hook: after the candidate's, or after
// what the rule is for.
func (j *judging) counterOf(r *program.Rule) string {
	for _, a := range r.Actions {
		if counter := program.EffectOf(a).Counts; counter != "" {
			return string(j.kind) + "." + counter
		}
	}
	says := r.Comment
	if r.Origin.Line > 0 {
		says = fmt.Sprintf("%s:%d:%d %s", r.Origin.File, r.Origin.Line, r.Origin.Column, r.Comment)
	}
	return string(j.kind) + ".unwritten." + digest(says)
}

// limit is a gate with a bucket of the shadow's own. A source that it would ban is
// noted and, for that time, in a set that only the shadow asks.
func (j *judging) limit(r *program.Rule, l program.Limit) program.Action {
	l.FullCounter = j.full(r, l.FullCounter)
	if l.Ban == "" {
		return l
	}
	l.Over = string(j.kind) + ".over." + l.Name
	if !j.made[l.Over] {
		at := j.chain(l.Over, "sources over "+l.Name)
		j.add(at, program.Rule{Origin: r.Origin, Actions: []program.Action{
			j.line(Line{Counter: l.Over, Hook: j.kind, Verdict: Drop, Origin: r.Origin, Text: "over the limit of: " + r.Origin.Text}),
			program.Goto{Chain: noted(j.kind)},
		}})
	}
	return l
}

// opens is the limit of a rule that labels its connections, asked of the packets that
// begin them: enforced, it counts by the packet that proves the handshake, in the chain
// that packets of connections with the label go to.
func (j *judging) opens(r *program.Rule) program.Limit {
	for _, a := range r.Actions {
		label := program.EffectOf(a).Labels
		if label == "" {
			continue
		}
		for i := range j.from.Chains {
			for _, there := range j.from.Chains[i].Rules {
				if !slices.ContainsFunc(there.Match, func(c program.Condition) bool {
					return c.Field == program.Status && slices.Equal(c.Names, []string{label})
				}) {
					continue
				}
				if limit, counts := j.leadsToLimit(there.Actions); counts {
					j.handshakes = true
					limit.Per = program.PerSource
					return limit
				}
			}
		}
	}
	j.fail("%s: no limit counts the connections of this rule", where(r))
	return program.Limit{}
}

// leadsToLimit gives the first limit of a chain to which actions lead.
func (j *judging) leadsToLimit(actions []program.Action) (program.Limit, bool) {
	for _, a := range actions {
		c := j.from.Chain(program.EffectOf(a).Goes)
		if c == nil {
			continue
		}
		for _, r := range c.Rules {
			if limit, is := r.Actions[0].(program.Limit); is {
				return limit, true
			}
		}
	}
	return program.Limit{}, false
}

// full is the counter of sources that find a table full.
func (j *judging) full(r *program.Rule, counter string) string {
	if counter == "" {
		return ""
	}
	name := string(j.kind) + "." + counter
	if !j.counters[name] {
		j.legend.Full = append(j.legend.Full, Line{Counter: name, Hook: j.kind, Origin: r.Origin, Text: r.Origin.Text})
	}
	j.count(name, r.Origin, "sources that found the table full")
	return name
}
