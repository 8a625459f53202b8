package apply

import (
	"cmp"
	"context"
	"net/netip"
	"slices"
	"time"

	"sluice/internal/backend"
	"sluice/internal/base/sorting"
	"sluice/internal/program"
	"sluice/internal/system/kernel/netns"
)

// The reading is the last time that the kernel was read back and held a
// generation to the letter. While its ruleset has the same number since, in the
// same namespace of the same boot, nobody has touched it: every transaction of
// anybody takes the next number. So what was read then need not be read again,
// and an apply of the same inputs has nothing to do.
//
// What packets and time do to a ruleset (elements that limits add, bans that
// expire) takes no number, and is in no comparison either.
type reading struct {
	Format     int     `json:"format"`
	Generation int     `json:"generation"`
	Mark       string  `json:"mark"`
	Ruleset    instant `json:"ruleset"`
	// Read is when it was made. It stays while what is known is carried on.
	Read time.Time `json:"read,omitzero"`
	// Unread says that the kernel was not read back, only that it took every
	// transaction and that nobody else made one; who wants no reading back wants
	// no more.
	Unread bool `json:"unread,omitempty"`
	// Bans is what bans by command were compared with; nil where they were not, or
	// something is to be told of them.
	Bans *compared `json:"bans,omitempty"`
	// Inputs is the sum of everything that the generation was made of; "" is
	// unknown.
	Inputs string   `json:"inputs,omitempty"`
	Said   Said     `json:"said"`
	Notes  []string `json:"notes,omitempty"` // of the guard
	// Peers are those that the guard judged. Their ports are 0 where the policy
	// asks for none like it.
	SSHClients []SSHClient `json:"peers,omitempty"`
	// Ports are the source ports that the policy asks for.
	Ports []program.NumberRange `json:"ports,omitempty"`
}

// instant is one state of a ruleset.
type instant struct {
	BootID    string `json:"boot-id"`
	Namespace string `json:"namespace"`
	backend.Fingerprint
}

// Said is what the caller told the reader when it made an input, to tell it
// again.
type Said struct {
	Warnings []string `json:"warnings,omitempty"`
	Notes    []string `json:"notes,omitempty"`
}

const readingFile = "witness.json"

// is says whether the ruleset had one state at two instants.
func (i *instant) is(o *instant) bool {
	return i != nil && o != nil && i.BootID == o.BootID && i.Namespace == o.Namespace && i.Number == o.Number
}

// instantNow is the state of the ruleset at this moment; nil where the kernel
// does not say.
func (s *session) instantNow() *instant {
	if s.here.Namespace == "" {
		id := bootID()
		namespace, err := netns.ID()
		if err != nil || id == "" {
			return nil
		}
		s.here = instant{BootID: id, Namespace: namespace}
	}
	f, err := s.Backend.Fingerprint()
	if err != nil {
		return nil
	}
	return &instant{s.here.BootID, s.here.Namespace, f}
}

// untouched says whether the ruleset is what it was at an instant.
func (s *session) untouched(since *instant) bool { return s.instantNow().is(since) }

// alone says whether nobody but this process has touched the ruleset since an instant
// that it saw.
func (i *instant) alone(since *instant) bool {
	return i != nil && since != nil && i.BootID == since.BootID && i.Namespace == since.Namespace && i.Alone(since.Fingerprint)
}

// trust is what a session knows of the kernel without reading it again.
type trust struct {
	// same is when the kernel held to the letter what it should; nil where that
	// is not known. It was read then, unless unread.
	same   *instant
	unread bool
	// before is what was read ahead of a change, where a reading had seen the
	// static sets; nil where there was none. It was read at an instant; nil where
	// the kernel does not say.
	before backend.State
	readAt *instant
	// touched is what is edited alone, where nothing else was read; nil where that
	// is not known.
	touched []backend.Checked
	// edited says that those were looked up behind the change, and that they are all that is
	// different.
	edited bool
	// bansFound is what bans by command were compared with by this session, or by the
	// one that it trusts; nil where they were not.
	bansFound   *compared
	bansTrusted bool
}

