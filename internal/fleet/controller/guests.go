package controller

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/netip"
	"path"
	"slices"
	"strings"

	"sluice/internal/base/addrset"
	"sluice/internal/base/selector"
	"sluice/internal/fleet/api"
	"sluice/internal/fleet/store"
	"sluice/internal/fleet/trust"
	"sluice/internal/fleet/wire"
	"sluice/internal/language/policy"
)

// mostListed is how many guests an answer has, and mostWaiting how many hosts are named that
// have not proved one.
const (
	mostListed  = 1000
	mostWaiting = 10
)

func noGuest(id string) error { return fmt.Errorf("guest %.253q: %w", id, store.ErrNotFound) }

func (o operator) Guests(w http.ResponseWriter, r *http.Request, params api.GuestsParams) {
	var only *selector.Selector
	if params.Selector != "" {
		var err error
		if only, err = selector.Parse(params.Selector); err != nil {
			wire.Fail(w, wrong("%v", err))
			return
		}
	}
	limit := params.Limit
	if limit == 0 {
		limit = mostListed
	}
	if limit < 1 || limit > mostListed {
		wire.Fail(w, wrong("a limit is 1 to %d, not %d", mostListed, params.Limit))
		return
	}
	v, out := o.view.Load(), api.Guests{Guests: []api.Guest{}}
	proofs, err := o.proofs(r.Context(), v)
	if err != nil {
		o.done(w, nil, err)
		return
	}
	for _, id := range slices.Sorted(maps.Keys(v.guests)) {
		g := v.guests[id]
		if id <= params.After || params.Host != "" && g.Host != params.Host || only != nil && !only.Match(g.Labels) || o.host(as(r), g.Host) != nil {
			continue
		}
		if len(out.Guests) == limit {
			out.Next = out.Guests[limit-1].Guest
			break
		}
		out.Guests = append(out.Guests, *proofs.shown(v, as(r), g))
	}
	o.done(w, out, nil)
}

func (o operator) Guest(w http.ResponseWriter, r *http.Request, id string) {
	v := o.view.Load()
	g := v.guests[id]
	if g == nil || o.host(as(r), g.Host) != nil {
		o.done(w, nil, noGuest(id))
		return
	}
	o.show(w, r, v, g)
}

func (o operator) show(w http.ResponseWriter, r *http.Request, v *view, g *store.Guest) {
	proofs, err := o.proofs(r.Context(), v)
	if err != nil {
		o.done(w, nil, err)
		return
	}
	o.done(w, proofs.shown(v, as(r), g), nil)
}

func (o operator) PutGuest(w http.ResponseWriter, r *http.Request, id string) {
	n, fine := in[api.NewGuest](w, r)
	if !fine {
		return
	}
	if err := o.host(as(r), n.Host); err != nil {
		o.done(w, nil, err)
		return
	}
	v := o.view.Load()
	if g := v.guests[id]; g != nil && o.host(as(r), g.Host) != nil {
		o.done(w, nil, noGuest(id))
		return
	}
	g := store.Guest{ID: id, Placement: store.Placement{Host: n.Host, Interface: n.Interface, Netns: n.Netns}, Addresses: n.Addresses, Public: n.Public, Labels: n.Labels, Rules: n.Rules}
	if err := o.checkGuest(r.Context(), v, g); err != nil {
		o.done(w, nil, err)
		return
	}
	now, err := o.Store.PutGuest(r.Context(), as(r).Who, g)
	if err == nil {
		err = o.refresh(r.Context())
	}
	if err != nil {
		o.done(w, nil, err)
		return
	}
	o.show(w, r, o.view.Load(), &now)
}

func (o operator) RemoveGuest(w http.ResponseWriter, r *http.Request, id string) {
	v := o.view.Load()
	if g := v.guests[id]; g != nil && o.host(as(r), g.Host) != nil {
		o.done(w, nil, noGuest(id))
		return
	}
	err := o.Store.RemoveGuest(r.Context(), as(r).Who, id)
	if err == nil {
		err = o.refresh(r.Context())
	}
	o.done(w, nil, err)
}

// checkGuest says why hosts would refuse a guest, or hold it in no set.
func (c *Controller) checkGuest(ctx context.Context, v *view, g store.Guest) error {
	for _, a := range slices.Concat(g.Addresses, g.Public) {
		if !a.IsValid() || a.Zone() != "" || a.Is4In6() || a.IsUnspecified() || a.IsLoopback() || a.IsMulticast() || a.IsLinkLocalUnicast() {
			return wrong("guest %s: %s is not an address of a guest", g.ID, a)
		}
		if slices.Contains(v.hosts[g.Host].Addresses, a) {
			return wrong("guest %s: %s is an address of host %s", g.ID, a, g.Host)
		}
	}
	if err := policy.CheckGuest(ofLanguage(&g)); err != nil {
		return wrong("%v", err)
	}
	if err := c.checkRules(ctx, v, &g); err != nil {
		return err
	}
	if len(v.bundles) == 0 {
		return nil
	}
	// Its host judges it by the bundle that runs there, and sets by any that may come.
	bundles := []int64{newest(v)}
	if now := v.desired[g.Host].Bundle; now != 0 && now != bundles[0] {
		bundles = append(bundles, now)
	}
	for _, bundle := range bundles {
		if err := c.checkBounds(ctx, bundle, &g); err != nil {
			return err
		}
	}
	return nil
}

