package apply

import (
	"cmp"
	"context"
	"errors"
	"net/netip"
	"slices"
	"time"

	"sluice/internal/backend"
	"sluice/internal/base/sorting"
	"sluice/internal/program"
	"sluice/internal/system/kernel/conntrack"
	"sluice/internal/system/kernel/sysctl"
)

// Condition is what the kernel holds, seen from the state.
type Condition string

// Conditions.
const (
	Nothing  Condition = "nothing"  // no policy, and none should be
	Running  Condition = "running"  // the generation that should be
	Gone     Condition = "gone"     // somebody took the rules away
	Unmarked Condition = "unmarked" // somebody took the mark away, and not the rules
	Foreign  Condition = "unknown"  // a policy of Sluice that this state does not know
	Changing Condition = "changing" // another command is at work
)

// Status is what runs, and whether it is what was meant.
type Status struct {
	Namespace  string               `json:"namespace,omitempty"`
	Condition  Condition            `json:"condition"`
	Mark       string               `json:"mark,omitempty"`
	Generation *Generation          `json:"generation,omitempty"` // that should run
	Since      time.Time            `json:"since,omitzero"`
	Boot       int                  `json:"boot"`           // generation that the next boot loads, 0 is none
	Lost       string               `json:"lost,omitempty"` // why that is not known, so that the next boot closes the host
	Pending    *Pending             `json:"pending,omitempty"`
	Left       float64              `json:"left,omitempty"` // seconds until the pending generation is taken back
	Drift      []backend.Difference `json:"drift"`
	Sysctls    []SysctlDrift        `json:"sysctl-drift,omitempty"`
	Exceptions []ExceptionDrift     `json:"exception-drift,omitempty"`
	Counters   []Counter            `json:"counters,omitempty"`
	Uncounted  bool                 `json:"uncounted,omitempty"` // the policy wants no counters by line
	Full       []Counter            `json:"full,omitempty"`      // packets that found a dynamic table full
	Waiting    []Waiting            `json:"waiting,omitempty"`   // interfaces that the rules were loaded without
	Grace      float64              `json:"grace,omitempty"`     // seconds in which TCP of unknown connections still passes
	Host       Standing             `json:"host"`                // what the rules follow of it
	Busy       string               `json:"busy,omitempty"`      // who is changing it
	// Edited is the files that the generation was made of and that are others now, and
	// EditedUnread why that cannot be told.
	Edited       []string `json:"edited,omitempty"`
	EditedUnread string   `json:"edited-unread,omitempty"`
	Shadow       bool     `json:"shadow,omitempty"` // a policy is tried meanwhile (sluice shadow)
	// OldCountries is of when the country data are that the rules were made of, where that
	// is long ago.
	OldCountries time.Time `json:"old-countries,omitzero"`
	Due          []Due     `json:"due,omitempty"` // what the policy takes from elsewhere
	// Connections is how full the connection table is; nil where the kernel tracks nothing.
	Connections *conntrack.Table `json:"connections,omitempty"`
	// Proved is when it was last proved, or read back, that the kernel holds the generation;
	// zero: not since it was loaded, or not as it is now.
	Proved  time.Time `json:"proved,omitzero"`
	Bans    *BanCount `json:"bans,omitempty"`   // nil: not known
	Allows  int       `json:"allows,omitempty"` // addresses that are let in by command
	Dropped []Dropped `json:"dropped,omitempty"`
	// Agent is what an agent found that looks after the rules, or did when it lived.
	Agent *Watched `json:"agent,omitempty"`
	// Fleet is what the host is in its fleet; nil where it is of none.
	Fleet *InFleet `json:"fleet,omitempty"`
}

// BanCount is how many addresses, prefixes and ranges are banned.
type BanCount struct {
	Command int `json:"command"`
	Limit   int `json:"limit"`
}

// Dropped is the last packet that was dropped of a source, of those that are logged.
type Dropped struct {
	Time    time.Time  `json:"time"`
	Source  netip.Addr `json:"source"`
	Country string     `json:"country,omitempty"`
	Service string     `json:"service,omitempty"` // where it went: tcp/22
	File    string     `json:"file,omitempty"`    // of the line that dropped it
	Line    int        `json:"line,omitempty"`
	Rule    string     `json:"rule,omitempty"`
	Number  uint64     `json:"number"` // in the log
}

// Due is a list, or the country data, that the policy takes from elsewhere.
type Due struct {
	List   string    `json:"list,omitempty"` // the set that it is of; "": the country data
	URL    string    `json:"url,omitempty"`
	Of     time.Time `json:"of,omitzero"`      // of when the copy, or the data, are
	At     time.Time `json:"at,omitzero"`      // when newer ones are asked for; zero: not by itself
	By     string    `json:"by,omitempty"`     // who asks for it; "": nobody
	Failed string    `json:"failed,omitempty"` // why that failed the last time
}

