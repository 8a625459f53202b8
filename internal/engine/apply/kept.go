package apply

import (
	"context"
	"errors"
	"path/filepath"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"sluice/internal/backend"
	"sluice/internal/base/addrset"
	"sluice/internal/language/bans"
	"sluice/internal/system/host"
	"sluice/internal/system/kernel/link"
	"sluice/internal/system/kernel/process"
)

// Keeper bans again and again on one host. What a ban has to know it reads once, and again
// when somebody else was at the state or at the ruleset. Requests that come together are
// one write to the disk and one to the kernel. It is for one goroutine at a time, on a
// thread that is inside of the namespace.
type Keeper struct {
	host    *Host
	end     func()
	kept    *kept
	changes *link.Changes // nil: nothing is kept of what the host is
}

// kept is what holds as long as nobody else changes anything.
type kept struct {
	session  *session
	commands *commands
	files    []stamp
	ruleset  uint32    // its number when it was left
	now      *instant  // when it was last seen to hold
	since    time.Time // when all was read
	// unsaved is the state of the ruleset that the reading on the disk may be of, and from
	// the journal's sum then; nil: nothing was banned since. Seen says that the kernel was
	// seen to hold what was.
	unsaved *instant
	from    string
	seen    bool
	held    *heldBans // of the journal; nil: it is not known
	flows   bool      // flows have to be ended behind each ban, in a transaction of its own
}

const (
	// mostTogether is how many addresses go to the kernel at once.
	mostTogether = 2000
	// mostKept is how long what was read is believed.
	mostKept = 24 * time.Hour
)

// Asked is a request of a group.
type Asked struct {
	Banning
	By      Author
	Session *host.SSHClient // as Host has it
}

// Answered is what came of one.
type Answered struct {
	*Banned
	Err error
}

// Keep makes a Keeper, which has to be closed.
func (h *Host) Keep() *Keeper {
	changes, err := link.NewChanges()
	if err != nil {
		h.note("%v", err)
	}
	return &Keeper{host: h, end: h.Backend.Connect(), changes: changes}
}

// Close ends it.
func (k *Keeper) Close(ctx context.Context) {
	k.Rest(ctx)
	k.kept = nil
	k.end()
	if k.changes != nil {
		k.changes.Close()
	}
}

// Ban does what Host.Ban does for each of a group in turn. What was answered is in the
// journal and in the kernel. One that is refused changes nothing for the others.
func (k *Keeper) Ban(ctx context.Context, group []Asked) []Answered {
	out := make([]Answered, len(group))
	for done := 0; done < len(group); {
		done += k.ban(ctx, group[done:], out[done:])
	}
	return out
}

// ban does the first requests of a group and says how many.
func (k *Keeper) ban(ctx context.Context, group []Asked, out []Answered) int {
	fail := func(err error) int {
		for i := range group {
			out[i] = Answered{Err: err}
		}
		return len(group)
	}
	if k.kept == nil {
		if err := k.host.ready(); err != nil {
			return fail(err)
		}
	}
	s, c, ctx, err := k.open(ctx)
	if err != nil {
		return fail(err)
	}
	defer s.lock.release()
	if n := together(group); n > 0 && k.kept != nil && !k.kept.flows && k.quick(ctx, group[:n], out[:n]) {
		return n
	}
	since := s.instantNow()
	s.as(group[0])
	out[0].Banned, out[0].Err = s.ban(ctx, c, group[0].Banning)
	if k.kept != nil {
		k.stay(since, out[0])
	}
	return 1
}

// stay keeps what is kept behind a ban of the ordinary way, made since an instant.
func (k *Keeper) stay(since *instant, a Answered) {
	s, now := k.kept.session, k.kept.session.instantNow()
	settled, err := s.banJournal.Settled()
	if a.Err != nil || !a.InForce || err != nil || !settled || s.banJournal.Written() == "" || !now.alone(since) {
		k.kept = nil
		return
	}
	k.kept.ruleset, k.kept.files = now.Number, s.stamps()
	k.kept.seen = false // where the reading is behind, this ban did not keep it
}

