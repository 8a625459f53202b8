package policy

import (
	"slices"
	"strings"

	"golang.org/x/text/language"

	"sluice/internal/base/addrset"
	"sluice/internal/language/source"
)

// who reads `any`, or [not] NAME|ADDRESS|[…]. For any it returns nil.
func (w *words) who() (*Who, bool) {
	out := &Who{Pos: w.peek().pos}
	if w.accept("not") {
		out.Not = true
	}
	if t := w.peek(); w.accept("any") {
		if out.Not {
			return nil, w.failAt(t, "", "not any matches nobody")
		}
		return nil, true
	}
	if t := w.peek(); t.kind == wordToken && slices.Contains(reserved, t.text) {
		hint := ""
		if t.text == "not" {
			hint = "two negations; remove both"
		}
		return nil, w.failAt(t, hint, "expected a set, a zone or an address, found %s", t.describe())
	}
	ok := w.list("addresses", func() bool {
		hint := ""
		if t := w.peek(); t.kind == textToken {
			hint = "write " + t.text + " without quotes"
		}
		t, ok := w.word("a set, a zone or an address", hint)
		if !ok {
			return false
		}
		item, p := whoItem(t)
		if p != nil {
			return w.problemAt(t, p)
		}
		out.Items = append(out.Items, item)
		return true
	})
	return out, ok
}

// whoItem reads one name or literal.
func whoItem(t token) (WhoItem, *problem) {
	if isLiteral(t.text) {
		r, p := parseRange(t.text)
		if p != nil && strings.HasPrefix(t.text, "[") && strings.Contains(t.text, "]:") {
			p.hint = "write the port as a service: tcp/PORT"
		}
		return WhoItem{Pos: t.pos, Literal: r}, p
	}
	if strings.Contains(t.text, ".") {
		return WhoItem{}, problemf("host names are not resolved; write addresses, or a set of them", "%s is not a set, a zone or an address", source.Quote(t.text))
	}
	switch t.text {
	case "not":
		return WhoItem{}, problemf("write not before the whole list", "not inside a list")
	case "any":
		return WhoItem{}, problemf("remove the list", "any in a list matches everybody")
	}
	if name, is := strings.CutPrefix(t.text, "!"); is {
		return WhoItem{}, problemf("write not "+name, "%s is not a set, a zone or an address", source.Quote(t.text))
	}
	if strings.HasSuffix(t.text, "*") {
		return WhoItem{}, problemf("name interfaces in a zone", "%s is not a set, a zone or an address", source.Quote(t.text))
	}
	if p := checkName(t.text); p != nil {
		return WhoItem{}, p
	}
	return WhoItem{Pos: t.pos, Name: t.text}, nil
}

// checkWho checks, when all is read, that the names of a WHO exist and make
// sense where they stand.
func (f *file) checkWho(w *Who, word string, noZone bool) {
	if w == nil {
		return
	}
	for _, item := range w.Items {
		if item.Name == "" {
			continue
		}
		f.after(func() {
			zone, set := f.zones[item.Name], f.sets[item.Name]
			switch {
			case zone != nil && noZone && word == "from":
				f.fail(item.Pos, "write from ADDRESS for one of this host's own, out ZONE for the interface, or put the rule under forward",
					"zone %s cannot be used after from in output: packets from this host have no incoming interface", source.Quote(item.Name))
			case zone != nil && noZone && word == "to":
				f.fail(item.Pos, "write to ADDRESS for one of this host's own, in ZONE for the interface, or put the rule under forward",
					"zone %s cannot be used after to in input: packets to this host have no outgoing interface", source.Quote(item.Name))
			case zone != nil && noZone:
				f.fail(item.Pos, "name a set or addresses", "zone %s cannot be used after %s", source.Quote(item.Name), word)
			case set != nil && len(set.Endpoints) > 0:
				f.fail(item.Pos, "use a set of addresses, and write the service before it", "set of endpoints %s cannot be used after %s", source.Quote(item.Name), word)
			case zone == nil && set == nil:
				f.unknownWho(item, noZone)
			}
		})
	}
}

