package apply

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
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
	Format           int    `json:"format"`
	Mark             string `json:"mark"` // of the generation that it is of
	backend.BanStore `json:"-"`
}

// keepCommands records what commands have to know of what was loaded: one object of
// what this package and the backend have to know. It is rewritten at every boot, so
// that a loss of power does not matter.
func (s store) keepCommands(mark string, bans backend.BanStore) error {
	c := &commands{Format: format, Mark: mark, BanStore: bans}
	head, err := json.Marshal(c)
	if err != nil {
		return err
	}
	rest, err := c.Encode()
	if err != nil {
		return err
	}
	head[len(head)-1] = ','
	if err := s.writeUnsynced(commandsFile, json.RawMessage(append(head, rest[1:]...))); err != nil {
		return fmt.Errorf("write the state: %w", err)
	}
	return nil
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

// commands reads what keepCommands wrote; nil where it is of another generation.
func (s *session) commands(g *Generation) (*commands, error) {
	var data json.RawMessage
	c := &commands{}
	err := s.readJSON(commandsFile, &data)
	if err == nil {
		err = json.Unmarshal(data, c)
	}
	if isLost(err) || err == nil && (c.Mark != g.Mark || g.Mark == "") {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	b, err := s.BackendOf(g)
	if err != nil {
		return nil, err
	}
	banner, can := b.(backend.Banner)
	if !can {
		return nil, nil
	}
	c.BanStore, err = banner.DecodeBanStore(data)
	return c, err
}

// banStore is the bans of an artifact, looked up where the rules do now; nil where it
// can hold none.
func (s *session) banStore(a backend.Artifact) backend.BanStore {
	banner, can := s.backendFor(a).(backend.Banner)
	if !can || a == nil {
		return nil
	}
	if !s.bansKnown {
		s.bansKnown = true
		if g, err := s.generation(s.cur.Running); err == nil {
			if c, err := s.commands(g); err == nil && c != nil {
				s.bans = c.BanStore
			}
		}
	}
	return banner.BanStore(a, s.bans)
}

// asks is an artifact whose rules look up bans in the same sets as those that run.
func (s *session) asks(a backend.Artifact) backend.Artifact {
	return s.asking(s.holding(a, false))
}

func (s *session) asking(a backend.Artifact) backend.Artifact {
	if store := s.banStore(a); store != nil {
		return store.Asking(a)
	}
	return a
}

// withBans is an artifact whose rules look up what is banned by command. The function
// puts the step that fills its sets before those that switch the rules.
func (s *session) withBans(ctx context.Context, a backend.Artifact, have backend.State) (backend.Artifact, func([]backend.Step) []backend.Step, error) {
	a = s.holding(a, true)
	if follows, is := a.(backend.Following); is {
		s.filled = follows.Held()
	}
	s.bans, s.bansKnown = nil, true
	unfilled := func(steps []backend.Step) []backend.Step { return steps }
	banner, can := s.Backend.(backend.Banner)
	if !can || a == nil {
		return a, unfilled, nil
	}
	store := banner.BanStoreIn(a, have)
	if w := s.reading(); w != nil && s.readAt.is(&w.Ruleset) && s.trustBans(w, store) {
		s.bans = store
		return store.Asking(a), unfilled, nil
	}
	list, err := s.banned()
	if err != nil {
		return nil, nil, err
	}
	for _, text := range outOfForce(list, store, s.now()) {
		s.note("%s", text)
	}
	if !store.Room() {
		return a, unfilled, nil
	}
	want := wanted(list, store.Never(), s.now())
	plan, err := store.Fill(ctx, want, s.now())
	if err != nil {
		return nil, nil, err
	}
	s.bans = plan.After
	s.foundBans(list, store, plan)
	s.bansTrusted = s.bansFound != nil
	filled := func(steps []backend.Step) []backend.Step {
		if plan.End != nil {
			steps = append(slices.Clip(steps), backend.Step{Purpose: backend.Sweep, Name: "flows that bypass the rules", Transaction: plan.End})
		}
		if plan.Fill == nil {
			return steps
		}
		own := backend.Step{Purpose: backend.Fill, Name: fmt.Sprintf("bans by command (%d)", want.Len()), Transaction: plan.Fill}
		at := slices.IndexFunc(steps, func(step backend.Step) bool { return step.Purpose == backend.Switch })
		if at < 0 {
			at = len(steps)
		}
		return slices.Insert(slices.Clone(steps), at, own)
	}
	return plan.After.Asking(a), filled, nil
}

// wanted is what holds of a list: single addresses, and ranges cut into pieces, both
// without what is never banned.
func wanted(list *bans.List, never addrset.Set, now time.Time) backend.Bans {
	var out backend.Bans
	for i := 0; i < len(list.Bans); {
		same := i + 1 // bans of one range by commands and the fleet follow each other
		for same < len(list.Bans) && list.Bans[same].What == list.Bans[i].What {
			same++
		}
		b := list.Bans[i]
		until, holds := bans.Latest(now, bans.Ends(list.Bans[i:same]))
		if i = same; holds && b.Single() && !never.Contains(b.What.From) {
			of := out.Of(familyOf(b.What))
			of.Single = append(of.Single, backend.BannedAddress{Addr: b.What.From, Until: until})
		}
	}
	wide := list.Wide()
	for _, family := range []int{4, 6} {
		of := out.Of(family)
		mine := slices.DeleteFunc(slices.Clone(wide), func(b bans.Ban) bool { return familyOf(b.What) != family || b.Over(now) })
		for _, p := range bans.Pieces(mine) {
			for r := range addrset.Of(p.Range).Difference(never).Each() {
				of.Ranges = append(of.Ranges, backend.BannedRange{Range: r, Until: p.Until})
			}
		}
	}
	return out
}

func familyOf(r addrset.Range) int {
	if r.From.Is4() {
		return 4
	}
	return 6
}

// outOfForce says which live bans by command a policy lets have no effect.
func outOfForce(list *bans.List, store backend.BanStore, now time.Time) []string {
	live := list.Live(now).All()
	if len(live) == 0 {
		return nil
	}
	if !store.Room() {
		return []string{fmt.Sprintf("bans by command that are not in force under this policy: %d, since it has neither input nor forward nor output", len(live))}
	}
	spared, never := 0, store.Never()
	for _, b := range live {
		if b.Country == nil && !never.Contains(b.What.From) {
			continue
		}
		if never.ContainsSet(b.Set()) {
			spared++
		}
	}
	if spared == 0 {
		return nil
	}
	return []string{fmt.Sprintf("bans by command that are not in force under this policy: %d, since its never-ban exempts all of their addresses", spared)}
}

// bansOutOfForce is outOfForce for a plan.
func (s *session) bansOutOfForce(a backend.Artifact) ([]string, error) {
	store := s.banStore(a)
	if store == nil {
		return nil, nil
	}
	list, err := s.banJournal.Read()
	if err != nil {
		return nil, err
	}
	return outOfForce(list, store, s.now()), nil
}

// banned is the journal, and says where a part of it is lost.
func (s *session) banned() (*bans.List, error) {
	journal := s.banJournal
	list, err := journal.Read()
	if err != nil {
		// A policy without them is better than the closed one, or than a trial.
		return nil, s.refuse(err)
	}
	if n := len(list.Damaged); n > 0 {
		s.note("damaged lines of the journal of bans were ignored: %d; the file is kept as %s.damaged", n, bans.File)
		if err := s.refuse(journal.Rewrite(list)); err != nil {
			return nil, err
		}
	}
	return list, nil
}

// settleBans records that the kernel holds what the journal says, once an artifact
// is loaded under a mark.
func (s *session) settleBans(a backend.Artifact, mark string) error {
	store := s.banStore(a)
	if store == nil {
		return s.remove(commandsFile)
	}
	if err := s.keepCommands(mark, store); err != nil {
		return err
	}
	journal := s.banJournal
	list, err := journal.Read()
	if err != nil {
		return s.refuse(err)
	}
	if now := s.now(); journal.Long(list, now) {
		list = list.Live(now)
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

// banDrift says where the sets of bans do not hold what the journal says, and keeps
// what they hold for a proof.
func (s *session) banDrift(ctx context.Context, a backend.Artifact) ([]backend.Difference, error) {
	s.bansRead = nil
	store := s.banStore(a)
	if store == nil || !store.Room() {
		return nil, nil
	}
	if read, trusted := s.stillTrusted(store); trusted {
		s.bansRead = read
		return nil, nil
	}
	s.bansFound, s.bansTrusted = nil, false
	list, err := s.banJournal.Read()
	if err != nil {
		return nil, err
	}
	if n := len(list.Damaged); n > 0 {
		s.note("damaged lines of the journal of bans were ignored: %d", n)
	}
	plan, err := store.Fill(ctx, wanted(list, store.Never(), s.now()), s.now())
	if err != nil {
		return nil, err
	}
	s.bansRead = plan.Read
	s.foundBans(list, store, plan)
	return plan.Differences, nil
}

// errNoBans says why nothing can be banned by command now.
var errNoBans = remedied(ApplyPolicing, errors.New("no policy runs, so nothing can be banned"))

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
		return nil, remedied(RestoreConfirmed, fmt.Errorf("generation %d should run, but somebody removed its rules, so nothing can be banned", g.Number))
	}
	c, err := s.commands(g)
	if err != nil {
		return nil, err
	}
	if c == nil {
		// An older Sluice loaded it, or the file was lost.
		if c, err = s.commandsAnew(ctx, g); err != nil {
			return nil, err
		}
	}
	if !c.Room() {
		return nil, remedied(ApplyAgainPolicing, fmt.Errorf("%s, which runs, has no place for bans by command: it has neither input nor forward nor output, or an older sluice compiled it", g.Policy))
	}
	return c, nil
}

func (s *session) commandsAnew(ctx context.Context, g *Generation) (*commands, error) {
	a, err := s.held(g)
	if err != nil {
		return nil, err
	}
	banner, can := s.Backend.(backend.Banner)
	if !can {
		return nil, errNoBans
	}
	have, err := s.Backend.Read(ctx, false)
	if err != nil {
		return nil, err
	}
	if err := s.keepCommands(g.Mark, banner.BanStoreIn(a, have)); err != nil {
		return nil, err
	}
	c, err := s.commands(g)
	if err == nil && c == nil {
		err = errNoBans
	}
	return c, err
}
