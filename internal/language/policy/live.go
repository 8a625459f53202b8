package policy

import (
	"slices"

	"sluice/internal/language/source"
)

// isLive checks what is next to live, and where.
func (f *file) isLive(s *Set, by map[string]source.Entry) {
	k := by["live"]
	switch {
	case by["url"].Key == nil:
		f.fail(f.At(k.Key), "", "live without url")
	case !f.isFleet && f.follow:
		f.fail(f.At(k.Key), "remove it; the host then downloads the list itself", "live is only for sets of a fleet, whose controller downloads them; this is the policy of one host")
	case len(s.Within) == 0:
		f.after(func() { f.bansOnly(s) })
	}
}

// bansOnly checks that a live list without bounds, and what is made of it, can do no more than
// ban, whatever is in it.
func (l *loader) bansOnly(s *Set) {
	made := map[string]bool{s.Name: true}
	const hint = "write within: [203.0.113.0/24] in the set, which then never contains other addresses"
	fail := func(pos Pos, where string) {
		l.fail(pos, hint, "set %s is live and has no within, so it can only ban and cannot be used %s; see %s", source.Quote(s.Name), where, s.Pos)
	}
	for again := true; again; {
		again = false
		for _, other := range l.policy.Sets {
			for _, w := range other.Except {
				if made[w.Text] && !made[other.Name+" "] {
					made[other.Name+" "] = true // no name has a blank
					fail(w.Pos, "in except")
				}
			}
			if !made[other.Name] && slices.ContainsFunc(other.Union, func(w Word) bool { return made[w.Text] }) {
				made[other.Name], again = true, true
			}
		}
	}
	who := func(w *Who, where string) {
		if w == nil {
			return
		}
		for _, item := range w.Items {
			if made[item.Name] {
				fail(item.Pos, where)
			}
		}
	}
	for i := range l.policy.NeverBan {
		who(&l.policy.NeverBan[i], "in never-ban")
	}
	if x := l.policy.Exceptions; x != nil {
		for i := range x.Who {
			who(&x.Who[i], "in exceptions")
		}
	}
	for _, n := range l.policy.NAT {
		who(n.From, "in nat")
	}
	for _, b := range l.policy.Tracking.Bypass {
		who(b.To, "in tracking")
	}
	for _, section := range []*Section{l.policy.Input, l.policy.Output, l.policy.Forward} {
		if section == nil {
			continue
		}
		for _, r := range section.Rules {
			for _, w := range []*Who{r.From, r.To} {
				switch {
				case w == nil:
				case r.Action != Drop && r.Action != Reject:
					who(w, "in a rule that does not drop or reject")
				case w.Not:
					who(w, "after not")
				}
			}
		}
	}
}
