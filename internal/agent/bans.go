package agent

import (
	"context"
	"time"

	"sluice/internal/agent/api"
	"sluice/internal/engine/apply"
)

const (
	mostTogether = 512                   // requests of a group
	restTime     = 50 * time.Millisecond // without a ban, before what is kept is noted on the disk
)

// keeper is what bans again and again; apply.Keeper is one.
type keeper interface {
	Ban(ctx context.Context, group []apply.Asked) []apply.Answered
	BanFleet(ctx context.Context, in apply.FleetBanning) (*apply.FleetBanned, error)
	Rest(ctx context.Context)
	Close(ctx context.Context)
}

// toBan is a request that waits for its turn.
type toBan struct {
	apply.Asked
	tell func(api.Line)
	done chan apply.Answered
}

// ban has something banned, with what others want banned by then. Once it has begun it is
// waited for. The error is that of a context which ended before.
func (s *space) ban(ctx context.Context, in apply.Asked, tell func(api.Line)) (apply.Answered, error) {
	b := &toBan{in, tell, make(chan apply.Answered, 1)}
	select {
	case s.bans <- b:
		return <-b.done, nil
	case <-ctx.Done():
		return apply.Answered{}, context.Cause(ctx)
	case <-s.ctx.Done():
		return apply.Answered{}, context.Cause(s.ctx)
	}
}

// kept is what a space bans by, from the first ban on. It is of the goroutine inside of the
// namespace.
type kept struct {
	*space
	by      keeper // nil: nothing was banned yet
	group   []*toBan
	resting <-chan time.Time
}

// ban bans what waits: one write to the disk and one to the kernel.
func (k *kept) ban(first *toBan) {
	k.group = append(k.group[:0], first)
	for waits := true; waits && len(k.group) < mostTogether; {
		select {
		case b := <-k.bans:
			k.group = append(k.group, b)
		default:
			waits = false
		}
	}
	asked := make([]apply.Asked, len(k.group))
	for i, b := range k.group {
		asked[i] = b.Asked
	}
	k.does(func(by keeper) {
		for i, a := range by.Ban(k.ctx, asked) {
			k.group[i].done <- a
		}
	})
	clear(k.group)
	k.group = k.group[:0]
}

func (k *kept) does(f func(keeper)) {
	if k.by == nil {
		k.by = k.keep(k.tellingAll())
	}
	f(k.by)
	k.resting = time.After(restTime)
}

// tellingAll is the host that tells all who wait for a group what is done for it.
func (k *kept) tellingAll() *apply.Host {
	h := *k.Host.Host
	all := func(l api.Line) {
		for _, b := range k.group {
			b.tell(l)
		}
	}
	h.Wait, h.Progress = 0, nil // who waits does so here, and not in everybody's way
	h.Note = func(text string) { all(api.Line{Note: text}) }
	h.Shout = func(text string) { all(api.Line{Shout: text}) }
	return &h
}

func (k *kept) rest() {
	k.resting = nil
	if k.by != nil {
		k.by.Rest(k.ctx)
	}
}

func (k *kept) close() {
	if k.by != nil {
		k.by.Close(context.WithoutCancel(k.ctx))
	}
}
