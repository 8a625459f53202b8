package apply

import (
	"context"
	"time"

	"sluice/internal/backend"
)

// Gauged is what has to be known of a generation to read its figures again and again.
type Gauged struct {
	Of       string    `json:"of"` // see GaugedNow
	Counters []Counter `json:"counters,omitempty"`
	Full     []Counter `json:"full,omitempty"` // those of tables of sources that are full
	Gauges   []byte    `json:"gauges,omitempty"`
	gauges   backend.Gauges
}

// Figures is what runs in numbers. It is read beside whoever changes the firewall.
type Figures struct {
	Condition  Condition
	Changing   bool
	Generation int // that should run; 0 is none
	Boot       int
	Since      time.Time
	Closed     bool
	Took       time.Duration // of the last change that loaded it; 0: not known
	Pending    *Pending
	// Proved says that the kernel was seen to hold the generation, and that commands alone
	// have changed the ruleset since.
	Proved  bool
	Sysctls int // that are not as the policy wants
	// Exceptions is how many the rules lack, or have though they do not hold.
	Exceptions int
	Counters   []Counter
	Full       []Counter
	backend.Readings
}

// GaugedNow tells what Gauges would be of: "" where nothing runs.
func (h *Host) GaugedNow() (string, error) {
	st, cur, err := h.peek()
	if err != nil || cur.Running == 0 || cur.BootID != bootID() {
		return "", err
	}
	g, err := st.generation(cur.Running)
	if err != nil {
		return "", err
	}
	if g.Fitted != nil {
		return g.Mark + " " + g.Fitted.Artifact, nil
	}
	return g.Mark, nil
}

// Gauges reads what Figures needs of what runs, for which it reads all of it from the disk.
func (h *Host) Gauges() (*Gauged, error) {
	of, err := h.GaugedNow()
	if err != nil || of == "" {
		return &Gauged{}, err
	}
	st, cur, err := h.peek()
	if err != nil {
		return nil, err
	}
	s := h.session(st, cur)
	g, err := s.generation(cur.Running)
	if err != nil {
		return nil, err
	}
	p, err := s.program(g)
	if err != nil {
		return nil, err
	}
	out := &Gauged{Of: of}
	all := map[string]backend.Count{}
	for _, c := range p.Counters {
		all[c.Name] = backend.Count{Packets: 1}
	}
	out.Counters, out.Full = counters(p, all)
	b, can := s.Backend.(backend.Gauged)
	if !can {
		return out, nil
	}
	a, err := s.given(g)
	if err != nil {
		return nil, err
	}
	gauges, err := b.Gauges(a)
	if err != nil {
		return nil, err
	}
	out.Gauges, err = gauges.Encode()
	return out, err
}

// Figures reads them; known is what Gauges gave. It takes no lock, so that of what is
// changed meanwhile some may be of before and some of behind.
func (h *Host) Figures(ctx context.Context, known *Gauged) (*Figures, error) {
	if err := needRoot(); err != nil {
		return nil, err
	}
	st, cur, err := h.peek()
	if err != nil {
		return nil, err
	}
	h.asKernel(st, cur)
	out := &Figures{Condition: Nothing, Generation: cur.Running, Boot: cur.Boot, Since: cur.Since, Pending: cur.Pending}
	j, err := st.journal()
	if err != nil {
		return nil, err
	}
	out.Changing = j != nil
	if cur.Running == 0 {
		return out, nil
	}
	s := h.session(st, cur)
	g, err := s.generation(cur.Running)
	if err != nil {
		return nil, err
	}
	out.Closed = g.Closed
	for _, e := range g.Events {
		if e.Took > 0 {
			out.Took = time.Duration(e.Took * float64(time.Second))
		}
	}
	mark, err := h.mark(ctx, g.Mark)
	if err != nil {
		return nil, err
	}
	out.Condition = Running
	if mark != g.Mark {
		out.Condition = Unmarked
	}
	seen := s.reading()
	out.Proved = seen != nil && !seen.Unread && !out.Changing
	out.Sysctls = len(s.sysctlDrift(g))
	excepted, err := s.exceptionDrift(g)
	if err != nil {
		return nil, err
	}
	out.Exceptions = len(excepted)
	return out, s.figures(ctx, g, known, out)
}

// figures adds what is counted.
func (s *session) figures(ctx context.Context, g *Generation, known *Gauged, out *Figures) error {
	b, can := s.Backend.(backend.Gauged)
	if !can || len(known.Gauges) == 0 {
		return nil
	}
	var err error
	if known.gauges == nil {
		if known.gauges, err = b.DecodeGauges(known.Gauges); err != nil {
			return err
		}
	}
	r, err := s.readings(ctx, g, known.gauges)
	if err != nil {
		return err
	}
	out.Readings = *r
	if r.Gone {
		out.Condition, out.Proved = Gone, false
	}
	out.Counters, out.Full = counted(known.Counters, r.Counters), counted(known.Full, r.Counters)
	return nil
}

func (s *session) readings(ctx context.Context, g *Generation, of backend.Gauges) (*backend.Readings, error) {
	bans, err := s.commands(g)
	if err != nil {
		return nil, err
	}
	var store backend.BanStore
	if bans != nil {
		store = bans.BanStore
	}
	return of.Read(ctx, store)
}

// counted is the counters that the kernel has, with what they have counted.
func counted(list []Counter, counts map[string]backend.Count) []Counter {
	out := make([]Counter, 0, len(list))
	for _, c := range list {
		if n, there := counts[c.Name]; there {
			c.Packets, c.Bytes = n.Packets, n.Bytes
			out = append(out, c)
		}
	}
	return out
}

// banCount is how many bans the kernel holds; nil where the backend cannot tell.
func (s *session) banCount(ctx context.Context, g *Generation, artifact backend.Artifact) (*BanCount, error) {
	b, can := s.Backend.(backend.Gauged)
	if !can {
		return nil, nil
	}
	gauges, err := b.Gauges(artifact)
	if err != nil {
		return nil, err
	}
	r, err := s.readings(ctx, g, gauges)
	if err != nil {
		return nil, err
	}
	return &BanCount{r.ByCommand, r.ByLimit}, nil
}