// readAhead reads what the kernel holds before a change to an artifact: neither the rules
// nor the elements of static sets that a reading has seen, and nobody touched since. Of a
// change that is read back, the reading has to have read them too.
func (s *session) readAhead(ctx context.Context, want backend.Artifact, verify bool) (backend.State, error) {
	s.before, s.readAt = nil, s.instantNow()
	w := s.reading()
	// Sets that stay for a trial are trusted only when they were read.
	if w == nil || w.Unread && verify || s.cur.Unswept {
		have, err := s.Backend.Read(ctx, true)
		if !s.untouched(s.readAt) {
			s.readAt = nil
		}
		return have, err
	}
	have, err := s.known(ctx, w, want)
	if have == nil && err == nil {
		have, err = s.Backend.Read(ctx, false)
	}
	if err != nil {
		return nil, err
	}
	if !s.readAt.is(&w.Ruleset) || !s.untouched(s.readAt) {
		s.readAt = nil
		return s.Backend.Read(ctx, true)
	}
	s.before = have
	return have, nil
}

// known is what the kernel holds by a reading; nil where that does not tell enough: during
// a trial older sets are there too.
func (s *session) known(ctx context.Context, w *reading, want backend.Artifact) (backend.State, error) {
	knower, can := s.Backend.(backend.Knower)
	if !can || want == nil || w.Unread || s.cur.Pending != nil {
		return nil, nil
	}
	_, holds, err := s.artifact(w.Generation)
	if err != nil {
		return nil, nil //nolint:nilerr // reading tells what to fix it by
	}
	if store := s.banStore(holds); store != nil {
		holds = store.Asking(holds)
	}
	return knower.Known(ctx, holds, want)
}

// alone says whether nobody else made a transaction since the kernel was read ahead.
func (s *session) alone() bool { return s.instantNow().alone(s.readAt) }

// readBack reads what the kernel holds after a change: all of it, or what this
// process did to it where nobody else did anything.
func (s *session) readBack(ctx context.Context) (backend.State, error) {
	if s.before != nil && s.alone() {
		return s.Backend.ReadSince(ctx, s.before)
	}
	return s.Backend.Read(ctx, true)
}

// tookAll notes that the kernel took a whole change, which is not read back.
func (s *session) tookAll() {
	s.same, s.unread = nil, true
	if now := s.instantNow(); s.alone() && s.untouched(now) {
		s.same = now
	}
}

// foundSame notes that what was read since an instant is what it should be, if
// nobody changed the ruleset while it was read.
func (s *session) foundSame(since *instant) {
	if s.same, s.unread = nil, false; s.untouched(since) {
		s.same = since
	}
}

// reading is what the last one saw, where it holds still for the running
// generation; nil where it does not.
func (s *session) reading() *reading {
	var w reading
	if s.cur.Running == 0 || s.readJSON(readingFile, &w) != nil || w.Generation != s.cur.Running {
		return nil
	}
	g, err := s.generation(w.Generation)
	now := s.instantNow()
	if err != nil || g.Mark != w.Mark || g.Backend != s.Backend.Name() || g.Fitted != nil || !now.is(&w.Ruleset) {
		return nil
	}
	w.Ruleset = *now
	return &w
}

// disbelieve drops the last reading, which what was found gives the lie.
func (s *session) disbelieve() {
	if !s.Beside {
		_ = s.remove(readingFile)
	}
}

// keepReading records that the kernel held the running generation; notes are what the guard had to say.
func (s *session) keepReading(in Input, o Options, notes []string) {
	w := &reading{}
	if o.lockOut == nil {
		// Who is locked out on purpose is told so each time.
		w.Inputs, w.Said, w.Notes, w.Ports = in.Inputs, in.Said, notes, sourcePorts(in.Program)
		w.SSHClients = w.known(in.SSHClients)
	}
	s.remember(w)
}

