package applybench

import (
	"context"
	"os"
	"path/filepath"

	"sluice/internal/lab/timed"
	"sluice/internal/system/kernel/memgroup"
)

// rival is one way of bringing a state into the kernel of its lab.
type rival interface {
	// empty takes everything away again. Nothing of it is measured.
	empty(ctx context.Context) error
	// prepare makes ready what a person would have at hand before a change: files,
	// not what loads them. Nothing of it is measured.
	prepare(ctx context.Context, c change, from, to *state) error
	// make makes the change that was prepared, by running programs.
	make(ctx context.Context, w *work) error
}

// work runs the programs of a change and adds up what they take.
type work struct {
	lab     *lab
	watched bool
	group   *memgroup.Group
	held    int64 // by the group before
	with    []int // services that the programs ask
	cost    timed.Cost
}

// run runs a program, inside the lab or, as sluice with --netns, outside.
func (w *work) run(ctx context.Context, inside bool, p timed.Program) error {
	p.Watch, p.With = w.watched, w.with
	if w.watched {
		p.Group = w.group
	}
	if inside {
		p.In = w.lab.host.Do
	}
	c, err := timed.Run(ctx, p)
	w.cost.Wall += c.Wall
	w.cost.CPU += c.CPU
	w.cost.Resident = max(w.cost.Resident, c.Resident)
	w.cost.Kernel = max(w.cost.Kernel, c.Kernel-w.held)
	return err
}

// ours is sluice itself.
type ours struct {
	lab    *lab
	world  *world
	binary string
	state  string // state directory of its own: what it remembers is not another's
	flags  []string
}

func (s *ours) empty(context.Context) error {
	if err := s.lab.empty(); err != nil {
		return err
	}
	return os.RemoveAll(filepath.Join(s.state, "netns", s.lab.host.Name()))
}

func (s *ours) prepare(_ context.Context, _ change, _, to *state) error {
	return s.world.put(to, s.state)
}

func (s *ours) make(ctx context.Context, w *work) error {
	args := append([]string{"apply", s.world.policy, "--no-confirm", "--force", "--netns", s.lab.host.Name(), "--state-dir", s.state}, s.flags...)
	return w.run(ctx, false, timed.Program{Name: s.binary, Args: args})
}