// Who asks for what is due.
const (
	ByAgent = "agent"
	ByTimer = "timer"
)

// Waiting is an interface that was missing when the rules were loaded.
type Waiting struct {
	Interface string `json:"interface"`
	There     bool   `json:"there"` // by now
}

// SysctlDrift is a sysctl that is not as the policy wants.
type SysctlDrift struct {
	Name string `json:"name"`
	Want string `json:"want"`
	Have string `json:"have"`
}

// Counter is what one rule of the policy has counted.
type Counter struct {
	Name    string         `json:"name"`
	Packets uint64         `json:"packets"`
	Bytes   uint64         `json:"bytes"`
	Origin  program.Origin `json:"origin"`
	Comment string         `json:"comment,omitempty"`
}

// Fine says that what runs is what was meant.
func (s *Status) Fine() bool {
	return (s.Condition == Running || s.Condition == Nothing) && s.Lost == "" && len(s.Drift) == 0 && len(s.Sysctls)+len(s.Exceptions) == 0 && len(s.Host.Moved)+len(s.Host.Fixed) == 0 &&
		(s.Generation == nil || !s.Generation.Closed)
}

// Status reads the kernel and compares. Without contents, the elements of
// static sets are not compared.
func (h *Host) Status(ctx context.Context, contents bool) (out *Status, err error) {
	s, ctx, err := h.openToRead(ctx)
	var busy *BusyError
	if errors.As(err, &busy) {
		return h.glance(busy.Holder)
	}
	if err != nil {
		return nil, err
	}
	defer s.close()
	defer func() {
		if err == nil && (out.Condition != Running || len(out.Drift) > 0) {
			s.disbelieve()
		}
	}()
	out = h.recorded(s.cur)
	if out.Mark, err = s.mark(ctx); err != nil {
		return nil, err
	}
	have, err := s.Backend.Read(ctx, contents)
	if err != nil {
		return nil, err
	}
	if s.cur.Running == 0 {
		out.Condition = Nothing
		empty, err := s.empty(ctx)
		if out.Mark != "" || !empty {
			out.Condition = Foreign
		}
		return out, err
	}
	g, err := s.generation(s.cur.Running)
	if err != nil {
		return nil, s.unreadable(ctx, have, err)
	}
	artifact, err := s.held(g)
	if err != nil {
		return nil, s.unreadable(ctx, have, err)
	}
	out.Generation = g
	switch {
	case have.Empty():
		out.Condition = Gone
		return out, nil
	case out.Mark == "":
		out.Condition = Unmarked
	case out.Mark != g.Mark:
		out.Condition = Foreign
		return out, nil
	default:
		out.Condition = Running
	}
	if g.Fitted != nil {
		for _, name := range g.Fitted.Missing {
			out.Waiting = append(out.Waiting, Waiting{name, interfaceThere(name)})
		}
	}
	differences, err := s.compare(ctx, artifact, have)
	if err != nil {
		return nil, err
	}
	out.Grace = graceLeft(have)
	if out.Host, err = s.standing(ctx, out.Mark); err != nil {
		return nil, err
	}
	out.Drift = append(out.Drift, out.Host.withoutMoves(differences)...)
	out.Sysctls = s.sysctlDrift(g)
	if out.Exceptions, err = s.exceptionDrift(g); err != nil {
		return nil, err
	}
	if w := s.reading(); w != nil && !w.Unread && len(out.Drift) == 0 {
		out.Proved = w.Read
	}
	if out.Bans, err = s.banCount(ctx, g, artifact); err != nil {
		return nil, err
	}
	if p, err := s.program(g); err == nil {
		out.Counters, out.Full = counters(p, have.Counters())
		out.Uncounted = p.Uncounted
	}
	return out, nil
}

// recorded is what the record says.
func (h *Host) recorded(cur *current) *Status {
	out := &Status{Namespace: h.Namespace, Boot: cur.Boot, Lost: cur.Lost, Pending: cur.Pending, Since: cur.Since, Drift: []backend.Difference{}}
	if cur.Pending != nil {
		out.Left = cur.Pending.Left().Seconds()
	}
	return out
}

// glance is a status without the lock.
func (h *Host) glance(holder string) (*Status, error) {
	st, cur, err := h.peek()
	if err != nil {
		return nil, err
	}
	out := h.recorded(cur)
	out.Condition, out.Busy = Changing, holder
	if cur.Running != 0 {
		out.Generation, err = st.generation(cur.Running)
	}
	return out, err
}

