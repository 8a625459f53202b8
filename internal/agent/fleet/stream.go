package fleet

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"sluice/internal/fleet/trust"
	"sluice/internal/fleet/wire"
)

// connect holds a stream to a controller.
func (m *Member) connect(ctx context.Context) {
	var again time.Duration // the pause before, where nobody has answered since
	for wait := time.Duration(0); ctx.Err() == nil; {
		sleep(ctx, wait)
		dialing, stop := context.WithTimeout(ctx, m.Times.Dead)
		m.renew(dialing)
		s, err := m.Controllers.Dial(dialing)
		stop()
		answered := err == nil
		if answered {
			err = m.converse(ctx, s)
		}
		if ctx.Err() == nil {
			m.lost(err)
		}
		var f *wire.Failure
		var drained *drainedError
		switch refused := errors.As(err, &f); {
		case errors.As(err, &drained):
			wait, again = jitter(drained.within), 0
		case refused && f.Kind != wire.KindUnavailable, answered && !refused:
			wait, again = jitter(m.Times.Reconnect), 0
		default: // hosts came at times of their own already
			again = min(max(2*again, m.Times.Reconnect/firstTry), m.Times.Reconnect)
			wait = again/2 + jitter(again/2)
		}
		if f != nil && (f.Kind == wire.KindRevoked || f.Kind == wire.KindTaken) {
			wait += m.Times.Poll
		}
	}
}

// firstTry is which part of the longest pause is the first one after nobody has answered.
const firstTry = 16

// drainedError says that a controller ends, and within which time it wants its hosts back.
type drainedError struct{ within time.Duration }

func (*drainedError) Error() string { return "the controller ends" }

func (m *Member) lost(err error) {
	m.note(fmt.Errorf("no controller of the fleet is connected: %w", err))
	m.mu.Lock()
	if m.state.Lost.IsZero() {
		m.state.Lost = m.Clock().Truncate(time.Second)
	}
	m.state.Why = said{err}.Error()
	m.mu.Unlock()
	m.save()
}

func (m *Member) reached() {
	m.mu.Lock()
	m.state.Reached, m.state.Lost, m.state.Why, m.noted = m.Clock().Truncate(time.Second), time.Time{}, "", ""
	m.mu.Unlock()
	m.save()
}

// converse uses a stream until it ends.
func (m *Member) converse(ctx context.Context, s Stream) error {
	ctx, end := context.WithCancelCause(ctx)
	defer end(nil)
	defer s.Cut()
	if err := m.send(ctx, s, &wire.Message{Hello: m.hello(ctx)}); err != nil {
		return err
	}
	m.mu.Lock()
	m.stream = s
	m.mu.Unlock()
	defer func() {
		m.mu.Lock()
		m.stream = nil
		m.mu.Unlock()
	}()
	var parts sync.WaitGroup
	defer parts.Wait()
	parts.Go(func() { end(m.tellAll(ctx, s)) })
	nudge(m.lives.tell)
	parts.Go(func() { end(m.tellLiving(ctx, s)) })
	parts.Go(func() { end(m.ping(ctx, s)) })
	parts.Go(func() { end(m.share(ctx, s)) })
	if s.Level() >= wire.LevelQuestions {
		parts.Go(func() { end(m.tellSamples(ctx, s)) })
	}
	asked := &questions{}
	defer context.AfterFunc(ctx, s.Cut)()
	for first := true; ; first = false {
		in, err := s.Receive(ctx)
		if err != nil {
			if cause := context.Cause(ctx); cause != nil {
				err = cause
			}
			if errors.Is(err, io.EOF) {
				err = errEnded
			}
			end(err)
			return err
		}
		if first {
			m.reached()
		}
		if err := m.hear(ctx, in, s, asked); err != nil {
			end(err)
			return err
		}
	}
}

