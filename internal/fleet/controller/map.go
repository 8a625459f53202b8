package controller

import (
	"cmp"
	"net/http"
	"time"

	"sluice/internal/base/selector"
	"sluice/internal/fleet/api"
)

// mostLines is how many lines are named that decide about a country.
const mostLines = 20

// Map says from which countries a service of hosts can be reached.
func (o operator) Map(w http.ResponseWriter, r *http.Request) {
	asked, fine := in[api.FleetMapQuestion](w, r)
	if !fine {
		return
	}
	only, err := o.asksAbout(asked.Hosts)
	if err != nil {
		o.done(w, nil, err)
		return
	}
	o.answer(w, r, as(r), asked.Texts, func(is *judging) (any, error) {
		since := time.Now()
		found, err := o.judge.Maps(is, is.next, only, asked.Service, asked.Hook, asked.To, is.progress)
		if err != nil {
			return nil, err
		}
		if len(found.Of) == 0 {
			return nil, wrong("%s selects no host of the fleet", cmp.Or(asked.Hosts, "the policy"))
		}
		out := &api.FleetMap{Bundle: is.manifest.Number, Classes: []api.FleetMapClass{}, Countries: []api.FleetPlace{}}
		seen := notes{}
		for i, c := range found.Of {
			m := c.Is
			class := api.FleetMapClass{Name: c.Name, Hosts: c.Hosts, Countries: map[string]api.FleetReachState{}, Elsewhere: api.FleetReachState(m.Elsewhere.State)}
			all := append(m.Countries[:len(m.Countries):len(m.Countries)], m.Elsewhere)
			for n := range all {
				p := &all[n]
				place := api.FleetPlace{
					Country: p.Country, Name: p.Name, State: api.FleetReachState(p.State), Addresses: p.Addresses, Allowed: p.Allowed,
					Prefixes6: p.Prefixes6, Allowed6: p.Allowed6, Lines: []api.FleetReachLine{},
				}
				for _, l := range p.Lines {
					place.Lines = append(place.Lines, api.FleetReachLine(l))
				}
				if p.Country != "" {
					class.Countries[p.Country] = place.State
				}
				if i == 0 {
					out.Countries = append(out.Countries, place)
				} else {
					together(&out.Countries[n], &place)
				}
			}
			out.Classes = append(out.Classes, class)
			seen.add(m.Notes)
			out.Service, out.Hook, out.To, out.Publisher, out.Date = m.Service, m.Hook, m.To, m.Publisher, m.Date
		}
		last := len(out.Countries) - 1 // the addresses of no country
		out.Elsewhere, out.Countries = out.Countries[last], out.Countries[:last]
		seen.add(found.Notes)
		out.Notes, out.Seconds = seen.all, time.Since(since).Seconds()
		return out, nil
	})
}

// asksAbout is a selector of a question, nil being all.
func (o operator) asksAbout(hosts string) (*selector.Selector, error) {
	if hosts == "" {
		return nil, nil
	}
	only, err := selector.Parse(hosts)
	if err != nil {
		return nil, wrong("%v", err)
	}
	return only, nil
}

// notes are sentences, each once.
type notes struct {
	all  []string
	seen map[string]bool
}

func (n *notes) add(more []string) {
	if n.seen == nil {
		n.seen = map[string]bool{}
	}
	for _, text := range more {
		if !n.seen[text] {
			n.seen[text] = true
			n.all = append(n.all, text)
		}
	}
}

// together makes of what is so on some hosts what is so on others too.
func together(of, other *api.FleetPlace) {
	of.State = bothStates(of.State, other.State)
	of.Allowed, of.Allowed6 = min(of.Allowed, other.Allowed), min(of.Allowed6, other.Allowed6)
	of.Lines = bothLines(of.Lines, other.Lines)
}

func bothStates(a, b api.FleetReachState) api.FleetReachState {
	passes := func(s api.FleetReachState) bool { return s == api.ReachAllowed || s == api.ReachLimited }
	switch {
	case a == b:
		return a
	case passes(a) && passes(b):
		return api.ReachLimited
	}
	return api.ReachPartly
}

func bothLines(all, more []api.FleetReachLine) []api.FleetReachLine {
next:
	for _, l := range more {
		for _, is := range all {
			if is == l {
				continue next
			}
		}
		if len(all) < mostLines {
			all = append(all, l)
		}
	}
	return all
}
