package check

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"sluice/internal/base/english"
	"sluice/internal/language/policy"
)

// ordered is the rules that a packet of a hook meets, in order: the section's
// own and behind them the published rules of the other of input and forward,
// which are about connections that arrived by DNAT, wherever they lead.
func (c *checker) ordered(s *policy.Section) (rules []*policy.Rule, own int) {
	rules = slices.Clone(s.Rules)
	if other := c.otherSide(s.Hook); other != nil {
		for _, r := range other.Rules {
			if r.Published {
				rules = append(rules, r)
			}
		}
	}
	return rules, len(s.Rules)
}

// otherSide is the section whose published rules hold at a hook too.
func (c *checker) otherSide(hook policy.Hook) *policy.Section {
	switch hook {
	case policy.Input:
		return c.policy.Forward
	case policy.Forward:
		return c.policy.Input
	case policy.Output: // what the host sends has met no DNAT
	}
	return nil
}

// matching is a rule with the packets that it matches.
type matching struct {
	rule    *policy.Rule
	packets []box
	hull    hull
}

func (c *checker) matching(hook policy.Hook, r *policy.Rule) matching {
	packets := c.packets(hook, r)
	return matching{r, packets, hullOf(packets)}
}

// above is what the rules above a rule decide.
type above struct {
	rules    []matching       // that end the way of all their packets
	by       map[int]*decided // by family
	changing bool             // lists may leave them with less later
}

// hidden finds rules that can never match.
func (c *checker) hidden() {
	for _, s := range c.sections() {
		banned := c.banned(s.Hook)
		before := above{by: map[int]*decided{4: {}, 6: {}}}
		for _, r := range s.Rules {
			if !r.Until.IsZero() && !r.Until.After(time.Now()) {
				c.report(EndedRule, Warning, r.Pos, "remove it, or set a later time", "this rule no longer matches: it expired at %s", r.Until.Format(time.RFC3339))
				continue
			}
			if r.Action != policy.ClampMSS && !c.matchesElsewhere(s.Hook, r) {
				c.hiddenRule(s.Hook, &before, banned, r)
			}
			if !ends(r) || c.mayShrink(r.From) || c.mayShrink(r.To) {
				continue
			}
			this := c.matching(s.Hook, r)
			before.rules = append(before.rules, this)
			before.changing = before.changing || c.changing(r.From) || c.changing(r.To)
			for _, family := range []int{4, 6} {
				u := c.universe(s.Hook, family)
				before.by[family].add(both(this.packets, []box{u}), &u)
			}
		}
	}
}

// hiddenRule asks first whether anything is left of a rule, and only then which
// of the earlier rules take it all.
func (c *checker) hiddenRule(hook policy.Hook, before *above, banned []box, r *policy.Rule) {
	packets := c.packets(hook, r)
	if len(packets) == 0 {
		c.impossible(hook, r)
		return
	}
	rest, ok := c.minusNeeded(packets)
	if !ok {
		return
	}
	if len(rest) == 0 {
		c.alwaysPasses(r)
		return
	}
	if rest, ok = c.effort.minus(rest, banned); !ok {
		return
	}
	if len(rest) == 0 {
		c.bannedRule(r)
		return
	}
	left := rest
	for _, family := range []int{4, 6} {
		if left, ok = before.by[family].minus(left, &c.effort); !ok {
			return
		}
	}
	if len(left) > 0 || c.decidesAnswers(hook, before.rules, r, rest) {
		return
	}
	hiding, told := c.hiding(before.rules, rest)
	if !told {
		c.hiddenByMany(before, r)
		return
	}
	c.hiddenBy(hook, rest, r, hiding)
}

