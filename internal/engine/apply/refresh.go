package apply

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// A refresh is an apply of the policy that runs, as it was applied, with other
// lists. It makes a generation of its own, since the kernel's mark tells old from
// new whenever the process dies; but that takes the place of the one that it is
// of when that was a refresh too, so that history holds policies and not hours.
// A roll-back goes to what was before the policy, not before the refresh.

// Refreshing is the running policy with other lists.
type Refreshing struct {
	Input
	Generation int        // that it was made from
	Excepting  *Excepting // instead: with other exceptions, and the lists that it has
	AllowCut   bool       // also where live connections are cut or somebody is locked out
	DryRun     bool
}

func (in *Refreshing) event() string {
	switch {
	case in.Excepting == nil:
		return refreshed
	case slices.Equal(LetIn(in.Excepting.From), LetIn(in.Excepting.To)) && !slices.Equal(in.Excepting.From, in.Excepting.To):
		return SetsEdited
	}
	return Excepted
}

// refused says what waits for a confirmation too.
func (in *Refreshing) refused() string {
	if in.Excepting != nil {
		return "no exception or set can be changed by command"
	}
	return "no list can be refreshed"
}

// Refreshed is what came, or would come, of it.
type Refreshed struct {
	Generation int         `json:"generation"` // that runs now
	Unchanged  bool        `json:"unchanged"`
	Sets       []SetChange `json:"sets,omitempty"`
	Flows      []LiveFlow  `json:"flows,omitempty"`      // live ones that it concerns
	LockedOut  string      `json:"locked-out,omitempty"` // who could not log in again
	Stopped    bool        `json:"stopped"`              // for one of these
	Notes      []string    `json:"notes,omitempty"`
}

// ErrNoPolicy is that none of Sluice runs.
var ErrNoPolicy = remedied(ApplyOne, errors.New("no policy runs"))

// RunningPolicy is the generation that runs and its texts, by the names that
// their files had; a *ClosedRunsError where that is the closed policy. It takes no lock.
func (h *Host) RunningPolicy() (*Generation, map[string][]byte, error) {
	if err := needRoot(); err != nil {
		return nil, nil, err
	}
	_, cur, err := h.peek()
	if err != nil {
		return nil, nil, err
	}
	if cur.Running == 0 || cur.BootID != bootID() {
		return nil, nil, ErrNoPolicy
	}
	g, err := h.Text(cur.Running)
	switch {
	case err != nil:
		return nil, nil, err
	case g.Closed:
		return nil, nil, &ClosedRunsError{g.Number}
	}
	out := map[string][]byte{}
	for name, text := range g.Texts {
		out[name] = []byte(text)
	}
	return g.Generation, out, nil
}

// RunningNow is the number of the generation that runs, 0 being none, and whether it is on
// trial. It takes no lock.
func (h *Host) RunningNow() (generation int, trial bool, err error) {
	_, cur, err := h.peek()
	if err != nil || cur.BootID != bootID() {
		return 0, false, err
	}
	return cur.Running, cur.Pending != nil, nil
}

