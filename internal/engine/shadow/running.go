package shadow

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"time"

	"golang.org/x/sys/unix"

	"sluice/internal/backend"
	"sluice/internal/program"
)

// ErrRuns says that a shadow runs already in the network namespace.
var ErrRuns = errors.New("another shadow runs here")

// ErrGone says that somebody took the shadow's table away.
var ErrGone = errors.New("the shadow is gone: somebody deleted its table")

// Runs says whether there is a shadow in the network namespace of the process.
func Runs(b backend.Backend) (bool, error) {
	of, can := b.(backend.Temporaries)
	if !can {
		return false, nil
	}
	return of.Temporary(Owner).There()
}

// temporary is the backend for the shadow's own.
func temporary(b backend.Backend) (backend.Temporary, error) {
	if of, can := b.(backend.Temporaries); can {
		return of.Temporary(Owner), nil
	}
	return nil, fmt.Errorf("backend %s cannot load temporary rules", b.Name())
}

// seat is an address of a socket that one process of a network namespace can have, and
// that is free when the process has ended.
const seat = "@sluice-shadow"

// Running is a shadow in the kernel.
type Running struct {
	backend backend.Temporary
	legend  *Legend
	seat    io.Closer
	guard   backend.Guard
}

// Progress is told of each transaction of a start, before it is sent.
type Progress func(done, total int, name string)

// grace is how long after its time a shadow is removed whose process does not do it.
const grace = 10 * time.Second

// Start loads a counting program, which the backend has lowered, and
// reads back that the kernel holds it. It ends with Close, with the process, and some
// seconds after life. What a process left behind that was killed together with what
// should have cleaned up is removed first.
func Start(ctx context.Context, b backend.Backend, a backend.Artifact, l *Legend, life time.Duration, tell Progress) (*Running, error) {
	own, err := temporary(b)
	if err != nil {
		return nil, err
	}
	steps, err := own.Steps(a, nil)
	if err != nil {
		return nil, err
	}
	taken, err := net.Listen("unix", seat)
	if errors.Is(err, unix.EADDRINUSE) {
		return nil, ErrRuns
	}
	if err != nil {
		return nil, fmt.Errorf("see whether another shadow runs: %w", err)
	}
	r := &Running{backend: own, legend: l, seat: taken}
	if err = clean(ctx, own); err == nil {
		r.guard, err = own.Guard(life + grace)
	}
	if err != nil {
		return nil, errors.Join(err, taken.Close())
	}
	if err := r.load(ctx, steps, a, life, tell); err != nil {
		return nil, errors.Join(err, r.Close())
	}
	return r, nil
}

// clean removes what a shadow left behind.
func clean(ctx context.Context, b backend.Temporary) error {
	there, err := b.There()
	if err != nil || !there {
		return err
	}
	if err := b.Clear(ctx); err != nil {
		return fmt.Errorf("remove what another shadow left behind: %w", err)
	}
	return nil
}

func (r *Running) load(ctx context.Context, steps []backend.Step, a backend.Artifact, life time.Duration, tell Progress) error {
	for i, step := range steps {
		tell(i, len(steps), step.Name)
		if err := take(ctx, step); err != nil {
			return err
		}
		if i == 0 {
			if err := r.guard.Made(); err != nil {
				return err
			}
		}
	}
	have, err := r.backend.Read(ctx, true)
	if err != nil {
		return err
	}
	differences, err := r.backend.Compare(a, have)
	if err != nil {
		return err
	}
	if len(differences) > 0 {
		d := differences[0]
		return fmt.Errorf("the kernel does not hold what was sent: %s %s: want %q, have %q", d.Kind, d.Name, d.Want, d.Have)
	}
	var chains []string
	for _, hook := range r.legend.Hooks {
		chains = append(chains, string(hook), behind(hook))
	}
	// Once its time is over every packet leaves the shadow's chains at their first
	// rule, whoever is still there to take the table away.
	if err := take(ctx, r.backend.Expire(chains, life+grace)); err != nil {
		return err
	}
	tell(len(steps), len(steps), "")
	return nil
}

// tries is how often a transaction is sent again that another tool's came between.
const tries = 10

func take(ctx context.Context, step backend.Step) error {
	err := step.Take(ctx)
	for try := 1; errors.Is(err, backend.ErrChanged) && try < tries; try++ {
		err = step.Take(ctx)
	}
	switch {
	case errors.Is(err, fs.ErrPermission):
		return fmt.Errorf("load the shadow: %w\nhint: run it as root", err)
	case err != nil:
		return fmt.Errorf("load the shadow: %s: %w", step.Name, err)
	}
	return nil
}

// There is ErrGone when somebody took the shadow away.
func (r *Running) There() error {
	there, err := r.backend.There()
	if err == nil && !there {
		err = ErrGone
	}
	return err
}

// Close takes the shadow away; it is gone then.
func (r *Running) Close() error { return errors.Join(r.guard.Close(), r.seat.Close()) }

// Counts is what a shadow has counted.
type Counts struct {
	Counters  map[string]backend.Count
	Sources   map[program.HookKind][]backend.Entry // far addresses
	Services  map[program.HookKind][]backend.Entry // protocol and port
	Protocols map[program.HookKind][]backend.Entry // protocol, of those without ports
}

// Read reads what was counted up to now.
func (r *Running) Read(ctx context.Context) (*Counts, error) {
	state, err := r.backend.Read(ctx, false)
	if err != nil {
		return nil, err
	}
	if state.Empty() {
		return nil, ErrGone
	}
	filled, is := state.(backend.Filled)
	if !is {
		return nil, fmt.Errorf("backend %s cannot read sets that packets fill", r.backend.Name())
	}
	out := &Counts{
		Counters: state.Counters(),
		Sources:  map[program.HookKind][]backend.Entry{}, Services: map[program.HookKind][]backend.Entry{}, Protocols: map[program.HookKind][]backend.Entry{},
	}
	for _, hook := range r.legend.Hooks {
		for _, of := range []struct {
			set string
			to  map[program.HookKind][]backend.Entry
		}{{sources(hook), out.Sources}, {services(hook), out.Services}, {protocols(hook), out.Protocols}} {
			if of.to[hook], err = filled.Filled(ctx, of.set); err != nil {
				return nil, err
			}
		}
	}
	return out, nil
}