// matchesElsewhere says whether a published rule, which holds in both of input
// and forward, decides packets in the one that it is not in.
func (c *checker) matchesElsewhere(hook policy.Hook, r *policy.Rule) bool {
	s := c.otherSide(hook)
	if s == nil || !r.Published {
		return false
	}
	left, ok := c.minusNeeded(c.packets(s.Hook, r))
	if ok {
		left, ok = c.effort.minus(left, c.banned(s.Hook))
	}
	rules, _ := c.ordered(s)
	for _, e := range rules {
		if e == r || !ok || len(left) == 0 {
			break
		}
		if ends(e) {
			left, ok = c.effort.minus(left, c.packets(s.Hook, e))
		}
	}
	return !ok || len(left) > 0
}

// decidesAnswers says whether a rule that matches no packet itself still decides
// on answers: a rule with ports is mirrored for traffic without state, and those
// without ports, which may hide it, are not.
func (c *checker) decidesAnswers(hook policy.Hook, earlier []matching, r *policy.Rule, packets []box) bool {
	var stateless []box
	switch hook {
	case policy.Input:
		stateless = c.untracked()
	case policy.Forward:
		stateless = c.mapped()
	case policy.Output: // what answers the host has a state
	}
	if len(stateless) == 0 || !hasPorts(c, r) {
		return false
	}
	left, ok := both(packets, stateless), true
	for i := range earlier {
		if !ok || len(left) == 0 {
			break
		}
		if hasPorts(c, earlier[i].rule) {
			left, ok = c.effort.minus(left, earlier[i].packets)
		}
	}
	return !ok || len(left) > 0
}

// hiding is the rules that together decide all of the packets; not told when
// that would take too long.
func (c *checker) hiding(earlier []matching, packets []box) (hiding []*policy.Rule, told bool) {
	may := c.effort.question()
	whole := hullOf(packets)
	for i := range earlier {
		e := &earlier[i]
		if !e.hull.meets(&whole) {
			continue
		}
		if !c.effort.compare(len(packets)*len(e.packets), &may) {
			return nil, false
		}
		if !overlap(packets, e.packets) {
			continue
		}
		hiding = append(hiding, e.rule)
		if packets, told = c.effort.cut(packets, e.packets, &may); !told {
			return nil, false
		}
		if len(packets) == 0 {
			return hiding, true
		}
		whole = hullOf(packets)
	}
	return nil, false
}

// hiddenByMany reports a hidden rule without the names of those that hide it,
// which would take too long to tell.
func (c *checker) hiddenByMany(before *above, r *policy.Rule) {
	severity, now := Error, ""
	if before.changing || c.changing(r.From) || c.changing(r.To) {
		severity, now = Warning, " with the current lists"
	}
	c.report(HiddenRule, severity, r.Pos, "remove it, or move it above them", "this rule can never match%s: together, the rules above it decide all of its packets", now)
}

// minusNeeded takes out the ICMP errors, which are decided before any rule: those that
// belong to nothing too, unless the policy leaves what is invalid to its rules.
func (c *checker) minusNeeded(packets []box) ([]box, bool) {
	if t := c.policy.Tracking; t.InvalidAllow && !t.ErrorsAll {
		return packets, true
	}
	var needed []box
	for family, types := range icmpErrors {
		u := c.universe(policy.Forward, family)
		u.numbers[service] = types
		u.numbers[in] = append(one(0), u.numbers[in]...)
		u.numbers[out] = append(one(0), u.numbers[out]...)
		u.numbers[user] = numbers{{0, noUser}}
		needed = append(needed, u)
	}
	return c.effort.minus(packets, needed)
}

// fewRules is up to how many hiding rules it is worth asking for each whether
// the others do without it.
const fewRules = 24