// as makes a session work for somebody.
func (s *session) as(a Asked) {
	h := *s.Host
	h.By, h.Session = a.By, a.Session
	s.Host = &h
}

// together says how many of the first requests ban few single addresses, and come over one
// ssh session or none.
func together(group []Asked) int {
	total := 0
	for i, a := range group {
		total += len(a.List)
		if total > mostTogether || !sameSession(a.Session, group[0].Session) || a.KeepLonger || slices.ContainsFunc(a.List, func(n bans.Named) bool { return n.Country != "" || n.What.From != n.What.To }) {
			return i
		}
	}
	return len(group)
}

func sameSession(a, b *host.SSHClient) bool { return a == b || a != nil && b != nil && *a == *b }

// open takes the lock, and reads all where what is kept does not hold.
func (k *Keeper) open(ctx context.Context) (*session, *commands, context.Context, error) {
	if k.kept != nil {
		l, err := k.host.takeLock(ctx)
		if err != nil {
			return nil, nil, ctx, err
		}
		s := k.kept.session
		if s.lock = l; k.kept.holds() {
			if k.changes == nil || k.changes.Any() || s.around == nil {
				s.around = nil
				if k.changes != nil && s.look() != nil {
					s.around = nil
				}
			}
			return s, k.kept.commands, process.Held(ctx, l.files), nil
		}
		l.release()
		k.kept = nil
	}
	s, ctx, err := k.host.open(ctx)
	if err != nil {
		return nil, nil, ctx, err
	}
	s.disconnect() // the keeper's own connection stays
	since := s.instantNow()
	c, err := s.running(ctx)
	if err != nil {
		s.lock.release()
		return nil, nil, ctx, err
	}
	if since != nil && s.cur.Pending == nil && s.wholeJournal() {
		if asked, err := s.stillAsked(ctx, c); err == nil && asked && s.untouched(since) {
			s.connected = new(host.Connected)
			k.kept = &kept{session: s, commands: c, files: s.stamps(), ruleset: since.Number, now: since, since: time.Now()}
		}
	}
	return s, c, ctx, nil
}

// wholeJournal says that the journal is whole, and the kernel has all of it.
func (s *session) wholeJournal() bool {
	settled, err := s.banJournal.Settled()
	if err != nil || !settled {
		return false
	}
	intact, err := s.banJournal.Intact()
	return err == nil && intact
}

// holds says that nobody else was at the files or the ruleset.
func (k *kept) holds() bool {
	now := k.session.instantNow()
	k.now = now
	return now != nil && now.Number == k.ruleset && time.Since(k.since) < mostKept && slices.Equal(k.files, k.session.stamps())
}

// stamp tells one state of a file from another; that of one which is not there is empty.
type stamp struct {
	device, inode    uint64
	size             int64
	changed, written unix.Timespec
}

// stamps are those of the files that a ban reads.
func (s *session) stamps() []stamp {
	var out []stamp
	for _, name := range []string{currentFile, journalFile, commandsFile, bans.File} {
		var at unix.Stat_t
		if unix.Stat(filepath.Join(s.dir, name), &at) != nil {
			at = unix.Stat_t{}
		}
		out = append(out, stamp{at.Dev, at.Ino, at.Size, at.Ctim, at.Mtim})
	}
	return out
}

// errNotQuick says that more is to be done than to edit single addresses.
var errNotQuick = errors.New("not only single addresses")