// remember records a reading, where the kernel was seen to hold the running
// generation.
func (s *session) remember(w *reading) {
	g, err := s.generation(s.cur.Running)
	if err != nil || s.same == nil || g.Fitted != nil {
		return
	}
	w.Format, w.Generation, w.Mark, w.Ruleset, w.Read, w.Unread, w.Bans = format, g.Number, g.Mark, *s.same, s.now(), s.unread, s.bansFound
	// Without it the next apply reads everything, and no harm is done; it holds for
	// this boot alone, so it does not wait for the disk.
	_ = s.writeUnsynced(readingFile, w)
}

// known is peers as far as the policy can tell them apart, each once.
func (w *reading) known(peers []SSHClient) []SSHClient {
	var out []SSHClient
	for _, p := range peers {
		asked := slices.ContainsFunc(w.Ports, func(r program.NumberRange) bool {
			return r.From <= uint64(p.Remote.Port()) && uint64(p.Remote.Port()) <= r.To
		})
		if !asked {
			p.Remote = netip.AddrPortFrom(p.Remote.Addr(), 0)
		}
		out = append(out, p)
	}
	sorting.By(out, func(a, b SSHClient) int {
		return cmp.Or(a.Remote.Compare(b.Remote), a.Local.Compare(b.Local), cmp.Compare(a.Interface, b.Interface))
	})
	return slices.Compact(out)
}

// sourcePorts are the source ports that a program asks for.
func sourcePorts(p *program.Program) []program.NumberRange {
	var ports []program.NumberRange
	fromSet := func(id string, keys []program.Field) {
		at := slices.Index(keys, program.SourcePort)
		set := p.Set(id)
		if at < 0 || set == nil {
			return
		}
		for _, e := range set.Elements {
			ports = append(ports, e.Parts[at].Numbers)
		}
	}
	for _, c := range p.Chains {
		for _, r := range c.Rules {
			for _, m := range r.Match {
				switch {
				case m.Field == program.Opaque:
					return []program.NumberRange{{To: 1<<16 - 1}} // it may ask for any
				case m.Set != "" && len(m.SetKey) > 0:
					fromSet(m.Set, m.SetKey)
				case m.Set != "":
					fromSet(m.Set, []program.Field{m.Field})
				case m.Field == program.SourcePort:
					ports = append(ports, m.Numbers...)
				}
			}
			for _, a := range r.Actions {
				if e := program.EffectOf(a); e.Map != "" {
					fromSet(e.Map, e.Reads)
				}
			}
		}
	}
	return ports
}

// Unchanged is an input before it is compiled.
type Unchanged struct {
	Inputs     string // the sum of everything that it is made of; "" is unknown
	SSHClients []SSHClient
	Memory     uint64 // as Input has it
}

// Apply is Host.Apply where it can be told without compiling that there is
// nothing to change: the inputs are those of the running generation, and nobody
// has touched the ruleset since it was read back. The outcome is nil where it
// cannot be told, and nothing was done.
func (in Unchanged) Apply(ctx context.Context, h *Host, o Options) (*Outcome, *Said, error) {
	if in.Inputs == "" || o.Cut || !h.known() {
		return nil, nil, nil
	}
	s, ctx, err := h.open(ctx)
	if err != nil {
		return nil, nil, err
	}
	defer s.close()
	if err := s.refuseToKeep(o); err != nil {
		return nil, nil, err
	}
	w := s.reading()
	if w == nil || w.Unread && o.Verify || w.Inputs != in.Inputs || !s.sameJournal(w) || !slices.Equal(w.known(in.SSHClients), w.SSHClients) {
		return nil, nil, nil
	}
	g, err := s.generation(s.cur.Running)
	if err != nil || !o.Force && tooLarge(g.Cost, in.Memory) || len(s.sysctlDrift(g)) > 0 || !s.intact(g) {
		return nil, nil, nil // the long way says why, and fixes
	}
	for _, n := range w.Notes {
		s.note("%s", n)
	}
	if err := s.keepRunning(ctx, o, s.cur.Pending); err != nil {
		return nil, nil, err
	}
	out := &Outcome{Unchanged: true, Notes: g.Notes}
	s.describe(out)
	return out, &w.Said, nil
}
