package controller

import (
	"context"
	"fmt"
	"time"

	"sluice/internal/fleet/rollout"
	"sluice/internal/fleet/trust"
	"sluice/internal/language/policy"
)

// policyOf reads the fleet's policy as a bundle has it, and its texts by their paths.
func (c *Controller) policyOf(ctx context.Context, m *trust.Manifest) (*policy.Policy, map[string][]byte, error) {
	texts := map[string][]byte{}
	for _, f := range append([]trust.File{m.FleetFile}, m.Parts...) {
		text, err := c.read(ctx, f.SHA256, trust.MaxFile)
		if err != nil {
			return nil, nil, fmt.Errorf("%s of bundle %d: %w", f.Path, m.Number, err)
		}
		texts[f.Path] = text
	}
	p, err := policy.Reading{Texts: texts, Parts: true}.ReadFleet(m.FleetFile.Path)
	if err != nil {
		return nil, nil, wrong("the files of bundle %d: %v", m.Number, err)
	}
	return p, texts, nil
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
