package shadow

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"sluice/internal/backend"
	"sluice/internal/program"
	"sluice/internal/system/kernel/nft"
)

// ErrRuns says that a shadow runs already in the network namespace.
var ErrRuns = errors.New("another shadow runs here\nhint: it ends by itself; Ctrl-C ends it where it was started")

// ErrGone says that somebody took the shadow's table away.
var ErrGone = errors.New("the shadow is gone: somebody took its table away")

// Runs says whether there is a shadow in the network namespace of the process.
func Runs() (bool, error) {
	tables, err := nft.Tables()
	return slices.Contains(tables, Owner), err
}

// seat is an address of a socket that one process of a network namespace can have, and
// that is free when the process has ended.
const seat = "@sluice-shadow"

// Running is a shadow in the kernel.
type Running struct {
	backend backend.Backend
	legend  *Legend
	seat    io.Closer
	guard   *nft.Guard
}

// Progress is told of each transaction of a start, before it is sent.
type Progress func(done, total int, name string)

// grace is how long after its time a shadow is taken away whose process does not do it.
const grace = 10 * time.Second

// Start loads a counting program, which the backend of Owner's table has lowered, and
// reads back that the kernel holds it. It ends with Close, with the process, and some
// seconds after life. What a process left behind that was killed together with what
// should have cleaned up is taken away first.
func Start(ctx context.Context, b backend.Backend, a backend.Artifact, l *Legend, life time.Duration, tell Progress) (*Running, error) {
	steps, err := b.Steps(a, nil)
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
	r := &Running{backend: b, legend: l, seat: taken}
	if err = clean(ctx); err == nil {
		r.guard, err = nft.NewGuard(Owner, life+grace)
	}
	if err != nil {
		return nil, errors.Join(err, taken.Close())
	}
	if err := r.load(ctx, steps, a, life, tell); err != nil {
		return nil, errors.Join(err, r.Close())
	}
	return r, nil
}

// clean takes away what a shadow left behind.
func clean(ctx context.Context) error {
	there, err := Runs()
	if err != nil || !there {
		return err
	}
	if err := nft.Run(ctx, "delete table inet "+Owner+"\n"); err != nil && !errors.Is(err, nft.ErrNotThere) {
		return fmt.Errorf("take away what another shadow left behind: %w", err)
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
		return fmt.Errorf("the kernel holds something else than what was sent: %s %s: want %q, have %q", d.Kind, d.Name, d.Want, d.Have)
	}
	if err := take(ctx, backend.Step{Purpose: backend.Edit, Name: "end of its time", Transaction: script(r.expiry(life))}); err != nil {
		return err
	}
	tell(len(steps), len(steps), "")
	return nil
}

// script is a transaction of nft.
type script string

// Take runs nft.
func (s script) Take(ctx context.Context) error { return nft.Run(ctx, string(s)) }

// Text is the input of nft -f.
func (s script) Text() string { return string(s) }

// tries is how often a transaction is sent anew that another tool's came between.
const tries = 10

func take(ctx context.Context, step backend.Step) error {
	err := step.Take(ctx)
	for try := 1; (errors.Is(err, backend.ErrChanged) || errors.Is(err, nft.ErrChanged)) && try < tries; try++ {
		err = step.Take(ctx)
	}
	switch {
	case errors.Is(err, fs.ErrPermission):
		return fmt.Errorf("load the shadow: %w\nhint: it needs root", err)
	case err != nil:
		return fmt.Errorf("load the shadow: %s: %w", step.Name, err)
	}
	return nil
}

// inTime is a set whose elements the kernel takes away; the digits say so to who reads
// the table back.
const inTime = "in_time_00000001"

// expiry lets the kernel itself end the counting: once its time is over, the elements
// are gone and every packet leaves the shadow's chains at their first rule, whoever is
// still there to take the table away.
func (r *Running) expiry(life time.Duration) string {
	end := fmt.Sprintf("timeout %ds", int64((life+grace+time.Second-1)/time.Second)) // nft reads no more than eight digits
	var b strings.Builder
	fmt.Fprintf(&b, "add set inet %s %s { type nf_proto; flags timeout; elements = { ipv4 %s, ipv6 %s } }\n", Owner, inTime, end, end)
	for _, hook := range r.legend.Hooks {
		for _, chain := range []string{string(hook), behind(hook)} {
			fmt.Fprintf(&b, "insert rule inet %s %s meta nfproto != @%s accept comment \"its time is over\"\n", Owner, chain, inTime)
		}
	}
	return b.String()
}

// There is ErrGone when somebody took the shadow away.
func (r *Running) There() error {
	there, err := Runs()
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