func (c *checker) hiddenBy(hook policy.Hook, packets []box, r *policy.Rule, hiding []*policy.Rule) {
	for i := len(hiding) - 1; i >= 0 && len(hiding) > 1 && len(hiding) <= fewRules; i-- {
		rest, ok := packets, true
		for j, e := range hiding {
			if j != i && ok {
				rest, ok = c.effort.minus(rest, c.packets(hook, e))
			}
		}
		if ok && len(rest) == 0 {
			hiding = append(hiding[:i:i], hiding[i+1:]...)
		}
	}
	by, related, now := c.namesOf(hiding, r)
	severity, verb := Error, "decides"
	if now != "" {
		severity = Warning
	}
	if len(hiding) > 1 {
		verb = "together decide"
	}
	f := c.report(HiddenRule, severity, r.Pos, "remove it, or move it above "+place(hiding[0].Pos, r.Pos),
		"this rule can never match%s: %s %s all of its packets", now, by, verb)
	f.Related = related
}

// joinPlaces says "lines 3, 4 and 9" where all are lines.
func joinPlaces(places []string) string {
	const most = 8
	shown := places
	if len(shown) > most {
		shown = append(append([]string{}, shown[:most-1]...), fmt.Sprintf("%d more", len(places)-most+1))
	}
	all := true
	for _, p := range places {
		all = all && strings.HasPrefix(p, "line ")
	}
	text := english.List(shown)
	if all {
		text = "lines " + strings.ReplaceAll(text, "line ", "")
	}
	return text
}

func (c *checker) alwaysPasses(r *policy.Rule) {
	severity, hint := Error, "senders need them: without them path MTU discovery breaks"
	if r.Action == policy.Allow {
		severity, hint = Warning, "remove it; tracking: { icmp-errors: all } allows all of them"
	}
	c.report(AlwaysPasses, severity, r.Pos, hint, "this rule can never match: ICMP errors are decided before any rule, and those about known connections are allowed")
}

// impossible says which words of a rule no packet fits at once.
func (c *checker) impossible(hook policy.Hook, r *policy.Rule) {
	if c.namesEmptySet(r) {
		return // emptySets has said so
	}
	// The first word without which the rule could match is what to look at.
	without := []struct {
		word string
		pos  policy.Pos
		drop func(*policy.Rule)
	}{
		{"the service", servicePos(r), func(r *policy.Rule) { r.Services = nil }},
		{"the family", r.Pos, func(r *policy.Rule) { r.Family = 0 }},
		{"from", whoPos(r.From, r.Pos), func(r *policy.Rule) { r.From = nil }},
		{"to", whoPos(r.To, r.Pos), func(r *policy.Rule) { r.To = nil }},
		{"in", wordPos(r.In, r.Pos), func(r *policy.Rule) { r.In = nil }},
		{"out", wordPos(r.Out, r.Pos), func(r *policy.Rule) { r.Out = nil }},
	}
	var words []string
	pos := r.Pos
	for _, w := range without {
		less := *r
		w.drop(&less)
		for _, family := range familiesOf(less.Family) {
			if len(c.packetsOf(hook, &less, family)) > 0 {
				if len(words) == 0 {
					pos = w.pos
				}
				words = append(words, w.word)
				break
			}
		}
	}
	why := "no packet of " + string(hook) + " matches all of its words"
	switch len(words) {
	case 0:
	case 1:
		why = fmt.Sprintf("no packet of %s matches %s", hook, quoteWord(words[0]))
	default:
		for i, w := range words {
			words[i] = quoteWord(w)
		}
		why = fmt.Sprintf("no packet of %s matches %s at once", hook, english.List(words))
	}
	c.report(NeverMatches, Error, pos, "", "this rule can never match: %s", why)
}

func quoteWord(word string) string {
	if strings.HasPrefix(word, "the ") {
		return word
	}
	return quoted(word)
}

func servicePos(r *policy.Rule) policy.Pos {
	if len(r.Services) > 0 {
		return r.Services[0].Pos
	}
	return r.Pos
}

func whoPos(w *policy.Who, otherwise policy.Pos) policy.Pos {
	if w != nil {
		return w.Pos
	}
	return otherwise
}

func wordPos(w *policy.Word, otherwise policy.Pos) policy.Pos {
	if w != nil {
		return w.Pos
	}
	return otherwise
}