// Refresh puts the running policy with other lists into the kernel.
func (h *Host) Refresh(ctx context.Context, in Refreshing) (*Refreshed, error) {
	s, ctx, err := h.open(ctx)
	if err != nil {
		return nil, err
	}
	defer s.close()
	if s.cur.Running != in.Generation {
		again := RefreshAgain
		if in.Excepting != nil {
			again = DoAgain
		}
		return nil, remedied(again, fmt.Errorf("another policy was applied meanwhile: generation %d\n  nothing changed", s.cur.Running))
	}
	if p := s.cur.Pending; p != nil {
		return nil, remedied(ConfirmFirst, fmt.Errorf("generation %d waits for confirmation: until then %s\n  nothing changed", p.Generation, in.refused()))
	}
	g, err := s.generation(s.cur.Running)
	if err != nil {
		return nil, err
	}
	encoded, err := in.Artifact.Encode()
	if err != nil {
		return nil, fmt.Errorf("encode the rules: %w", err)
	}
	out := &Refreshed{Generation: g.Number}
	if g.Artifact == wholeID(encoded) {
		out.Unchanged = true
		if in.Excepting != nil {
			if _, err := s.except(in.Excepting); err != nil {
				return nil, err
			}
			g.except(in.Input)
		}
		if !in.DryRun {
			g.Inputs = in.Sources
			err = s.saveGeneration(g)
		}
		return out, err
	}
	old, err := s.program(g)
	if err != nil {
		return nil, err
	}
	out.Sets = setChanges(old, in.Program)
	if out.Flows, err = s.concerned(old, in.Program); err != nil {
		return nil, fmt.Errorf("look for live connections: %w", err)
	}
	var locked *LockOutError
	// Nobody stops a list that names him by connecting to ssh.
	proved := slices.DeleteFunc(slices.Clone(in.SSHClients), func(p SSHClient) bool { return p.Unproved })
	if err := s.guard(in.Program, proved); errors.As(err, &locked) {
		out.LockedOut = locked.names()
	} else if err != nil {
		return nil, err
	}
	cuts := len(out.Flows) > 0 && in.Excepting == nil // flows that were let in go on
	out.Stopped = !in.AllowCut && (cuts || out.LockedOut != "")
	if cost := in.Artifact.Cost(); tooLarge(cost, in.Memory) {
		return nil, &MemoryError{cost.Memory, in.Memory}
	}
	if in.DryRun || out.Stopped {
		return out, nil
	}
	s.tellChoices(in.Artifact)
	back := func() {}
	if in.Excepting != nil {
		if back, err = s.except(in.Excepting); err != nil {
			return nil, err
		}
	}
	next, err := s.writeRefresh(g, in, encoded)
	if err != nil {
		err = s.nothingDone(err)
	} else {
		err = s.change(ctx, change{
			what: in.event(), to: next, artifact: in.Artifact, program: in.Program, expected: in.Expected, isNew: true,
			confirm: s.cur.Boot == g.Number, verify: true,
		})
	}
	if err != nil {
		back()
		return nil, err
	}
	out.Generation = next.Number
	s.keepReading(in.Input, Options{}, nil)
	if g.RefreshOf != 0 && s.cur.Boot != g.Number {
		if err := s.remove(generationName(g.Number)); err != nil {
			return nil, err
		}
	}
	s.tidy()
	return out, nil
}

// writeRefresh makes the generation of a refresh: all but the lists is that of g.
func (s *session) writeRefresh(g *Generation, in Refreshing, encoded []byte) (*Generation, error) {
	in.Files, in.Facts, in.Sysctls = nil, nil, nil
	in.Policy, in.SSHPorts = g.Policy, g.SSHPorts
	next, err := s.write(in.Input, listed(encoded))
	if err != nil {
		return nil, err
	}
	next.Files, next.Broken, next.Facts, next.Sysctls, next.Dir = g.Files, g.Broken, g.Facts, g.Sysctls, g.Dir
	next.Previous, next.Applied = g.Previous, s.now()
	next.RefreshOf = g.Number
	if g.RefreshOf != 0 {
		next.RefreshOf = g.RefreshOf
	}
	return next, s.saveGeneration(next)
}

// ChangedInputs names what a policy was made of, beside lists, that is not as it
// was when a generation was applied; known is false where that was not recorded.
func (g *Generation) ChangedInputs(now map[string]string) (names []string, lists, known bool) {
	if g.Inputs == nil {
		return nil, false, false
	}
	all := map[string]bool{}
	for name := range g.Inputs {
		all[name] = true
	}
	for name := range now {
		all[name] = true
	}
	for name := range all {
		switch {
		case g.Inputs[name] == now[name]:
		case strings.HasPrefix(name, "list "):
			lists = true
		default:
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names, lists, true
}