func (m *Member) hello(ctx context.Context) *wire.Hello {
	trusted, report, living := m.Trust.State(), m.Report(), m.now().Living.At
	h := &wire.Hello{
		Version: m.Version, Kernel: m.Kernel, Backend: m.Backend, LanguageLevel: m.Level, Instance: m.Instance, Labels: m.labels(), Have: m.have(),
		Root: trusted.RootVersion, Members: m.kept(trust.KindMembers), Guests: m.kept(trust.KindGuests), Living: &living, Order: wire.Order{Incarnation: trusted.Incarnation, Revision: trusted.Revision}, Report: &report,
	}
	facts, err := m.Engine.Facts(ctx)
	if err != nil {
		m.note(fmt.Errorf("the facts of the host cannot be sent to the fleet: %w", err))
		return h
	}
	sum := sha256.Sum256(facts)
	h.Facts = hex.EncodeToString(sum[:])
	return h
}

// send gives the other side a while to take a message.
func (m *Member) send(ctx context.Context, s Stream, out *wire.Message) error {
	ctx, stop := context.WithTimeout(ctx, m.Times.Dead)
	defer stop()
	return s.Send(ctx, out)
}

// reportEvery is the pause between reports of a change that is under way. Its result is sent at once.
const reportEvery = 2 * time.Second

// tellAll sends the newest report, as often as it changes.
func (m *Member) tellAll(ctx context.Context, s Stream) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-m.tell:
		}
		for began := time.Now(); m.underWay() && time.Since(began) < reportEvery; {
			select {
			case <-ctx.Done():
				nudge(m.tell) // for the next stream
				return nil
			case <-m.tell:
			case <-time.After(reportEvery - time.Since(began)):
			}
		}
		report := m.untold()
		if err := m.send(ctx, s, &wire.Message{Report: &report}); err != nil {
			nudge(m.tell)
			return err
		}
	}
}

// underWay says that the state is one on the way to what was asked for.
func (m *Member) underWay() bool {
	switch now := m.now(); now.Report.State {
	case wire.StateNone, wire.StateFetched:
		return now.Report.Bundle != 0 && now.Desired.Prefetch == nil && now.Report.Error == ""
	case wire.StateChecked, wire.StatePending, wire.StateProved:
		return now.Report.Error == ""
	}
	return false
}

var errEnded = errors.New("the connection has ended")

var errDead = errors.New("the controller no longer answers")

// alive says whether a stream lives.
func (m *Member) alive(ctx context.Context, s Stream, within time.Duration) error {
	ctx, stop := context.WithTimeoutCause(ctx, within, errDead)
	defer stop()
	if err := s.Ping(ctx); err != nil {
		if cause := context.Cause(ctx); cause != nil {
			return cause
		}
		return err
	}
	return nil
}

// ping asks again and again whether a stream lives. Hosts do it at whole seconds, so that a
// controller at rest wakes once a second rather than for each of them.
func (m *Member) ping(ctx context.Context, s Stream) error {
	for {
		if sleep(ctx, time.Until(time.Now().Add(m.Times.Ping).Truncate(time.Second))); ctx.Err() != nil {
			return ctx.Err()
		}
		if err := m.alive(ctx, s, m.Times.Dead-m.Times.Ping); err != nil {
			return err
		}
	}
}

// hear does what a message asks for.
func (m *Member) hear(ctx context.Context, in *wire.Message, s Stream, asked *questions) error {
	switch {
	case in.Refused != nil:
		return in.Refused
	case in.Drain != nil:
		return &drainedError{time.Duration(in.Drain.WithinSeconds) * time.Second}
	case in.Trust != nil:
		if err := m.believe(in.Trust); err != nil {
			m.note(err)
		}
	case in.Desired != nil:
		m.take(in.Desired)
	case in.Live != nil:
		m.lives.hear(in.Live)
	case in.Question != nil:
		return asked.begin(ctx, m, s, in.Question)
	case in.Restore != nil:
		select {
		case m.restores <- in.Restore.By:
		default: // one that waits already is enough
		}
	case in.Pace != nil:
		asked.pace(in.Pace)
	case in.Ask != nil && in.Ask.What == wire.AskedFacts:
		facts, err := m.Engine.Facts(ctx)
		if err != nil {
			m.note(fmt.Errorf("the facts of the host cannot be sent to the fleet: %w", err))
			break
		}
		return m.send(ctx, s, &wire.Message{Facts: &wire.Facts{Facts: facts}})
	}
	return nil
}
