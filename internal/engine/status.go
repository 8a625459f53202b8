package engine

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io/fs"
	"slices"
	"time"

	"sluice/internal/base/ring"
	"sluice/internal/engine/apply"
	"sluice/internal/engine/shadow"
	"sluice/internal/language/geo"
	"sluice/internal/language/policy"
	"sluice/internal/language/resolve"
	"sluice/internal/system/kernel/conntrack"
)

// Status is apply.Host.Status, with whether a policy is tried beside what runs, the files
// that what runs was made of and that are others now, how old its country data are, and when what it takes from elsewhere is renewed.
func (h *Host) Status(ctx context.Context, contents bool) (*apply.Status, error) {
	if h.Netns != nil {
		return inside(h, func(h *Host) (*apply.Status, error) { return h.Status(ctx, contents) })
	}
	s, err := h.Host.Status(ctx, contents)
	if err != nil {
		return nil, err
	}
	if s.Shadow, err = shadow.Runs(h.Backend); err != nil {
		return nil, err
	}
	s.Edited, err = edited(s.Generation)
	if err != nil {
		s.EditedUnread = err.Error()
	}
	if errors.Is(err, fs.ErrNotExist) {
		s.EditedUnread = s.Generation.Policy + ", of which this was made, is gone"
	}
	if s.Fleet, err = h.InFleet(); err != nil {
		return nil, err
	}
	if s.Generation != nil && s.Generation.Inputs[resolve.CountryData] != "" {
		if d := geo.WithSum(h.State, s.Generation.Inputs[resolve.CountryData]); d != nil {
			if date := d.Info().Date; !date.IsZero() && time.Since(date) > oldCountries {
				s.OldCountries = date
			}
		}
	}
	if s.Condition == apply.Running {
		if s.Due, err = h.due(); err != nil {
			return nil, err
		}
	}
	if s.Condition == apply.Running {
		if s.Connections, err = h.table(); err != nil {
			return nil, err
		}
	}
	// What cannot be read is rewritten by the agent.
	if w, err := h.Watched(); err == nil && w != nil {
		if w.Tells() {
			s.Agent = &w.Watched
		}
		if s.Condition == apply.Running && len(s.Drift)+len(w.Findings) == 0 && s.Generation.Number == w.Generation && w.Proved.After(s.Proved) {
			s.Proved = w.Proved
		}
	}
	if s.Generation != nil {
		allows, err := h.Allows(ctx)
		if err != nil {
			return nil, err
		}
		for _, e := range allows {
			if e.InForce {
				s.Allows++
			}
		}
		s.Dropped = h.dropped()
	}
	return s, nil
}

// table is the connection table, with the most entries that an agent has seen.
func (h *Host) table() (*conntrack.Table, error) {
	t, err := conntrack.ReadTable()
	if t == nil || err != nil {
		return t, err
	}
	// What cannot be read is rewritten by the agent.
	if w, err := h.Watched(); err == nil && w != nil && w.Peak > t.Entries && time.Since(w.PeakAt) <= apply.PeakTime {
		t.Peak, t.PeakAt = w.Peak, w.PeakAt
	}
	return t, nil
}

const (
	droppedTail = 128 << 10 // bytes of the log, in which dropped sources are looked for: some 400 packets
	mostDropped = 5
)

// dropped is the last sources that were dropped, the newest first, as far as that is kept.
// What cannot be read is left out: the log says why, where it is asked.
func (h *Host) dropped() []apply.Dropped {
	in, err := ring.Tail(h.logDir(), droppedTail)
	if err != nil {
		return nil
	}
	defer in.Close()
	var all []apply.Dropped
	for {
		rec, err := in.Next()
		if err != nil {
			break
		}
		var l Logged
		if json.Unmarshal(rec.Data, &l) != nil || !l.Source.IsValid() {
			continue
		}
		if a := actionOf(l.Rule); a != policy.Drop && a != policy.Reject {
			continue
		}
		all = slices.DeleteFunc(all, func(d apply.Dropped) bool { return d.Source == l.Source })
		all = append(all, apply.Dropped{Time: timeNow(l.Time, rec), Source: l.Source, Country: l.Country, Service: l.Service(), File: l.File, Line: l.Line, Rule: l.Rule, Number: rec.ID})
	}
	slices.Reverse(all)
	return all[:min(len(all), mostDropped)]
}

// oldCountries is how old country data are that somebody forgot: publishers renew theirs
// every month or day.
const oldCountries = 60 * 24 * time.Hour

// edited names the files of a generation's policy that are no more what was loaded:
// the policy, what it includes, its set files. An error says why they cannot be read.
func edited(g *apply.Generation) (names []string, err error) {
	if g == nil || g.Closed || g.Policy == "" || g.Policy == StandardInput || len(g.Files) == 0 {
		return nil, nil
	}
	p, err := policy.Reading{Parts: true}.Load(g.In(g.Policy))
	if err != nil {
		return nil, err
	}
	now, err := sourcesIn(p)
	if err != nil {
		return nil, err
	}
	sums := map[string]string{}
	for _, s := range now {
		sums[s.Name] = s.SHA256
	}
	for _, f := range p.Broken {
		sums[f.File] = hex.EncodeToString(f.Sum[:])
	}
	was := map[string]string{}
	for _, f := range g.Files {
		was[f.Name] = f.SHA256
	}
	for _, f := range g.Broken {
		was[f.File] = f.SHA256
	}
	for name, sum := range was {
		if sums[g.In(name)] != sum {
			names = append(names, g.In(name))
		}
		delete(sums, g.In(name))
	}
	for name := range sums {
		names = append(names, name)
	}
	slices.Sort(names)
	return slices.Compact(names), nil
}