// unknownWho reports a name that is neither a set nor a zone.
func (l *loader) unknownWho(item WhoItem, noZone bool) {
	if l.unread || l.required[item.Name] {
		return
	}
	names := sortedKeys(l.sets)
	what := "set"
	if !noZone {
		names = append(names, sortedKeys(l.zones)...)
		what = "set or zone"
	}
	hint := ""
	if region, err := language.ParseRegion(item.Name); err == nil && len(item.Name) == 2 && region.IsCountry() {
		hint = "for a country, define a set: {countries: [" + strings.ToUpper(item.Name) + "]}"
	}
	if slices.Contains(everybody, strings.ToLower(item.Name)) {
		hint = "write any"
	}
	if where := l.elsewhere(item.Name); where != "" {
		hint = where
	}
	l.fail(item.Pos, hint, "unknown %s %s%s", what, source.Quote(item.Name), source.DidYouMean(item.Name, names))
}

// zone reads the name of a zone behind in or out.
func (w *words) zone(word string) (*Word, bool) {
	hint := "name the interface in a zone, and write " + word + " ZONE"
	t, ok := w.word("a zone", hint)
	if !ok {
		return nil, false
	}
	if isLiteral(t.text) || strings.HasSuffix(t.text, "*") {
		return nil, w.failAt(t, "write from and to for addresses; interfaces are named in a zone", "expected a zone after %s, found %s", word, t.describe())
	}
	if !nameSyntax().MatchString(t.text) || slices.Contains(reserved, t.text) {
		return nil, w.failAt(t, hint, "expected a zone after %s, found %s", word, t.describe())
	}
	w.checkZone(t.pos, t.text, word)
	return &Word{t.pos, t.text}, true
}

func (f *file) checkZone(pos Pos, name, word string) {
	f.after(func() {
		zone := f.zones[name]
		switch {
		case zone != nil && len(zone.Interfaces) == 0:
			f.fail(pos, "give the zone interfaces, or write from or to", "zone %s has no interfaces, and %s matches only the interface", source.Quote(name), word)
		case zone != nil:
		case f.sets[name] != nil:
			f.fail(pos, "write from or to for a set", "%s is a set, but %s takes a zone", source.Quote(name), word)
		case !f.unread:
			f.fail(pos, "define it under zones: "+name+": {interfaces: [NAME]}", "unknown zone %s%s", source.Quote(name), source.DidYouMean(name, sortedKeys(f.zones)))
		}
	})
}

// families reports rules whose parts have no family in common, as far as the
// text alone says.
func (r *rule) families() {
	has4, has6 := r.rule.Family != 6, r.rule.Family != 4
	why, rest := "rule can never match", "rule"
	if r.expect != nil {
		why, rest = "no packet can match the expectation", "line"
	}
	narrow := func(pos Pos, what string, with4, with6 bool) {
		if (has4 && with4) || (has6 && with6) {
			has4, has6 = has4 && with4, has6 && with6
			return
		}
		mine, other := "IPv4", "IPv6"
		if has6 {
			mine, other = other, mine
		}
		r.fail(pos, "", "%s: %s is only %s, the rest of the %s only %s", why, what, other, rest, mine)
	}
	for _, w := range []*Who{r.rule.From, r.rule.To} {
		if w == nil || w.Not {
			continue
		}
		v4, v6 := w.families()
		narrow(w.Pos, w.canonical(), v4, v6)
	}
	var v4, v6 bool
	for _, s := range r.rule.Services {
		m, _ := parseServiceWord(s.Text)
		v4 = v4 || m == nil || m.ICMP == nil || m.ICMP.V4 >= 0
		v6 = v6 || m == nil || m.ICMP == nil || m.ICMP.V6 >= 0
	}
	if len(r.rule.Services) > 0 {
		narrow(r.rule.Services[0].Pos, servicesText(r.rule.Services), v4, v6)
	}
}

// families says which families w may have, by what is written there.
func (w *Who) families() (v4, v6 bool) {
	for _, item := range w.Items {
		if item.Name != "" {
			return true, true
		}
		// ::/0 in a list with 0.0.0.0/0 is how one writes everybody.
		if familyOf(item.Literal) == 4 {
			v4 = true
		} else {
			v6 = true
		}
	}
	return v4, v6
}

func familyOf(r addrset.Range) int {
	if r.From.Is4() {
		return 4
	}
	return 6
}