// checkBounds says why a guest is outside of what a bundle lets guests have.
func (c *Controller) checkBounds(ctx context.Context, bundle int64, g *store.Guest) error {
	groups, addresses, public, err := c.groups(ctx, bundle)
	if err != nil {
		return err
	}
	fleet, err := c.fleetFile(ctx, bundle)
	if err != nil {
		return err
	}
	if is := ofLanguage(g); !fleet.Attaches(&is) {
		return wrong("guest %s: %s is not an interface for guests in bundle %d; add it to guests: {interfaces: […]} in fleet.yaml", g.ID, g.Interface, bundle)
	}
	for _, a := range g.Addresses {
		if !addresses.Contains(a) {
			return wrong("guest %s: %s is not within any set by guests of bundle %d", g.ID, a, bundle)
		}
	}
	for _, a := range g.Public {
		if !public.Contains(a) {
			return wrong("guest %s: %s is not a public address for guests in bundle %d; add it to guests: {public: […]} in fleet.yaml", g.ID, a, bundle)
		}
	}
	for i := range groups {
		set := &groups[i]
		if set.guests == nil || !set.guests.Match(g.Labels) {
			continue
		}
		for _, a := range g.Addresses {
			if !set.holds(a) {
				return wrong("guest %s: %s is not within what set %s may hold, which its labels put it into: %s", g.ID, a, set.name, rangesText(set.within))
			}
		}
	}
	return nil
}

// newest is the last of the bundles; 0: there is none.
func newest(v *view) (number int64) {
	for n := range v.bundles {
		number = max(number, n)
	}
	return number
}

// checkRules reads the rules of a guest's owner, and whether its network namespace has any, as
// its host will.
func (c *Controller) checkRules(ctx context.Context, v *view, g *store.Guest) error {
	if g.Rules == "" && g.Netns == "" {
		return nil
	}
	if len(g.Rules) > trust.MaxRules {
		return wrong("the rules of guest %s have %d bytes, %d at most", g.ID, len(g.Rules), trust.MaxRules)
	}
	file := "fleet.yaml"
	texts := map[string][]byte{file: []byte("version: 1\nfleet: fleet\nparts: part.yaml\n"), "part.yaml": []byte("version: 1\nguests: {enforce: namespace}\nforward: {default: drop}\n")}
	bundle := v.desired[g.Host].Bundle
	if bundle == 0 { // no roll-out has reached it
		bundle = newest(v)
	}
	if bundle != 0 {
		of, err := c.contents.of(ctx, c.Store, bundle)
		if err != nil {
			return err
		}
		if _, texts, err = c.policyOf(ctx, &of.manifest); err != nil {
			return err
		}
		file = of.manifest.FleetFile.Path
	}
	rules := path.Join(path.Dir(file), policy.RulesFile(g.ID))
	guest := ofLanguage(g)
	if g.Rules != "" {
		texts[rules] = []byte(g.Rules)
		guest.Rules = &policy.Word{Text: policy.RulesFile(g.ID)}
	}
	_, err := policy.Reading{Texts: texts, View: &policy.View{Host: g.Host, Labels: v.hosts[g.Host].Labels, Netns: g.Netns, Guests: []policy.Guest{guest}}}.Load(file)
	var all policy.Errors
	if !errors.As(err, &all) {
		return nil
	}
	for _, e := range all {
		if e.Pos.File == rules {
			text := fmt.Sprintf("the rules of guest %s: %d:%d: %s", g.ID, e.Pos.Line, e.Pos.Column, e.Message)
			if e.Hint != "" {
				text += ": " + e.Hint
			}
			return wrong("%s", text)
		}
		if g.Netns != "" && strings.HasPrefix(e.Message, "guest "+g.ID) {
			return wrong("%s: %s", e.Message, e.Hint)
		}
	}
	return nil // what else is wrong there, is no fault of the guest
}

func rangesText(all []addrset.Range) (text string) {
	for i, r := range all {
		if i > 0 {
			text += ", "
		}
		text += r.String()
	}
	return text
}