// quick does requests of single addresses together. Where it is false, none was done.
func (k *Keeper) quick(ctx context.Context, group []Asked, out []Answered) bool {
	s, c, now := k.kept.session, k.kept.commands, k.kept.session.now()
	s.as(group[0])
	var all addrset.Builder
	force := true
	for _, a := range group {
		for _, n := range a.List {
			all.AddRange(n.What)
		}
		force = force && a.Force
	}
	spared, err := s.spared(c, all.Set(), force)
	if err != nil {
		return false
	}
	var entries []bans.Entry
	var add []bans.Ban
	at := map[addrset.Range]int{}
	for i, a := range group {
		s.as(a)
		spared.force = a.Force
		banned, list := s.banning(a.Banning, nil, spared, nil, now)
		out[i] = Answered{Banned: banned}
		if len(list) > 0 {
			entries = append(entries, bans.EntryOf(list, now, list[0].By))
		}
		for _, b := range list {
			if j, twice := at[b.What]; twice {
				add[j] = b
				continue
			}
			at[b.What] = len(add)
			add = append(add, b)
		}
	}
	if len(entries) == 0 {
		return true
	}
	to := outcome{add: add}
	if s.banJournal.HasFleet() {
		held, err := k.held(s)
		if err != nil {
			return false
		}
		for _, b := range add {
			held.put(b)
		}
		to = outcomeOf(add, nil, now, c.Never(), held.ends)
	} else {
		k.kept.held = nil
	}
	done, _ := k.commit(ctx, entries, to, now, out, false)
	if !done && k.kept != nil {
		k.kept.held = nil
	}
	return done
}

// commit brings entries to the disk, and then what they come to into the kernel. Where it is
// asked for, all of that is read back, and seen says whether it is there.
func (k *Keeper) commit(ctx context.Context, entries []bans.Entry, to outcome, now time.Time, out []Answered, prove bool) (done, seen bool) {
	s, c, journal := k.kept.session, k.kept.commands, k.kept.session.banJournal
	e := s.banEdit(c.BanStore, to.add, to.lift, now)
	e.All = func() (backend.Bans, error) { return backend.Bans{}, errNotQuick }
	since := k.kept.now
	plan, err := c.Edit(ctx, e, now)
	k.kept.flows = plan.End != nil
	if err != nil || plan.Turn != nil || plan.End != nil {
		return false, false
	}
	from := journal.Written()
	before, err := journal.Append(entries...)
	if err != nil {
		k.kept = nil
		return false, false
	}
	s.point("ban journal")
	if plan.Fill != nil {
		err = plan.Fill.Take(ctx)
	}
	if err != nil {
		k.kept = nil
		if journal.Undo(before) == nil {
			_ = s.bringBack(ctx, c, err)
		}
		return false, false // each alone says what is wrong
	}
	s.point("ban kernel")
	// Where that fails, the next command finds it so.
	_ = journal.Settle()
	s.point("ban settled")
	seen = s.holdsEdit(ctx, c, to.add, to.lift) || prove && s.readsBack(ctx, c, to.add, to.lift)
	seen = k.brought(ctx, since, from, seen, out)
	_ = s.shorten(journal, before, now)
	if k.kept != nil {
		k.kept.files = s.stamps()
	}
	if journal.Written() == "" {
		k.kept = nil
	}
	return true, seen
}

// brought notes what bans have left, since an instant and from a journal; seen says whether
// the kernel has them, and rules ask for them.
func (k *Keeper) brought(ctx context.Context, since *instant, from string, holds bool, out []Answered) (seen bool) {
	s, c := k.kept.session, k.kept.commands
	now := s.instantNow()
	if !now.alone(since) {
		k.kept = nil
		asked, err := s.stillAsked(ctx, c)
		for i := range out {
			out[i].InForce, out[i].Err = asked, err
		}
		return holds && asked && err == nil
	}
	k.kept.ruleset = now.Number
	if k.kept.unsaved == nil {
		k.kept.unsaved, k.kept.from, k.kept.seen = since, from, true
	}
	k.kept.seen = k.kept.seen && holds
	return holds
}

// Rest lets the reading on the disk hold on, so that others need not read everything. It is
// to be called when no ban has come for a moment.
func (k *Keeper) Rest(ctx context.Context) {
	if k.kept == nil || k.kept.unsaved == nil {
		return
	}
	l, err := k.host.takeLock(ctx)
	if err != nil {
		return // those others have it now
	}
	defer l.release()
	if !k.kept.holds() {
		k.kept = nil
		return
	}
	to := ""
	if k.kept.seen {
		to = k.kept.session.banJournal.Written()
	}
	k.kept.session.stayReading(k.kept.unsaved, k.kept.from, to)
	k.kept.unsaved = nil
}
