package apply

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"sluice/internal/backend"
	"sluice/internal/base/addrset"
	"sluice/internal/language/bans"
)

// What commands ban is in sets of the running policy, which are filled from the
// journal of package bans whenever rules are loaded: by apply, roll-back and
// restore. Between them the commands edit the sets in place. Everything happens
// under the lock, so that a ban waits for an apply, and an apply finds the ban.
//
// To ban one address neither the program nor the artifact of the generation is
// needed, which may be large: what the command has to know of them is in a file
// of its own.

const commandsFile = "commands.json"

// commands is what commands that ban have to know of the policy that runs.
type commands struct {
	Format int           `json:"format"`
	Mark   string        `json:"mark"`  // of the generation that it is of
	Asked  backend.Asked `json:"asked"` // by the rules in the kernel
	Never  []byte        `json:"never"` // as package addrset writes it
	*backend.Commands
}

// keepCommands writes down what commands have to know of what was loaded. It is
// written anew at every boot, so that a loss of power does not matter.
func (s store) keepCommands(mark string, asked backend.Asked, c *backend.Commands) error {
	out := commands{Format: format, Mark: mark, Asked: asked, Commands: c}
	if c == nil {
		out.Commands = &backend.Commands{}
	}
	var err error
	if out.Never, err = out.Commands.Never.MarshalBinary(); err == nil {
		err = s.writeCommands(&out)
	}
	if err != nil {
		return fmt.Errorf("write the state: %w", err)
	}
	return nil
}

func (s store) writeCommands(c *commands) error {
	return s.writeUnsynced(commandsFile, c)
}

// writeUnsynced replaces a file that need not survive a loss of power.
func (s store) writeUnsynced(name string, v any) error {
	data, err := json.Marshal(v)
	if err != nil {
		return err
	}
	path := filepath.Join(s.dir, name)
	beside := filepath.Join(s.dir, "."+name)
	if err := writeFile(beside, data); err != nil {
		return s.refuse(err)
	}
	return s.refuse(os.Rename(beside, path))
}

