package engine

import (
	"context"
	"encoding/hex"
	"errors"
	"io/fs"
	"path/filepath"
	"slices"
	"time"

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
		if s.Connections, err = conntrack.ReadTable(); err != nil {
			return nil, err
		}
	}
	// What cannot be read is written anew by the agent.
	if w, err := h.Watched(); err == nil && w != nil && w.Tells() {
		s.Agent = &w.Watched
	}
	return s, nil
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
	in := func(name string) string {
		if filepath.IsAbs(name) {
			return name
		}
		return filepath.Join(g.Dir, name)
	}
	p, err := policy.Reading{Parts: true}.Load(in(g.Policy))
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
		if sums[in(name)] != sum {
			names = append(names, in(name))
		}
		delete(sums, in(name))
	}
	for name := range sums {
		names = append(names, name)
	}
	slices.Sort(names)
	return slices.Compact(names), nil
}
