package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"sluice/internal/agent/fleet"
	"sluice/internal/agent/work"
	"sluice/internal/base/addrset"
	"sluice/internal/engine"
	"sluice/internal/engine/apply"
	"sluice/internal/language/bans"
	"sluice/internal/language/policy"
)

// Live brings bans of the fleet into the kernel by what the agent keeps for that, without a
// process, and whom the fleet lets in by one.
func (e *fleetEngine) Live(ctx context.Context, change *fleet.Living) (*fleet.Lived, error) {
	defer quieten()
	out := &fleet.Lived{Refused: map[string]string{}}
	banning := apply.FleetBanning{
		Incarnation: change.Incarnation, Whole: change.Whole, From: change.From, To: change.To, Lift: change.Lift, Bounds: e.bounds,
	}
	allowing := engine.FleetAllowing{Whole: change.Whole, From: change.From, To: change.To, Lift: change.Lift}
	for _, is := range change.Set {
		by := apply.Author{User: bans.Reason(is.Who), Via: apply.FleetVia}
		if is.Allow {
			by.Reason = bans.Reason(is.Reason)
			allowing.Allow = append(allowing.Allow, apply.Exception{ID: is.ID, What: is.What.String(), Service: is.Service, Until: is.Until, By: by})
			continue
		}
		banning.Ban = append(banning.Ban, bans.Ban{ID: is.ID, What: is.What, Until: is.Until, By: by, Reason: bans.Reason(is.Reason)})
	}
	banned, err := e.banFleet(ctx, banning)
	if err != nil {
		return nil, err
	}
	out.Proved = banned.Proved
	for _, r := range banned.Refused {
		out.Refused[r.ID] = r.Why
	}
	touches, err := e.touchesAllows(&allowing)
	if err != nil || !touches {
		return out, err
	}
	allowed, err := e.allowFleet(ctx, allowing)
	if err != nil {
		return nil, err
	}
	for _, r := range allowed.Refused {
		out.Refused[r.ID] = r.Why
	}
	return out, nil
}

// touchesAllows says whether a change is of somebody who is let in, or is to be.
func (e *fleetEngine) touchesAllows(in *engine.FleetAllowing) (bool, error) {
	if len(in.Allow) > 0 {
		return true, nil
	}
	hold, err := e.Host.Exceptions()
	return slices.ContainsFunc(hold, func(x apply.Exception) bool {
		return x.ID != "" && (in.Whole && x.ID > in.From && (in.To == "" || x.ID <= in.To) || slices.Contains(in.Lift, x.ID))
	}), err
}

func (e *fleetEngine) allowFleet(ctx context.Context, in engine.FleetAllowing) (*engine.FleetAllowed, error) {
	request, err := json.Marshal(in)
	if err != nil {
		return nil, err
	}
	return worked[*engine.FleetAllowed](ctx, e.space, work.Order{Operation: work.AllowFleet, Request: request, Wait: restoreWait, By: byFleet})
}

// banFleet has the keeper of bans do it, which is inside of the namespace.
func (e *fleetEngine) banFleet(ctx context.Context, in apply.FleetBanning) (out *apply.FleetBanned, err error) {
	done := make(chan struct{})
	select {
	case e.keeping <- func(k keeper) {
		defer close(done)
		out, err = k.BanFleet(ctx, in)
	}:
		<-done
		return out, err
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	case <-e.ctx.Done():
		return nil, context.Cause(e.ctx)
	}
}

// LimitBans asks the kernel, beside the keeper of bans.
func (e *fleetEngine) LimitBans(ctx context.Context, known func(netip.Prefix) bool) (out []fleet.LimitBan, err error) {
	var has []apply.LimitBan
	shares := func(generation int) (bool, error) {
		p, err := e.policyOf(generation)
		return err == nil && p.ShareBans != nil, err
	}
	stopped := e.do(ctx, func() {
		has, err = e.Host.LimitBans(ctx, shares, func(r addrset.Range) bool { p, is := r.Prefix(); return is && known(p) })
	})
	if err = errors.Join(stopped, err); err != nil {
		return nil, err
	}
	for _, b := range has {
		if p, is := b.What.Prefix(); is {
			out = append(out, fleet.LimitBan{What: p, Spare: b.Spare})
		}
	}
	return out, nil
}

// policyOf is the file of the fleet of a generation, which is the one that runs.
func (e *fleetEngine) policyOf(generation int) (*policy.Fleet, error) {
	if e.judged == nil || e.judged.Runs.Number != generation {
		running, err := e.Host.Running(nil)
		if err != nil {
			return nil, err
		}
		e.judged = running
	}
	if p := e.judged.Policy; p.Fleet == nil {
		return nil, fmt.Errorf("the policy that runs, %s, is not the fleet's", p.File)
	}
	return e.judged.Policy.Fleet, nil
}

// bounds are those of the policy of a generation, which is the one that runs.
func (e *fleetEngine) bounds(generation int) (*apply.FleetBounds, error) {
	if _, err := e.policyOf(generation); err != nil {
		return nil, err
	}
	p := e.judged.Policy
	return &apply.FleetBounds{Most: mostOf(p.Fleet.Bans), May: func(what addrset.Range, length time.Duration) error {
		if err := p.MayBan(what, length); err != nil {
			if at := (*policy.Error)(nil); errors.As(err, &at) {
				err = fmt.Errorf("%s: %s", at.Pos, at.Message)
			}
			return err
		}
		var cut error
		e.dialed.Range(func(a, _ any) bool {
			if at := a.(netip.Addr); what.Contains(at) {
				cut = fmt.Errorf("a controller of the fleet is at %s", at)
			}
			return cut == nil
		})
		return cut
	}}, nil
}

func mostOf(b *policy.BanBounds) int {
	if b == nil {
		return 0
	}
	return b.Max
}
