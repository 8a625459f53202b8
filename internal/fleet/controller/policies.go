package controller

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"time"

	"sluice/internal/base/addrset"
	"sluice/internal/base/selector"
	"sluice/internal/fleet/api"
	"sluice/internal/fleet/inventory"
	"sluice/internal/fleet/judge"
	"sluice/internal/fleet/trust"
	"sluice/internal/fleet/wire"
	"sluice/internal/language/policy"
)

// published is the newest bundle; Number is 0 where there is none.
func (c *Controller) published(ctx context.Context) (m trust.Manifest, err error) {
	number := c.newestBundle()
	if number == 0 {
		return m, nil
	}
	of, err := c.contents.of(ctx, c.Store, number)
	if err != nil {
		return m, err
	}
	return of.manifest, nil
}

// Policy gives the texts of the newest bundle.
func (o operator) Policy(w http.ResponseWriter, r *http.Request) {
	m, err := o.published(r.Context())
	out := api.PolicyTexts{Bundle: m.Number, Signing: api.SigningOffline, Files: []api.PolicyText{}}
	if err != nil || m.Number == 0 {
		o.done(w, out, err)
		return
	}
	if o.signs(r.Context()) == nil {
		out.Signing = api.SigningController
	}
	who, v := as(r), o.view.Load()
	for _, f := range append([]trust.File{m.FleetFile}, m.Parts...) {
		text := api.PolicyText{Name: f.Path, Selector: f.Selector}
		var is *selector.Selector
		if f.Selector != "" {
			if is, err = selector.Parse(f.Selector); err != nil {
				break
			}
		}
		for id, h := range v.hosts {
			if h.Revoked.IsZero() && who.sees(id, h.Labels) && (is == nil || is.Match(named(id, h.Labels))) {
				text.Hosts++
			}
		}
		if who.Hosts != nil && is != nil && text.Hosts == 0 {
			continue
		}
		var body []byte
		if body, err = o.read(r.Context(), f.SHA256, trust.MaxFile); err != nil {
			break
		}
		if text.Text = string(body); f.Path == m.FleetFile.Path && who.Hosts != nil {
			text.Text, text.Cut = withoutAccess(text.Text), true
		}
		out.Files = append(out.Files, text)
	}
	o.answered(err)
	o.done(w, out, err)
}

// policyFiles are those of a bundle, lists as hosts are to have them now, with texts in their
// places; one without a character is no file.
func (c *Controller) policyFiles(ctx context.Context, m *trust.Manifest, texts map[string]string) (judge.Files, error) {
	files := judge.Files{}
	ctx = context.WithoutCancel(ctx) // they are kept for whoever asks next
	blob := func(path, hash string, most int64) {
		files[path] = judge.File{Sum: hash, Read: func() ([]byte, error) { return c.read(ctx, hash, most) }}
	}
	for _, f := range m.Files() {
		hash := f.SHA256
		if name, is := strings.CutPrefix(f.Path, trust.URLLists+"/"); is {
			hash = cmp.Or(c.lists.row(name).SHA256, hash)
		}
		blob(f.Path, hash, trust.MaxList)
	}
	for path, text := range texts {
		if err := trust.CheckDraftPath(path); err != nil {
			return nil, wrong("%v", err)
		}
		delete(files, path)
		if text != "" {
			files[path] = judge.Text([]byte(text))
		}
	}
	return files, nil
}

