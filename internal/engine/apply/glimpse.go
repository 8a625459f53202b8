package apply

import (
	"context"
	"errors"
	"time"
)

// Glimpse is what can be told of what runs without reading a rule.
type Glimpse struct {
	Generation int // that should run; 0 is none
	// Changed is when it was last loaded, confirmed or restored, and By is by whom.
	Changed time.Time
	By      Author
	// Restores says that a restore would load the same, and end no trial.
	Restores bool
	Closed   bool   // a restore failed, and the closed policy runs
	Number   uint32 // of the ruleset
	// Ours says that the ruleset was seen to hold the generation at Read, and that commands
	// alone have changed it since.
	Ours     bool
	Read     time.Time
	Unmarked bool // the kernel does not say that it holds the generation
	Sysctls  []SysctlDrift
	// Exceptions is how those of the generation differ from those that hold.
	Exceptions []ExceptionDrift
}

// Glimpse looks at what runs, which is known where nobody is changing it: else the error
// is a *BusyError at once.
func (h *Host) Glimpse(ctx context.Context) (*Glimpse, error) {
	if !h.known() {
		return &Glimpse{}, needRoot()
	}
	here := *h
	here.Wait = 0
	s, ctx, err := here.openUnsettled(ctx)
	if err != nil {
		return nil, err
	}
	defer s.close()
	now := s.instantNow()
	if now == nil {
		return nil, errors.New("the kernel gives no generation number of the ruleset")
	}
	out := &Glimpse{Number: now.Number}
	if s.cur.Running == 0 || s.cur.BootID != bootID() {
		return out, nil
	}
	g, err := s.generation(s.cur.Running)
	if err != nil {
		return nil, err
	}
	out.Generation, out.Closed = g.Number, g.Closed
	out.Restores = s.cur.Boot == g.Number && s.cur.Pending == nil && s.cur.Lost == ""
	if n := len(g.Events); n > 0 {
		out.Changed, out.By = g.Events[n-1].Time, g.Events[n-1].By
	}
	j, err := s.journal()
	if w := s.reading(); w != nil && j == nil && err == nil {
		out.Ours, out.Read, out.Number = true, w.Read, w.Ruleset.Number
	}
	if out.Exceptions, err = s.exceptionDrift(g); err != nil {
		return nil, err
	}
	s.close() // what follows holds nobody up
	if !out.Ours {
		mark, err := h.mark(ctx, g.Mark)
		if err != nil {
			return nil, err
		}
		out.Unmarked = mark != g.Mark
	}
	out.Sysctls = s.sysctlDrift(g)
	return out, nil
}

// Seen notes that a proof, made since a glimpse, has seen the kernel hold to the letter what
// it should, and says when. It is zero where somebody has changed the ruleset since.
func (h *Host) Seen(ctx context.Context, g *Glimpse) (read time.Time, err error) {
	s, _, err := h.openUnsettled(ctx)
	if err != nil {
		return read, err
	}
	defer s.close()
	now := s.instantNow()
	if j, err := s.journal(); j != nil || err != nil || now == nil || now.Number != g.Number || s.cur.Running != g.Generation {
		return read, err
	}
	var w reading
	if err := s.readJSON(readingFile, &w); err != nil || w.Generation != g.Generation {
		w = reading{}
	}
	s.same = now
	s.remember(&w)
	return w.Read, nil
}