// commands reads that file; nil where it is not of that generation.
func (s store) commands(mark string) (*commands, error) {
	c := &commands{Commands: &backend.Commands{}}
	err := s.readJSON(commandsFile, c)
	var damaged *DamagedError
	if isMissing(err) || errors.As(err, &damaged) || err == nil && (c.Mark != mark || mark == "") {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return c, c.Commands.Never.UnmarshalBinary(c.Never)
}

// asks is an artifact with rules that ask the sets which are asked now.
func (s *session) asks(a backend.Artifact) backend.Artifact {
	a = s.holding(a, false)
	with, is := a.(backend.Commanded)
	if !is || a == nil {
		return a
	}
	if !s.askedKnown {
		s.askedKnown = true
		if g, err := s.generation(s.cur.Running); err == nil {
			if c, err := s.commands(g.Mark); err == nil && c != nil {
				s.asked = c.Asked
			}
		}
	}
	return with.Asking(s.asked)
}

// withBans is an artifact with rules that ask for what is banned by command, and
// what fills the sets, to be done before the rules switch.
func (s *session) withBans(ctx context.Context, a backend.Artifact, have backend.State) (backend.Artifact, *filling, error) {
	a = s.holding(a, true)
	if follows, is := a.(backend.Following); is {
		s.filled = follows.Held()
	}
	with, is := a.(backend.Commanded)
	commander, can := s.Backend.(backend.Commander)
	s.asked, s.askedKnown = backend.Asked{}, true
	if !is || a == nil || !can {
		return a, nil, nil
	}
	list, err := s.banned()
	if err != nil {
		return nil, nil, err
	}
	c := with.Commands()
	for _, text := range outOfForce(list, c, s.now()) {
		s.note("%s", text)
	}
	if c == nil || len(c.Sets) == 0 {
		return a, nil, nil
	}
	f, err := s.fill(ctx, c, commander.Asked(a, have), list, s.now())
	if err != nil {
		return nil, nil, err
	}
	s.asked = f.asked
	return with.Asking(f.asked), f, nil
}

// outOfForce says which live bans by command a policy lets have no effect.
func outOfForce(list []bans.Ban, c *backend.Commands, now time.Time) []string {
	live := bans.Live(list, now)
	if len(live) == 0 {
		return nil
	}
	if c == nil || len(c.Sets) == 0 {
		return []string{fmt.Sprintf("bans by command that are not in force under this policy: %d, since it has neither input nor forward nor output", len(live))}
	}
	spared := 0
	for _, b := range live {
		if c.Never.ContainsSet(addrset.Of(b.What)) {
			spared++
		}
	}
	if spared == 0 {
		return nil
	}
	return []string{fmt.Sprintf("bans by command that are not in force under this policy: %d, since its never-ban spares all that they ban", spared)}
}

// bansOutOfForce is outOfForce for a plan.
func (s *session) bansOutOfForce(a backend.Artifact) ([]string, error) {
	with, is := a.(backend.Commanded)
	if !is {
		return nil, nil
	}
	list, err := bans.Open(s.dir).Read()
	if err != nil {
		return nil, err
	}
	return outOfForce(list.Bans, with.Commands(), s.now()), nil
}

// banned is the journal, and says where a part of it is lost.
func (s *session) banned() ([]bans.Ban, error) {
	journal := bans.Open(s.dir)
	list, err := journal.Read()
	if err != nil {
		// A policy without them is better than the closed one, or than a trial.
		return nil, s.refuse(err)
	}
	if n := len(list.Damaged); n > 0 {
		s.note("damaged lines of the journal of bans, which count for nothing: %d; the file is kept as %s.damaged", n, bans.File)
		if err := s.refuse(journal.Rewrite(list)); err != nil {
			return nil, err
		}
	}
	return list.Bans, nil
}

// insert puts the filling before the first step that switches.
func (f *filling) insert(steps []backend.Step) []backend.Step {
	if f == nil || f.empty() {
		return steps
	}
	own := backend.Step{Purpose: backend.Fill, Name: fmt.Sprintf("bans by command (%d)", f.total), Transaction: f}
	for i, step := range steps {
		if step.Purpose == backend.Switch {
			return append(steps[:i:i], append([]backend.Step{own}, steps[i:]...)...)
		}
	}
	return append(steps, own)
}

// settleBans notes that the kernel has what the journal says, when an artifact
// was loaded under a mark.
func (s *session) settleBans(a backend.Artifact, mark string) error {
	with, is := a.(backend.Commanded)
	if !is || a == nil {
		return s.remove(commandsFile)
	}
	if err := s.keepCommands(mark, s.asked, with.Commands()); err != nil {
		return err
	}
	journal := bans.Open(s.dir)
	list, err := journal.Read()
	if err != nil {
		return s.refuse(err)
	}
	if now := s.now(); journal.Long(list) {
		list.Bans = bans.Live(list.Bans, now)
		if err := journal.Rewrite(list); err != nil {
			return s.refuse(err)
		}
		list.Settled = false
	}
	if list.Settled {
		return nil
	}
	return s.refuse(journal.Settle())
}

// compare is Backend.Compare, with what is banned by command.
func (s *session) compare(ctx context.Context, a backend.Artifact, have backend.State) ([]backend.Difference, error) {
	out, err := s.Backend.Compare(s.asks(a), have)
	if err != nil || have.Empty() {
		return out, err
	}
	drift, err := s.banDrift(ctx, a)
	return append(out, drift...), err
}

// banDrift says where the sets of bans do not hold what the journal says.
func (s *session) banDrift(ctx context.Context, a backend.Artifact) ([]backend.Difference, error) {
	with, is := a.(backend.Commanded)
	if !is || a == nil {
		return nil, nil
	}
	c := with.Commands()
	if c == nil || len(c.Sets) == 0 {
		return nil, nil
	}
	s.asks(a) // knows what is asked
	list, err := bans.Open(s.dir).Read()
	if err != nil {
		return nil, err
	}
	if n := len(list.Damaged); n > 0 {
		s.note("damaged lines of the journal of bans, which count for nothing: %d", n)
	}
	f, err := s.fill(ctx, c, s.asked, list.Bans, s.now())
	if err != nil {
		return nil, err
	}
	return f.differences(), nil
}

// errNoBans says why nothing can be banned by command now.
var errNoBans = errors.New("no policy runs that could ban anything\n  hint: apply one that has input, forward or output")

// running is what commands that ban need: the policy that runs, and that it
// really does.
func (s *session) running(ctx context.Context) (*commands, error) {
	if s.cur.Running == 0 {
		return nil, errNoBans
	}
	g, err := s.generation(s.cur.Running)
	if err != nil {
		return nil, err
	}
	if g.Closed {
		return nil, &ClosedRunsError{g.Number}
	}
	mark, err := s.mark(ctx)
	if err != nil {
		return nil, err
	}
	if mark != g.Mark {
		return nil, fmt.Errorf("generation %d should run, but its rules are gone, so nothing can be banned\n  hint: sluice restore loads the confirmed policy", g.Number)
	}
	c, err := s.commands(g.Mark)
	if err != nil {
		return nil, err
	}
	if c == nil {
		// An older Sluice loaded it, or the file was lost.
		if c, err = s.commandsAnew(ctx, g); err != nil {
			return nil, err
		}
	}
	if len(c.Sets) == 0 {
		return nil, fmt.Errorf("%s, which runs, has no place for bans by command: it has neither input nor forward nor output, or was compiled by an older sluice\n  hint: apply it again with such a section", g.Policy)
	}
	return c, nil
}

func (s *session) commandsAnew(ctx context.Context, g *Generation) (*commands, error) {
	a, err := s.held(g)
	if err != nil {
		return nil, err
	}
	with, is := a.(backend.Commanded)
	commander, can := s.Backend.(backend.Commander)
	if !is || !can {
		return nil, errNoBans
	}
	have, err := s.Backend.Read(ctx, false)
	if err != nil {
		return nil, err
	}
	if err := s.keepCommands(g.Mark, commander.Asked(a, have), with.Commands()); err != nil {
		return nil, err
	}
	c, err := s.commands(g.Mark)
	if err == nil && c == nil {
		err = errNoBans
	}
	return c, err
}

// until is how long a ban still holds, 0: until it is lifted.
func until(b, now time.Time) time.Duration {
	if b.IsZero() {
		return 0
	}
	return max(b.Sub(now), time.Millisecond)
}
