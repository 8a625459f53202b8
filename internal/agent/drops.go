package agent

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"sluice/internal/agent/api"
	"sluice/internal/agent/work"
	"sluice/internal/engine"
	"sluice/internal/words"
)

// watchPause is the pause before drops are counted: it takes a tenth of a second of a processor
// to begin with that, which others need first when an agent begins.
const watchPause = 2 * time.Second

// watchDrops has what the kernel drops in the namespace counted until that ends.
func (s *space) watchDrops(by *engine.DropWatch) {
	select {
	case <-time.After(watchPause):
	case <-s.ctx.Done():
		return
	}
	number := s.at.Number()
	if err := by.Begin(number); err != nil {
		s.note(fmt.Errorf("drops of the kernel are not counted: %w", err))
		return
	}
	defer quieten()
	defer by.End(number)
	defer s.drops.Store(nil)
	s.drops.Store(by)
	quieten()
	<-s.ctx.Done()
}

// dropped are the packets by reason, once they are counted.
func (s *space) dropped() (map[string]uint64, error) {
	if by := s.drops.Load(); by != nil {
		return by.ByReason(s.at.Number())
	}
	return nil, nil
}

// Drops tells what the kernel drops, as Log does.
func (s *server) Drops(w http.ResponseWriter, r *http.Request, _ string) {
	q := of(r)
	in, err := sent[engine.DropChoice](q)
	answer := q.answer(w, q.Request)
	if err == nil && in.Trace && q.may(q.peer) < change { // a table is in the ruleset meanwhile
		err = noChange()
	}
	var end func()
	if err == nil {
		end, err = q.stream(answer, in.Seconds == 0)
	}
	if err != nil {
		answer.End(nil, err)
		return
	}
	defer end()
	in.Called = words.DropFlags
	from := engine.DropsFrom{Watch: q.drops.Load(), Alone: true}
	if kept := q.log.Load(); kept != nil {
		from.Grown = kept.ring.Grown
	}
	ctx, stop := context.WithCancel(q.Context())
	defer stop()
	check := func() {
		if answer.Err() != nil {
			stop()
		}
	}
	var out *engine.DropCounts
	err = q.at.Do(func() (err error) {
		out, err = q.wallFor(answer.Tell).DropsFrom(ctx, from, in, func(d engine.Dropped) {
			answer.Tell(api.Line{Dropped: &d})
			check()
		}, func(c engine.DropCounts) {
			answer.Tell(api.Line{Drops: &c})
			check()
		})
		return err
	})
	answer.End(out, work.Failed(err, q.Here, out))
}
