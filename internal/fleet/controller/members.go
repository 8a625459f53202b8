package controller

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"time"

	"sluice/internal/base/addrset"
	"sluice/internal/base/selector"
	"sluice/internal/base/sorting"
	"sluice/internal/fleet/rollout"
	"sluice/internal/fleet/store"
	"sluice/internal/fleet/trust"
	"sluice/internal/fleet/wire"
	"sluice/internal/language/policy"
)

// group is a set by hosts or guests.
type group struct {
	name          string
	hosts, guests *selector.Selector
	within        []addrset.Range
}

// policyOf reads the fleet's policy as a bundle has it.
func (c *Controller) policyOf(ctx context.Context, m *trust.Manifest) (*policy.Policy, error) {
	texts := map[string][]byte{}
	for _, f := range append([]trust.File{m.FleetFile}, m.Parts...) {
		text, err := c.read(ctx, f.SHA256, trust.MaxFile)
		if err != nil {
			return nil, fmt.Errorf("%s of bundle %d: %w", f.Path, m.Number, err)
		}
		texts[f.Path] = text
	}
	p, err := policy.Reading{Texts: texts, Parts: true}.ReadFleet(m.FleetFile.Path)
	if err != nil {
		return nil, wrong("the files of bundle %d: %v", m.Number, err)
	}
	return p, nil
}

// Lists of so many bytes are fetched before a roll-out begins, by so many hosts at once.
const (
	leastPrefetch = 64 << 10
	prefetchTime  = 10 * time.Minute
	prefetchPace  = 100
)

// planOf is how the fleet's policy has a bundle go out.
func planOf(p *policy.Policy, m *trust.Manifest) (rollout.Plan, error) {
	is := p.Fleet.RollOut
	out := rollout.DefaultPlan()
	out.Level, out.Settle, out.Confirm = m.Level, rollout.Duration(is.Settle), rollout.Duration(is.Confirm)
	out.Halt, out.Stages = rollout.Limit{Hosts: is.HaltHosts, Percent: is.HaltPercent}, nil
	for _, s := range is.Stages {
		out.Stages = append(out.Stages, rollout.Stage(s))
	}
	if is.Hold {
		out.OnHalt = rollout.OnHaltHold
	}
	for _, f := range is.Freeze {
		out.Freeze = append(out.Freeze, rollout.Freeze{From: rollout.Moment(f.From), To: rollout.Moment(f.To), Zone: f.Zone})
	}
	var lists int64
	for _, l := range m.Lists {
		lists += l.Size
	}
	if lists >= leastPrefetch {
		out.Prefetch, out.Pace = rollout.Duration(prefetchTime), prefetchPace
	}
	return out, out.Check()
}

// groups are those of a bundle, which never change.
func (c *Controller) groups(ctx context.Context, bundle int64) ([]group, error) {
	of, err := c.contents.of(ctx, c.Store, bundle)
	if err != nil {
		return nil, err
	}
	of.mutex.Lock()
	defer of.mutex.Unlock()
	if of.read {
		return of.groups, nil
	}
	p, err := c.policyOf(ctx, &of.manifest)
	if err == nil {
		of.groups, err = groupsOf(p)
	}
	of.read = err == nil
	return of.groups, err
}

func groupsOf(p *policy.Policy) (groups []group, err error) {
	for _, s := range p.Groups() {
		g := group{name: s.Name}
		if s.Hosts != nil {
			g.hosts, err = selector.Parse(s.Hosts.Text)
		} else {
			g.guests, err = selector.Parse(s.Guests.Text)
		}
		if err != nil {
			return nil, err
		}
		for _, r := range s.Within {
			g.within = append(g.within, r.Range)
		}
		groups = append(groups, g)
	}
	return groups, nil
}

// members are what the sets by hosts and guests hold, as hosts read it.
type members struct {
	Sets map[string][]string `json:"sets"`
}

// membersOf computes them. Of sets that several bundles have, the newest bundle's counts.
func (c *Controller) membersOf(ctx context.Context, v *view) (*members, error) {
	guests, err := c.Store.Guests(ctx)
	if err != nil {
		return nil, err
	}
	out := &members{Sets: map[string][]string{}}
	used := map[int64]bool{}
	for _, d := range v.desired {
		used[d.Bundle] = true
	}
	numbers := slices.Sorted(maps.Keys(v.bundles))
	for i, number := range slices.Backward(numbers) {
		if i != len(numbers)-1 && !used[number] {
			continue
		}
		groups, err := c.groups(ctx, number)
		if err != nil {
			return nil, err
		}
		for _, g := range groups {
			if _, newer := out.Sets[g.name]; !newer {
				out.Sets[g.name] = g.addresses(v, guests)
			}
		}
	}
	return out, nil
}

// addresses are those of a set, which has none outside of within: a host would refuse it.
func (g group) addresses(v *view, guests []store.Guest) []string {
	var all []netip.Addr
	if g.hosts != nil {
		for id, h := range v.hosts {
			if h.Revoked.IsZero() && g.hosts.Match(named(id, h.Labels)) {
				all = append(all, h.Addresses...)
			}
		}
	} else {
		for _, guest := range guests {
			if g.guests.Match(guest.Labels) {
				all = append(all, guest.Addresses...)
			}
		}
	}
	all = slices.DeleteFunc(all, func(a netip.Addr) bool {
		return !slices.ContainsFunc(g.within, func(r addrset.Range) bool { return r.Contains(a) })
	})
	sorting.By(all, netip.Addr.Compare)
	texts := []string{}
	for _, a := range slices.Compact(all) {
		texts = append(texts, a.String())
	}
	return texts
}

// gather signs the members of sets anew when they have become others.
func (c *Controller) gather(ctx context.Context) {
	for {
		select {
		case <-c.regroup:
		case <-ctx.Done():
			return
		}
		if err := c.signMembers(ctx); err != nil {
			if c.away() == "" {
				c.Note(fmt.Errorf("the members of sets stay as they were: %w", err))
			}
			c.memberships()
		}
		select {
		case <-time.After(retryAfter):
		case <-ctx.Done():
			return
		}
	}
}

// memberships has the members of sets computed soon.
func (c *Controller) memberships() {
	select {
	case c.regroup <- struct{}{}:
	default:
	}
}

func (c *Controller) signMembers(ctx context.Context) error {
	v := c.view.Load()
	now, err := c.membersOf(ctx, v)
	if err != nil {
		return err
	}
	has, signed := v.live[trust.KindMembers]
	if len(now.Sets) == 0 && !signed {
		return nil
	}
	text, err := json.Marshal(now)
	if err != nil {
		return err
	}
	if signed {
		incarnation, payload, err := payloadOf(has.Envelope)
		if err != nil {
			return err
		}
		if incarnation == v.position.Incarnation && bytes.Equal(payload, text) {
			return nil
		}
	}
	_, err = c.Store.PutLive(ctx, self, trust.KindMembers, func(_ store.Position, seq int64) ([]byte, error) {
		return c.online.SignLive(trust.KindMembers, seq, json.RawMessage(text))
	})
	return err
}

// payloadOf reads what this controller, or another one, has signed.
func payloadOf(envelope []byte) (incarnation int64, payload []byte, err error) {
	var sealed struct{ Payload []byte }
	var body struct {
		Incarnation int64
		Payload     json.RawMessage
	}
	if err := json.Unmarshal(envelope, &sealed); err != nil {
		return 0, nil, err
	}
	err = json.Unmarshal(sealed.Payload, &body)
	return body.Incarnation, body.Payload, err
}

func hashOf(b *wire.Blob) string {
	if b == nil {
		return ""
	}
	return b.Sha256
}
