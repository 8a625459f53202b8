package shadow

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"time"

	"sluice/internal/backend"
	"sluice/internal/kernel/nft"
	"sluice/internal/program"
)

// ErrRuns says that a shadow runs already in the network namespace.
var ErrRuns = errors.New("another shadow runs here\nhint: it ends by itself; Ctrl-C ends it where it was started")

// Runs says whether a shadow runs in the network namespace of the process.
func Runs() (bool, error) {
	tables, err := nft.Tables()
	return slices.Contains(tables, Owner), err
}

// Running is a shadow in the kernel.
type Running struct {
	session *nft.Session
	backend backend.Backend
	legend  *Legend
}

// Progress is told of each transaction of a start, before it is sent.
type Progress func(done, total int, name string)

// Start loads a counting program, which the backend of Owner's table has lowered, and
// reads back that the kernel holds it. It ends with Close, with the process, and some
// seconds after life.
func Start(ctx context.Context, b backend.Backend, a backend.Artifact, l *Legend, life time.Duration, tell Progress) (*Running, error) {
	if runs, err := Runs(); err != nil || runs {
		if err == nil {
			err = ErrRuns
		}
		return nil, err
	}
	steps, err := b.Steps(a, nil)
	if err != nil {
		return nil, err
	}
	session, err := nft.OpenSession(life)
	if err != nil {
		return nil, err
	}
	r := &Running{session: session, backend: b, legend: l}
	if err := r.load(ctx, steps, a, tell); err != nil {
		return nil, errors.Join(err, session.Close())
	}
	return r, nil
}

// tries is how often a transaction is sent anew that another tool's came between.
const tries = 10

func (r *Running) load(ctx context.Context, steps []backend.Step, a backend.Artifact, tell Progress) error {
	for i, step := range steps {
		tell(i, len(steps), step.Name)
		if step.Purpose == backend.Hold {
			continue
		}
		err := r.session.Run(ctx, step.Script())
		for try := 1; errors.Is(err, nft.ErrChanged) && try < tries; try++ {
			err = r.session.Run(ctx, step.Script())
		}
		if err != nil {
			return loading(i, step, err)
		}
		if i > 0 {
			continue
		}
		owned, err := nft.Owned(Owner)
		if err != nil {
			return err
		}
		if !owned {
			return errNoOwner
		}
	}
	tell(len(steps), len(steps), "")
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
		return fmt.Errorf("the kernel holds something else than what was sent: %s %s: want %q, have %q", d.Kind, d.Name, d.Want, d.Have)
	}
	return nil
}

var errNoOwner = errors.New("this kernel has no tables that end with a process, so a shadow could stay behind\nhint: it takes Linux 5.12")

// loading says what is behind an error of the first transaction, which makes the table.
func loading(i int, step backend.Step, err error) error {
	switch {
	case i == 0 && errors.Is(err, fs.ErrPermission):
		if runs, _ := Runs(); runs {
			return ErrRuns
		}
		return fmt.Errorf("load the shadow: %w\nhint: it needs root", err)
	case i == 0 && (strings.Contains(err.Error(), "owner") || strings.Contains(err.Error(), "not supported")):
		return fmt.Errorf("%w\nof nft: %w", errNoOwner, err)
	case errors.Is(err, nft.ErrEnded):
		return fmt.Errorf("load the shadow: %w\nhint: an nft that was built without its command line (nft -i) cannot hold a shadow", err)
	}
	return fmt.Errorf("load the shadow: %s: %w", step.Name, err)
}

// Ended is closed when the shadow is gone by another end than Close.
func (r *Running) Ended() <-chan struct{} { return r.session.Done() }

// Close takes the shadow away; it is gone then.
func (r *Running) Close() error { return r.session.Close() }

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
		return nil, nft.ErrEnded
	}
	filled, is := state.(backend.Filled)
	if !is {
		return nil, fmt.Errorf("backend %s does not read what packets fill", r.backend.Name())
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
