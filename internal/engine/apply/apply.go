package apply

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"slices"
	"time"

	"sluice/internal/backend"
	"sluice/internal/program"
	"sluice/internal/prove/query"
	"sluice/internal/system/kernel/sysctl"
)

// Input is a policy ready to be applied.
type Input struct {
	Policy     string // the main file, as it was named
	Files      []Source
	Broken     []Broken
	Program    *program.Program
	Expected   *program.Program // with only the passes of the optimizer that it needs, to hold the kernel against; nil: Program
	Artifact   backend.Artifact
	Profile    map[string]uint64 // packets by counter that the program's order goes by; nil: the policy's own
	Without    []string          // passes of the optimizer that were left out
	Facts      any               // what the host was when the policy was compiled; kept as JSON
	SSHClients []SSHClient
	Sysctls    []Setting
	SSHPorts   []uint16 // where ssh is managed: what stays open if a restore fails
	// Memory is how many bytes the kernel may still take; 0 is unknown.
	Memory uint64
	// Inputs is a sum of everything that all this was made of, such that of the
	// same inputs comes the same; "" is unknown. Said is what the reader was told
	// on the way.
	Inputs string
	Said   Said
	// Exceptions are those that the rules were made with, and Hold those that held then.
	Exceptions, Hold []Exception
	// Sources is what the policy's names were resolved from: see resolve.Inputs.
	Sources map[string]string
}

// Setting is a sysctl that the policy wants.
type Setting struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

// Options is how a policy is applied.
type Options struct {
	Confirm time.Duration // 0: it is confirmed by being applied
	Keep    bool          // Confirm is 0 on purpose: also over a policy that waits, and over a lock-out
	Force   bool          // also where it locks a peer out or takes too much memory
	Verify  bool          // read back, compare, and prove
	Cut     bool          // delete the flows that the policy refuses
	// KeepEdits confirms at once what comes to a few elements of living sets, whatever
	// Confirm is: every rule stays.
	KeepEdits bool

	lockOut error // what a forced lock-out comes to
}

// Outcome is what an apply, a rollback or a restore did.
type Outcome struct {
	Generation int    `json:"generation"`       // that runs now, 0 is none
	Policy     string `json:"policy,omitempty"` // its file, as it was named
	Closed     bool   `json:"closed,omitempty"` // it is the closed policy, which nobody applied
	Unchanged  bool   `json:"unchanged"`        // the kernel held it already
	// Fixed is what a restored generation's rules name themselves, and the host has got
	// beside it; an apply takes it in.
	Fixed   []string `json:"fixed,omitempty"`
	Pending *Pending `json:"pending,omitempty"`
	// Edited says that elements of living sets alone were changed, and are in the kernel:
	// of all else it was known that it holds what was meant.
	Edited bool `json:"edited,omitempty"`
	Cut    int  `json:"cut"` // flows deleted
	// Meaning is what an apply opens and closes, as sluice diff --brief has it: empty where
	// it treats every packet as before, nil where nothing ran or that is not known.
	Meaning []query.BriefLine `json:"meaning,omitzero"`
	// Adopted is of a change that began to track connections; nil of others.
	Adopted *Adopted `json:"adopted,omitempty"`
	Notes   []string `json:"notes,omitempty"`
	// Times is how long an apply took.
	Times *Times `json:"times,omitempty"`
	// Proof is that of the rules that were loaded; nil where none were, a few
	// elements alone, or no proof was asked for.
	Proof *Proof `json:"proof,omitempty"`
}

