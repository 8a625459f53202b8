package stress

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"sluice/internal/engine/apply"
	"sluice/internal/lab/testnet"
)

// setting is one run of applies.
type setting struct {
	geography geography
	untracked bypass
	applies   int
	// warm is how many applies come before the footprint that the last one is
	// held to: a multiple of 2.
	warm int
	// every so many-th apply is made by the program instead of the hand; 0: none.
	program int
	// variables of the hand's environment
	variables []string
	// only is the text of one policy that stands for both
	only string
}

// alternated is what came of a run of applies.
type alternated struct {
	Applies   int           `json:"applies"`
	ByProgram int           `json:"by-program"`
	Wall      time.Duration `json:"wall-ns"`
	Took      [2]spread     `json:"took"` // an apply of the first policy, of the second
	Elements  [2]int64      `json:"elements"`
	Counts    *counts       `json:"counts"`
	Growth    []growth      `json:"growth"`
	Remains   footprint     `json:"remains"` // in the kernel, when the policy is removed
	// Notes are what applies had to say, and how often: what they could not do.
	Notes map[string]int `json:"notes,omitempty"`
}

// spread is how long something took.
type spread struct {
	N       int           `json:"n"`
	Sum     time.Duration `json:"sum-ns"`
	Longest time.Duration `json:"longest-ns"`
}

func (s *spread) add(d time.Duration) { s.N, s.Sum, s.Longest = s.N+1, s.Sum+d, max(s.Longest, d) }

func (s spread) mean() time.Duration { return s.Sum / time.Duration(max(s.N, 1)) }

// place is a lab with a hand and two policies, the first of which is in the
// kernel.
type place struct {
	*lab
	hand  *hand
	pair  pair
	flows []flow
}

// newPlace makes a lab in a net and applies the first policy there.
func (r *Run) newPlace(n *testnet.Net, s setting) (p *place, err error) {
	p = &place{}
	if p.lab, err = newLab(n); err != nil {
		return nil, err
	}
	dir, err := r.folder()
	if err != nil {
		return nil, err
	}
	if p.pair, err = writePolicies(dir, s.geography, s.untracked); err != nil {
		return nil, err
	}
	if s.only != "" {
		file := filepath.Join(dir, "only.yaml")
		if err := os.WriteFile(file, []byte(s.only), 0o600); err != nil {
			return nil, err
		}
		p.pair.files = [2]string{file, file}
	}
	state, err := apply.Dir(r.state, p.host.Name())
	if err != nil {
		return nil, err
	}
	if p.hand, err = startHand(p.host, state, r.state, s.variables...); err != nil {
		return nil, err
	}
	if err := p.prepare(r.Seed); err != nil {
		return nil, errors.Join(err, p.close())
	}
	return p, nil
}

func (p *place) prepare(seed uint64) error {
	if err := p.net.Try(p.serve); err != nil {
		return err
	}
	a, err := p.hand.do(order{Do: "facts"})
	if err != nil {
		return fmt.Errorf("read the facts of the host: %w", err)
	}
	if p.flows, err = drawFlows(p.pair, p.hand.data, *a.Facts, seed); err != nil {
		return fmt.Errorf("draw flows: %w", err)
	}
	_, err = p.hand.apply(p.pair.files[0])
	return err
}

func (p *place) close() error { return errors.Join(p.hand.stop(), p.lab.close()) }

// alternate applies the two policies in turn under traffic.
func (r *Run) alternate(ctx context.Context, n *testnet.Net, s setting) (out *alternated, err error) {
	p, err := r.newPlace(n, s)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, p.close()) }()
	if err := demand(p.flows); err != nil {
		return nil, err
	}
	t, err := p.startTraffic(p.flows)
	if err != nil {
		return nil, err
	}
	out = &alternated{Notes: map[string]int{}}
	begin := time.Now()
	before, after, runErr := r.changes(ctx, p, s, out)
	out.Wall = time.Since(begin)
	if out.Counts, err = t.stop(progressTime); err != nil || runErr != nil {
		return nil, errors.Join(runErr, err)
	}
	if s.warm < historyFull {
		for _, f := range []footprint{before, after} {
			delete(f, stateFiles)
			delete(f, stateBytes)
		}
	}
	out.Growth = grown(before, after)
	if _, err := p.hand.do(order{Do: "remove"}); err != nil {
		return nil, fmt.Errorf("remove the policy: %w", err)
	}
	out.Remains = footprint{}
	return out, p.objects(out.Remains)
}

// historyFull is how many applies it takes until a state directory has as many
// generations as it keeps, and some more.
const historyFull = 30

// changes makes the applies and takes a footprint before and behind, both under
// the first policy.
func (r *Run) changes(ctx context.Context, p *place, s setting, out *alternated) (before, after footprint, err error) {
	generation := 1
	for i := range s.applies {
		if err := ctx.Err(); err != nil {
			return nil, nil, err
		}
		which := (i + 1) % 2
		if s.program > 0 && (i+1)%s.program == 0 {
			if _, err := r.byHand(p.hand, r.state, "apply", p.pair.files[which], "--netns", p.host.Name(), "--no-confirm"); err != nil {
				return nil, nil, fmt.Errorf("apply %d: %w", i+1, err)
			}
			out.ByProgram++
			generation++
		} else {
			a, err := p.hand.apply(p.pair.files[which])
			if err != nil {
				return nil, nil, fmt.Errorf("apply %d: %w", i+1, err)
			}
			out.Took[which].add(a.Took)
			for _, n := range a.Notes {
				out.Notes[n]++
			}
			if generation++; a.Outcome.Unchanged || a.Outcome.Generation != generation {
				return nil, nil, fmt.Errorf("apply %d: generation %d runs, not %d (unchanged: %v)", i+1, a.Outcome.Generation, generation, a.Outcome.Unchanged)
			}
		}
		out.Applies++
		switch i + 1 {
		case s.warm:
			if before, err = p.footprint(p.hand); err != nil {
				return nil, nil, err
			}
			out.Elements[0] = before[elements]
		case s.warm + 1:
			now := footprint{}
			if err := p.objects(now); err != nil {
				return nil, nil, err
			}
			out.Elements[1] = now[elements]
		}
		r.progress("apply", i+1, s.applies)
		if which == 0 && i >= s.warm+1 && r.enough() {
			break
		}
	}
	after, err = p.footprint(p.hand)
	return before, after, err
}

// wrong is what must not be, in words; none: all is as it should be.
func (a *alternated) wrong() []string {
	out := a.Counts.wrong()
	for _, g := range a.Growth {
		if g.Grown {
			out = append(out, fmt.Sprintf("%s: grew from %d to %d", g.What, g.Before, g.After))
		}
	}
	for note, n := range a.Notes {
		if strings.HasSuffix(note, "of banned addresses ended") || note == "1 flow of a banned address ended" {
			continue // the bans of the two policies are not the same
		}
		out = append(out, fmt.Sprintf("%d applies note: %s", n, note))
	}
	for what, n := range a.Remains {
		if n > 0 {
			out = append(out, fmt.Sprintf("%s: %d remain when the policy is removed", what, n))
		}
	}
	return out
}