// ofLanguage is a guest as a policy has it.
func ofLanguage(g *store.Guest) policy.Guest {
	ranges := func(of []netip.Addr) (out []policy.Range) {
		for _, a := range of {
			out = append(out, policy.Range{Range: addrset.Range{From: a, To: a}})
		}
		return out
	}
	return policy.Guest{Name: g.ID, Interface: policy.Word{Text: g.Interface}, Netns: policy.Word{Text: g.Netns}, Addresses: ranges(g.Addresses), Public: ranges(g.Public), Labels: g.Labels}
}

// proofs are up to which revision hosts have proved what they are told; 0: none is known.
type proofs struct {
	guests  map[string]int64
	failed  map[string]map[string]string // of guests, by host: why they are not held as they should be
	members []provedMembers
}

// provedMembers are hosts that use the same sets.
type provedMembers struct {
	groups []group
	hosts  map[string]int64
}

// proofs reads those of the hosts that the view has.
func (c *Controller) proofs(ctx context.Context, v *view) (*proofs, error) {
	p := &proofs{guests: map[string]int64{}, failed: map[string]map[string]string{}}
	classes := map[string]int{}
	for id, d := range v.desired {
		if d.Bundle == 0 {
			continue
		}
		groups, err := c.used(ctx, v, id, d.Bundle)
		if err != nil {
			return nil, err
		}
		key := definitions(groups)
		at, has := classes[key]
		if !has {
			at = len(p.members)
			classes[key] = at
			p.members = append(p.members, provedMembers{groups, map[string]int64{}})
		}
		p.members[at].hosts[id] = 0
	}
	d := &c.documents
	d.mutex.Lock()
	defer d.mutex.Unlock()
	for id := range v.hosts {
		p.guests[id] = c.provedUntil(id, d.guestsOf[id], func(r *wire.Report) string { return r.Guests })
		p.failed[id] = c.statuses.read(id).report.Failed
	}
	for _, class := range p.members {
		doc := d.members[definitions(class.groups)]
		for id := range class.hosts {
			class.hosts[id] = c.provedUntil(id, doc, func(r *wire.Report) string { return r.Members })
		}
	}
	return p, nil
}

// provedUntil is called with the mutex of the documents.
func (c *Controller) provedUntil(host string, doc *document, content func(*wire.Report) string) int64 {
	k := c.statuses.read(host)
	if doc == nil || k.report.Proved.IsZero() || k.report.Drift != "" {
		return 0
	}
	return doc.until(content(&k.report), c.documents.at.Revision)
}

// shown is a guest with where it is proved; hosts are named that who asks may see.
func (p *proofs) shown(v *view, who caller, g *store.Guest) *api.Guest {
	out := &api.Guest{Guest: g.ID, Host: g.Host, Interface: g.Interface, Netns: g.Netns, Error: p.failed[g.Host][g.ID], Addresses: g.Addresses, Public: g.Public, Labels: g.Labels, Rules: g.Rules}
	for _, at := range g.Leaving {
		if who.sees(at.Host, v.hosts[at.Host].Labels) {
			out.Leaving = append(out.Leaving, at.Host)
		}
	}
	concerned := map[string]bool{g.Host: p.guests[g.Host] >= g.Revision && out.Error == ""}
	for _, class := range p.members {
		if !slices.ContainsFunc(class.groups, func(set group) bool { return set.guests != nil && set.guests.Match(g.Labels) }) {
			continue
		}
		for id, until := range class.hosts {
			if h := v.hosts[id]; h.Revoked.IsZero() {
				other, has := concerned[id]
				concerned[id] = until >= g.Revision && (!has || other)
			}
		}
	}
	out.Concerned, out.Proved = len(concerned), len(g.Leaving) == 0
	for _, id := range slices.Sorted(maps.Keys(concerned)) {
		if concerned[id] {
			continue
		}
		out.Proved = false
		if who.sees(id, v.hosts[id].Labels) && len(out.Waiting) < mostWaiting {
			out.Waiting = append(out.Waiting, id)
		}
	}
	return out
}

// settleMoved has guests leave where they were once their hosts have proved them.
func (c *Controller) settleMoved(ctx context.Context, v *view) error {
	c.documents.mutex.Lock()
	moving := slices.Sorted(maps.Keys(c.documents.moving))
	c.documents.mutex.Unlock()
	for _, id := range moving {
		g := v.guests[id]
		if g == nil {
			continue
		}
		c.documents.mutex.Lock()
		until := c.provedUntil(g.Host, c.documents.guestsOf[g.Host], func(r *wire.Report) string { return r.Guests })
		c.documents.mutex.Unlock()
		if until >= g.Revision && c.statuses.read(g.Host).report.Failed[id] == "" {
			if err := c.Store.SettleGuest(ctx, self, id, g.Revision); err != nil {
				return err
			}
		}
	}
	return nil
}