func (s *session) sysctlDrift(g *Generation) []SysctlDrift {
	var drift []SysctlDrift
	for _, c := range g.Sysctls {
		// The kernel rounds the number of buckets up to whole pages.
		if c.Name == "net.netfilter.nf_conntrack_buckets" {
			continue
		}
		if have, err := sysctl.Read(c.Name); err == nil && have != c.New {
			drift = append(drift, SysctlDrift{c.Name, c.New, have})
		}
	}
	return drift
}

// counters puts the kernel's counts beside the policy's lines, and apart those
// that count a table of sources being full.
func counters(p *program.Program, counts map[string]backend.Count) (rules, full []Counter) {
	isFull := map[string]program.Origin{}
	for _, c := range p.Chains {
		for _, r := range c.Rules {
			for _, a := range r.Actions {
				isFull[program.EffectOf(a).CountsFull] = r.Origin
			}
		}
	}
	for _, c := range p.Counters {
		n, there := counts[c.Name]
		if !there {
			continue
		}
		line := Counter{Name: c.Name, Packets: n.Packets, Bytes: n.Bytes, Origin: c.Origin, Comment: c.Comment}
		if origin, is := isFull[c.Name]; is {
			if line.Origin.File == "" {
				line.Origin = origin
			}
			if n.Packets > 0 {
				full = append(full, line)
			}
			continue
		}
		rules = append(rules, line)
	}
	sortByPlace(rules)
	return rules, full
}

// sortByPlace puts counters in the order of the policy, its files in the order in
// which they come first, and behind them what no line of it says.
func sortByPlace(rules []Counter) {
	files := map[string]int{}
	for _, c := range rules {
		if _, known := files[c.Origin.File]; !known && c.Origin.Line > 0 {
			files[c.Origin.File] = len(files)
		}
	}
	sorting.StableBy(rules, func(a, b Counter) int {
		if a.Origin.Line == 0 || b.Origin.Line == 0 {
			return cmp.Compare(min(b.Origin.Line, 1), min(a.Origin.Line, 1))
		}
		return cmp.Or(
			cmp.Compare(files[a.Origin.File], files[b.Origin.File]),
			cmp.Compare(a.Origin.Line, b.Origin.Line), cmp.Compare(a.Origin.Column, b.Origin.Column))
	})
}

// History is the generations that are kept, the newest first.
type History struct {
	Running     int           `json:"running"` // 0 is none
	Boot        int           `json:"boot"`    // that the next boot loads, 0 is none
	Pending     *Pending      `json:"pending,omitempty"`
	Generations []*Generation `json:"generations"`
}

// History lists the generations that are kept.
func (h *Host) History() (*History, error) {
	st, cur, err := h.peek()
	if err != nil {
		return nil, err
	}
	numbers, err := st.numbers()
	if err != nil {
		return nil, err
	}
	h.asKernel(st, cur)
	slices.Reverse(numbers)
	out := &History{Running: cur.Running, Boot: cur.Boot, Pending: cur.Pending, Generations: []*Generation{}}
	for _, n := range numbers {
		g, err := st.generation(n)
		if err != nil {
			h.note("%v", err)
			continue
		}
		if !g.Applied.IsZero() {
			out.Generations = append(out.Generations, g)
		}
	}
	return out, nil
}

// asKernel makes a record that was read without the lock follow the kernel: a trial
// that is over counts as taken back, and one that is kept as over, though the disk
// did not take it.
func (h *Host) asKernel(st store, cur *current) {
	if cur.Pending == nil || cur.Pending.BootID != bootID() {
		return
	}
	ctx := context.Background()
	mark, err := h.mark(ctx)
	if err != nil {
		return
	}
	if kept, err := h.isKept(ctx, cur.Pending); err == nil && kept {
		cur.Pending = nil
	} else if g := st.marked(mark); g != nil && g.Number != cur.Pending.Generation {
		cur.Running, cur.Pending = g.Number, nil
	}
}

// Text is a generation with the text of its policy, by file.
type Text struct {
	*Generation
	Texts map[string]string `json:"texts"`
}

// Text gives the policy text of a generation.
func (h *Host) Text(n int) (*Text, error) {
	st := store{dir: h.Dir}
	g, err := st.generation(n)
	if err != nil {
		return nil, err
	}
	texts := map[string]string{}
	for _, f := range g.Files {
		if f.Blob == "" {
			continue
		}
		text, err := st.blob(f.Blob)
		if err != nil {
			return nil, err
		}
		texts[f.Name] = string(text)
	}
	return &Text{g, texts}, nil
}