// hostsOf are the hosts that a caller sees, and all, as an inventory has them.
func (c *Controller) hostsOf(v *view, who caller) (seen, all *inventory.Inventory) {
	all = &inventory.Inventory{File: hostsFile}
	guests := map[string][]policy.Guest{}
	for _, id := range slices.Sorted(maps.Keys(v.guests)) {
		g := v.guests[id]
		guests[g.Host] = append(guests[g.Host], policy.Guest{
			Pos: hostsPos, Name: id, Interface: policy.Word{Pos: hostsPos, Text: g.Interface}, Netns: policy.Word{Pos: hostsPos, Text: g.Netns},
			Addresses: ranges(g.Addresses), Public: ranges(g.Public), Labels: g.Labels,
		})
	}
	seen = all
	if who.Hosts != nil {
		seen = &inventory.Inventory{File: hostsFile}
	}
	for _, id := range slices.Sorted(maps.Keys(v.hosts)) {
		h := v.hosts[id]
		if !h.Revoked.IsZero() {
			continue
		}
		is := inventory.Host{Pos: hostsPos, Name: id, Labels: h.Labels, Addresses: h.Addresses, Facts: h.Facts, FactsPos: hostsPos, Guests: guests[id]}
		all.Hosts = append(all.Hosts, is)
		if who.Hosts != nil && who.sees(id, h.Labels) {
			seen.Hosts = append(seen.Hosts, is)
		}
	}
	return seen, all
}

// hostsFile is the name of what the controller knows of hosts, where a file of them would be
// named.
const hostsFile = "inventory.yaml"

var hostsPos = policy.Pos{File: hostsFile, Line: 1, Column: 1}

// judging is a question about a policy while it is answered.
type judging struct {
	context.Context

	manifest     trust.Manifest
	before, next *judge.Asked
	progress     func(n, of int) // nil: nobody is told
}

// judged has somebody's question about a policy answered, for the hosts that they see, when it is
// their turn.
func (o operator) judged(w http.ResponseWriter, r *http.Request, who caller, texts map[string]string, answer func(*judging) (any, error)) (any, error) {
	m, err := o.published(r.Context())
	if err != nil {
		return nil, err
	}
	// Its sets by hosts have the addresses of all hosts that a selector matches.
	if text, is := texts[m.FleetFile.Path]; is && as(r).Hosts != nil && trust.HashOf([]byte(text)) != m.FleetFile.SHA256 {
		return nil, unpermitted("%s has the role %s for hosts of %s alone, and asks about no other %s", as(r).Who, as(r).Role, as(r).Hosts, m.FleetFile.Path)
	}
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(judge.Longest + answerTime)) // the socket has none
	ctx, leave, err := o.judge.Turn(r.Context(), cmp.Or(who.principal(), who.Who))
	if err != nil {
		return nil, unjudged(err)
	}
	defer leave()
	is := &judging{Context: ctx, manifest: m}
	if is.before, err = o.judgeable(ctx, &m, who, nil); err == nil {
		is.next, err = o.judgeable(ctx, &m, who, texts)
	}
	if err != nil {
		return nil, err
	}
	out, err := answer(is)
	if err != nil && ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	return out, unjudged(err)
}

// judgeable is a bundle with texts in their places, for the hosts that a caller sees.
func (c *Controller) judgeable(ctx context.Context, m *trust.Manifest, who caller, texts map[string]string) (*judge.Asked, error) {
	files, err := c.policyFiles(ctx, m, texts)
	if err != nil {
		return nil, err
	}
	v := c.view.Load()
	seen, all := c.hostsOf(v, who)
	at := fmt.Sprint(v.position.Incarnation, " ", v.hostsAt, " ", v.guestsAt, " ", who.Hosts)
	return &judge.Asked{Files: files, Hosts: seen, All: all, At: at}, nil
}

// fillSoon has what people ask about answered for a policy before they do.
func (c *Controller) fillSoon(a *judge.Asked) {
	for {
		select {
		case c.filling <- a:
			return
		case <-c.filling: // an older one
		}
	}
}

// fill answers what people are likely to ask next.
func (c *Controller) fill(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case a := <-c.filling:
			c.judge.Fill(ctx, a, func() bool { return len(c.filling) > 0 })
		}
	}
}

// fillPublished is fillSoon of the newest bundle.
func (c *Controller) fillPublished(ctx context.Context) {
	m, err := c.published(ctx)
	if err != nil || m.Number == 0 {
		return
	}
	if a, err := c.judgeable(ctx, &m, caller{}, nil); err == nil {
		c.fillSoon(a)
	}
}