// Apply brings a policy into the kernel, and keeps it.
func (h *Host) Apply(ctx context.Context, in Input, o Options) (*Outcome, error) {
	began := time.Now()
	s, ctx, err := h.openToRead(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { s.close() }()

	if err := s.refuseToKeep(o); err != nil {
		return nil, err
	}
	doubts, err := s.admitAloud(in, &o)
	if err != nil {
		return nil, err
	}
	if s.lock == nil {
		// Nothing refuses the first policy: now it gets a state.
		locked, held, err := h.open(ctx)
		if err != nil {
			return nil, err
		}
		s, ctx = locked, held
		if err := s.refuseToKeep(o); err != nil {
			return nil, err
		}
	}
	if err := s.refuseOthers(in.Hold); err != nil {
		return nil, err
	}
	encoded, err := in.Artifact.Encode()
	if err != nil {
		return nil, fmt.Errorf("encode the rules: %w", err)
	}
	old := s.cur.Pending
	out := &Outcome{}
	for _, n := range in.Artifact.Notes() {
		out.Notes = append(out.Notes, NoteText(n))
	}
	kept := listed(encoded)
	same, err := s.unchanged(ctx, in, kept.id)
	switch {
	case err != nil:
		return nil, err
	case same:
		out.Unchanged = true
		if err = s.keepRunning(ctx, o, old); err == nil {
			s.keepSources(in)
		}
	default:
		if o.lockOut != nil {
			s.note("%v", o.lockOut)
		}
		s.tellChoices(in.Artifact)
		c := change{
			what: applied, artifact: in.Artifact, listing: &kept, program: in.Program, expected: in.Expected, isNew: true,
			wait: o.Confirm, verify: o.Verify, peers: in.SSHClients,
		}
		if o.KeepEdits && s.onlyEdits(ctx, in, c) {
			c.wait = 0
		}
		c.confirm = c.wait == 0
		if c.to, err = s.write(in, kept); err != nil {
			err = s.nothingDone(err)
		} else {
			err = s.change(ctx, c)
		}
		out.Edited = s.edited
	}
	if err != nil {
		return nil, err
	}
	s.keepReading(in, o, doubts)
	if s.cur.Pending == nil || old != nil && s.cur.Pending.Token != old.Token {
		disarm(old)
	}
	s.describe(out)
	if !out.Unchanged {
		if err := s.forgetUntracked(in.Program); err != nil {
			s.note("entries of flows that are no longer tracked stay: %v", err)
		}
	}
	if o.Cut {
		if out.Cut, err = s.cut(in.Program); err != nil {
			s.note("flows that the policy refuses go on: %v", err)
		}
	}
	if !out.Unchanged {
		s.times.end(began)
		out.Times = &s.times
	}
	return out, nil
}

// admitAloud is admit, and gives what the guard had to say.
func (s *session) admitAloud(in Input, o *Options) (said []string, err error) {
	loud := *s.Host
	loud.Note = func(text string) {
		said = append(said, text)
		s.note("%s", text)
	}
	err = loud.admit(in, o)
	return said, err
}

// describe says what runs now.
func (s *session) describe(out *Outcome) {
	out.Generation, out.Pending, out.Proof = s.cur.Running, s.cur.Pending, s.proved
	if s.adoption != nil {
		out.Adopted = &s.adoption.Adopted
	}
	if g, err := s.generation(s.cur.Running); s.cur.Running != 0 && err == nil {
		out.Policy, out.Closed = g.Policy, g.Closed
	}
}

// WaitingError says that a policy would be kept for good, or replaced for good,
// while it is on trial.
type WaitingError struct{ Pending *Pending }

func (e *WaitingError) Error() string {
	return fmt.Sprintf("generation %d waits for confirmation (%.0fs left)\n  nothing changed",
		e.Pending.Generation, math.Ceil(e.Pending.Left().Seconds()))
}

// refuseToKeep keeps a countdown from being dropped by somebody who does not
// know of it.
func (s *session) refuseToKeep(o Options) error {
	if s.cur.Pending != nil && o.Confirm == 0 && !o.Keep {
		return &WaitingError{s.cur.Pending}
	}
	return nil
}

// keepRunning is an apply of what runs already: nothing changes in the kernel,
// but who applies without asking for a confirmation confirms.
func (s *session) keepRunning(ctx context.Context, o Options, pending *Pending) error {
	if o.Confirm > 0 && pending == nil && s.cur.Boot == s.cur.Running {
		return nil
	}
	if o.Confirm > 0 {
		s.note("generation %d runs already and still waits for confirmation", s.cur.Running)
		return nil
	}
	if pending != nil {
		s.note("generation %d runs already, and is confirmed now", s.cur.Running)
	}
	return s.confirm(ctx)
}

// unchanged says that the running generation is the same as the input and the
// kernel holds it.
func (s *session) unchanged(ctx context.Context, in Input, id string) (bool, error) {
	if s.cur.Running == 0 {
		return false, nil
	}
	g, err := s.generation(s.cur.Running)
	if isLost(err) {
		return false, nil // it is replaced by what can be read
	}
	if err != nil {
		return false, err
	}
	if g.Artifact != id && !s.sameButForHost(g, in.Artifact) || !sameSettings(g.Sysctls, in.Sysctls) || !s.intact(g) {
		return false, nil
	}
	if len(s.sysctlDrift(g)) > 0 {
		return false, nil
	}
	at := s.instantNow()
	mark, err := s.mark(ctx)
	if err != nil || mark != g.Mark {
		return false, err
	}
	have, err := s.Backend.Read(ctx, true)
	if err != nil {
		return false, err
	}
	differences, err := s.compare(ctx, s.beside(in.Artifact, s.trialOf(g.Number)), have)
	if err != nil || len(differences) > 0 {
		return false, err
	}
	s.foundSame(at)
	return true, nil
}

func sameSettings(have []Change, want []Setting) bool {
	if len(have) != len(want) {
		return false
	}
	values := map[string]string{}
	for _, c := range have {
		values[c.Name] = c.New
	}
	for _, w := range want {
		if v, ok := values[w.Name]; !ok || v != w.Value {
			return false
		}
	}
	return true
}

// write makes the next generation on disk; nothing points to it yet.
func (s *session) write(in Input, kept listing) (*Generation, error) {
	g := &Generation{
		Format: format, Number: s.cur.Next, Mark: newMark(s.cur.Next),
		Created: s.now(), By: s.By, Version: s.Version,
		Policy: in.Policy, Backend: in.Artifact.Backend(), Cost: in.Artifact.Cost(),
		Previous: s.cur.Running, SSHPorts: in.SSHPorts, Profile: in.Profile,
		Without: in.Without,
	}
	g.except(in)
	if a, is := in.Artifact.(backend.Chosen); is {
		g.Choices = a.Choices()
	}
	g.Dir, _ = os.Getwd() // a refresh finds the files of sets again
	g.Inputs, g.Broken = in.Sources, in.Broken
	if s.cur.Pending != nil {
		g.Previous = s.cur.Pending.Previous // what is on trial is no place to go back to
	}
	for _, n := range in.Artifact.Notes() {
		g.Notes = append(g.Notes, NoteText(n))
	}
	var err error
	if g.Artifact, g.Parts, err = s.putListed(kept); err != nil {
		return nil, err
	}
	code, err := encodeProgram(in.Program)
	if err != nil {
		return nil, err
	}
	parts := g.Parts
	if g.Program, g.Parts, err = s.putWhole(code); err != nil {
		return nil, err
	}
	g.Parts = append(g.Parts, parts...)
	if err := s.putExpected(g, in.Expected); err != nil {
		return nil, err
	}
	slices.Sort(g.Parts)
	g.Parts = slices.Compact(g.Parts)
	if g.Files, err = s.putSources(in.Files); err != nil {
		return nil, err
	}
	if in.Facts != nil {
		if g.Facts, err = json.Marshal(in.Facts); err != nil {
			return nil, fmt.Errorf("encode the facts of the host: %w", err)
		}
		g.Facts = bytes.TrimSpace(g.Facts)
	}
	for _, w := range in.Sysctls {
		old, _ := sysctl.Read(w.Name)
		g.Sysctls = append(g.Sysctls, Change{Name: w.Name, Old: old, New: w.Value})
	}
	// The number is used up before the generation is there, so that no two
	// generations ever have one.
	s.cur.Next++
	if err := s.saveCurrent(s.cur); err != nil {
		return nil, err
	}
	if err := s.saveGeneration(g); err != nil {
		return nil, err
	}
	s.point("generation")
	return g, nil
}

// putExpected keeps the program that the kernel is held against.
func (s *session) putExpected(g *Generation, expected *program.Program) error {
	if expected == nil {
		return nil
	}
	code, err := encodeProgram(expected)
	if err != nil {
		return err
	}
	var parts []string
	if g.Expected, parts, err = s.putWhole(code); err != nil {
		return err
	}
	g.Parts = append(append(g.Parts, g.Expected), parts...)
	return nil
}

// NoteText is a note with its place.
func NoteText(n program.Note) string {
	if n.Origin.File == "" || n.Origin.Line == 0 {
		return n.Text
	}
	return fmt.Sprintf("%s:%d: %s", n.Origin.File, n.Origin.Line, n.Text)
}

// Confirm keeps the running generation, and settings that were tuned: 0 is these alone.
func (h *Host) Confirm(ctx context.Context) (int, error) {
	overdue := h.overdue()
	if overdue == nil && !h.known() {
		return 0, remedied(SeeRunning, errNothingPending)
	}
	s, ctx, err := h.open(ctx)
	var busy *BusyError
	if errors.As(err, &busy) && overdue != nil {
		return 0, &LateError{Pending: overdue, Going: true}
	}
	if err != nil {
		return 0, err
	}
	defer s.close()
	if alone, err := s.confirmTuned(); alone || err != nil {
		return 0, err
	}
	switch p := s.cur.Pending; {
	case s.kept != nil:
		return 0, s.kept
	case s.keptNow:
		return s.cur.Running, nil
	case s.late != nil:
		return 0, remedied(ApplyAgain, &LateError{Pending: s.late})
	case p == nil && overdue != nil && s.cur.Running == overdue.Previous:
		return 0, remedied(ApplyAgain, &LateError{Pending: overdue})
	case p == nil && s.lastExpired() != "":
		return 0, remedied(ApplyAgain, fmt.Errorf("%w: %s", errNothingPending, s.lastExpired()))
	case p == nil:
		return 0, remedied(SeeRunning, errNothingPending)
	case p.Left() == 0:
		return 0, remedied(SeeKernel, &LateError{Pending: p, Err: s.lateErr})
	}
	return s.cur.Running, s.confirm(ctx)
}

// overdue is a generation that was not confirmed in time and still runs: it is
// being taken back, or will be by the next command. Nil where there is none.
func (h *Host) overdue() *Pending {
	if _, cur, err := h.peek(); err == nil && cur.BootID == bootID() && cur.Pending != nil && cur.Pending.Left() == 0 {
		return cur.Pending
	}
	return nil
}

// confirm makes the running generation the one that boots. Where that cannot be
// written, it is kept anyway, and the error is an *UndurableError.
func (s *session) confirm(ctx context.Context) error {
	pending := s.cur.Pending
	err := s.confirmRunning()
	if err == nil {
		s.point("confirmed")
		disarm(pending)
		s.sweepKept(ctx)
		return nil
	}
	if pending != nil {
		if kernelErr := s.Backend.Confirm(ctx); kernelErr != nil {
			return fmt.Errorf("%w\n  and the kernel does not accept it either: %w\n  generation %d goes back to %s in %.0fs", err, kernelErr, pending.Generation, generationText(pending.Previous), pending.Left().Seconds())
		}
		noteKept(pending)
		s.point("kept")
		disarm(pending)
		s.cur.Pending = nil
		s.sweepKept(ctx)
	}
	return &UndurableError{s.cur.Running, s.bootOnDisk(), err}
}

// confirmRunning writes that the running generation is the one that boots.
func (s *session) confirmRunning() error {
	g, err := s.generation(s.cur.Running)
	if err != nil {
		return err
	}
	if s.cur.Boot == g.Number && s.cur.Pending == nil {
		return nil
	}
	next := *s.cur
	next.Boot, next.Lost, next.Pending = g.Number, "", nil
	if err := s.saveCurrent(&next); err != nil {
		return err
	}
	*s.cur = next
	g.event(confirmed, s.By, s.now(), 0)
	g.Trial = nil
	if err := s.saveGeneration(g); err != nil {
		s.note("the history does not show that generation %d was confirmed: %v", g.Number, err)
	}
	return nil
}