// unjudged is why a question about a policy has no answer.
func unjudged(err error) error {
	var busy *judge.BusyError
	var bad *judge.WrongError
	switch {
	case errors.As(err, &busy):
		return &wire.Failure{Text: err.Error(), Kind: wire.KindBusy}
	case errors.As(err, &bad):
		return wrong("%v", err)
	}
	return err
}

func (o operator) CheckPolicy(w http.ResponseWriter, r *http.Request) {
	asked, fine := in[api.PolicyDraft](w, r)
	if !fine {
		return
	}
	o.answer(w, r, as(r), asked.Texts, func(is *judging) (any, error) {
		found, err := o.judge.Check(is, is.next, is.progress)
		if err != nil {
			return nil, err
		}
		if as(r).Hosts == nil && found.Sound() {
			o.fillSoon(is.next)
		}
		out := api.PolicyChecked{Bundle: is.manifest.Number, Classes: []api.PolicyClass{}, Findings: []api.PolicyFinding{}}
		for _, c := range found.Classes {
			class := api.PolicyClass{Name: c.Name, Parts: c.Parts, Expectations: len(c.Policy.Expect)}
			for _, h := range c.Hosts {
				class.Hosts = append(class.Hosts, h.Name)
			}
			out.Classes = append(out.Classes, class)
		}
		for _, f := range found.Findings {
			text, err := json.Marshal(f)
			if err != nil {
				return nil, err
			}
			out.Findings = append(out.Findings, text)
		}
		return out, nil
	})
}

func (o operator) DiffPolicy(w http.ResponseWriter, r *http.Request) {
	asked, fine := in[api.PolicyDraft](w, r)
	if !fine {
		return
	}
	o.answer(w, r, as(r), asked.Texts, func(is *judging) (any, error) { return o.diff(is) })
}

// diff says what is otherwise by the next policy.
func (o operator) diff(is *judging) (*api.PolicyDiff, error) {
	if is.manifest.Number == 0 {
		return nil, wrong("no bundle was published yet, so there is nothing to compare with")
	}
	d, next, err := o.judge.Diff(is, is.next, is.before, is.progress)
	if err != nil {
		return nil, err
	}
	out := &api.PolicyDiff{Bundle: is.manifest.Number, Opens: d.Opens(), Changes: []api.PolicyChange{}, Unchanged: d.Unchanged, Stages: []api.PolicyStage{}}
	for _, c := range d.Changes {
		change := api.PolicyChange{For: c.For, Hosts: c.Hosts, Opens: c.Opens(), Brief: []api.PolicyBrief{}, Differences: []api.PolicyDifference{}, Settings: append([]string{}, c.Settings...)}
		for _, l := range c.Brief() {
			change.Brief = append(change.Brief, api.PolicyBrief{
				Kind: api.PolicyKind(l.Kind), Hook: l.Hook, Service: l.Service, For: l.For, Classes: l.Classes, More: l.More, Text: l.String(),
			})
		}
		for _, x := range c.Diff.Changes {
			text, err := json.Marshal(x)
			if err != nil {
				return nil, err
			}
			change.Differences = append(change.Differences, text)
		}
		out.Changes = append(out.Changes, change)
	}
	plan, err := planOf(next, &is.manifest)
	if err != nil {
		return nil, wrong("the roll-out: %v", err)
	}
	classes := map[string]int{}
	for i := range is.next.Hosts.Hosts {
		h := &is.next.Hosts.Hosts[i]
		key := ""
		for _, p := range next.Fleet.Parts {
			key += fmt.Sprint(h.Selected(p.Selector))
		}
		classes[key]++
	}
	for i, n := range plan.Reaches(slices.Collect(maps.Values(classes))) {
		out.Stages = append(out.Stages, api.PolicyStage{Name: plan.Stages[i].String(), Hosts: n})
	}
	return out, nil
}

// ranges are addresses as an inventory has them.
func ranges(all []netip.Addr) (out []policy.Range) {
	for _, a := range all {
		out = append(out, policy.Range{Pos: hostsPos, Range: addrset.PrefixRange(netip.PrefixFrom(a, a.BitLen()))})
	}
	return out
}
