package apply

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"time"

	"sluice/internal/backend"
	"sluice/internal/language/bans"
	"sluice/internal/program"
	"sluice/internal/system/host"
	"sluice/internal/system/kernel/process"
)

// Host is one network namespace with its state. Who calls its methods is on a thread
// that is inside of the namespace; engine.Host sees to that. Hosts may be worked on at
// the same time.
type Host struct {
	Dir       string            // state directory of this namespace
	Namespace string            // "" is the one that the tool was started in
	Backend   backend.Backend   // of new policies
	Others    []backend.Backend // whose policies may run, and are gone back to
	Version   string
	By        Author          // who calls
	Session   *host.SSHClient // over which who calls is logged in; nil: over none
	Wait      time.Duration   // for another command's lock
	// Beside has what changes nothing done without the lock, beside who changes the
	// firewall meanwhile: who calls sees to it that nobody did.
	Beside bool
	// Watcher is the command line that starts a confirm watcher; the token is
	// appended. It ends up in Host.Watch.
	Watcher  []string
	Progress func(Progress)    // may be nil
	Note     func(text string) // may be nil; what the caller should read at once; Follow calls it from several goroutines
	Shout    func(text string) // may be nil; what the log of the machine has too: a trial is over
	Ready    func() error      // may be nil; Follow calls it when its first Sync is done
	// Turn has Follow's work done on the thread that does all else for the host, unless
	// the context of Follow has ended; nil: Follow does it.
	Turn func(func())
	// Restorer does what Sync cannot by an edit, in place of Restore: it takes memory. May
	// be nil.
	Restorer func(context.Context) (*Outcome, error)
	// Words is the text of an error where it is in a note, in a result or in the log of
	// the machine, with what to do about it; nil: what it says itself.
	Words func(error) string
	// Capabilities asks what the kernel can do for a backend; needed where a generation is
	// lowered again, without interfaces that are not there. May be nil.
	Capabilities func(context.Context, backend.Backend) backend.Capabilities
	// Reaching is whom the guard of the host says that no ban may block; nil: nobody.
	Reaching func() ([]Reaching, error)
	Now      func() time.Time // nil: time.Now

	// at is called with the name of every point between two effects; tests
	// kill the process there.
	at func(point string)
	// systemd is the folder that is there where systemd runs, and etc that of what the next
	// boots set; "" is the usual.
	systemd, etc string
}

// Progress is how far a change is.
type Progress struct {
	Done    int             `json:"done"` // steps
	Total   int             `json:"total"`
	Name    string          `json:"name"` // of the step under way
	Purpose backend.Purpose `json:"purpose"`
}

// namespaceName is narrower than what ip-netns(8) takes and netns.Named opens: it names a
// folder, and is in the command line of a unit of systemd.
var namespaceName = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._@+-]{0,254}$`) })

// Dir is the state directory of a namespace under the tool's own.
func Dir(base, namespace string) (string, error) {
	if namespace == "" {
		return base, nil
	}
	if !namespaceName().MatchString(namespace) {
		return "", fmt.Errorf("%q is not the name of a network namespace", namespace)
	}
	return filepath.Join(base, "netns", namespace), nil
}

func (h *Host) now() time.Time {
	if h.Now != nil {
		return h.Now()
	}
	return time.Now().Truncate(time.Millisecond)
}

// bansJournal is the journal of bans. Where Now says what the time is, no clock jumps.
func (h *Host) bansJournal() bans.Journal {
	j := bans.Open(h.Dir)
	if h.Now != nil {
		j = j.By(func() bans.Moment { now := h.Now(); return bans.Moment{Wall: now, Up: now.Sub(time.Unix(0, 0))} })
	}
	return j
}

func (h *Host) point(name string) {
	if h.at != nil {
		h.at(name)
	}
}

func (h *Host) note(format string, args ...any) {
	if h.Note == nil {
		return
	}
	for i, a := range args {
		if err, is := a.(error); is {
			args[i] = h.words(err)
		}
	}
	h.Note(fmt.Sprintf(format, args...))
}

func (h *Host) words(err error) string {
	if h.Words != nil {
		return h.Words(err)
	}
	return err.Error()
}

func (h *Host) progress(p Progress) {
	if h.Progress != nil {
		h.Progress(p)
	}
}

// session is a Host under its lock, with what a killed command left settled.
type session struct {
	*Host
	store
	// Backend is that of what runs; from the begin of a load on, of what is loaded.
	Backend    backend.Backend
	lock       *lock
	disconnect func()
	here       instant // without a fingerprint; empty until it is asked
	cur        *current
	// late is a pending generation whose time was over when this command came,
	// so that settling took it back; lateErr is why that failed.
	late    *Pending
	lateErr error
	// kept is a generation whose confirmation the disk still does not take; keptNow
	// says that it took it when this command came.
	kept    *UndurableError
	keptNow bool
	// tunedLate says that settings went back when this command came, whose time was over.
	tunedLate bool
	trust
	proved *Proof // of the rules that were loaded
	// adoption is what the change under way does for connections that run, nil where
	// it begins to track none; noEntries says that the host's own get none.
	adoption   *adoption
	passage    *passage // of what the kernel held when the change was planned
	times      Times
	noEntries  bool
	banJournal bans.Journal
	// bans is what commands ban as the rules ask for it, once bansKnown; nil: they ask
	// for nothing.
	bans      backend.BanStore
	bansKnown bool
	bansRead  backend.ReadBans // by the last banDrift
	side      *host.Facts      // what the host is, where it was read
	around    *around          // nil: it is read when it is asked
	connected *host.Connected  // nil: as around
	// servingUnread is why its routers or name servers could not be read.
	servingUnread error
	// filled is what sets that follow the host were loaded with; nil where they were
	// left as they are.
	filled   map[string]program.Held
	toldLost bool
	// decoded is the last artifact that was read from disk.
	decoded struct {
		id       string
		artifact backend.Artifact
	}
}

// open takes the lock and settles. With the context that it returns, what changes the
// kernel holds the lock too.
func (h *Host) open(ctx context.Context) (*session, context.Context, error) {
	s, held, err := h.openUnsettled(ctx)
	if err != nil {
		return nil, ctx, err
	}
	if err := s.settle(held); err != nil {
		s.close()
		return nil, ctx, err
	}
	return s, held, nil
}

// known says that there is a state of this namespace. Commands that only read,
// or that have nothing to work on, make none.
func (h *Host) known() bool { return store{dir: h.Dir}.known() }

// openToRead is open for a command that changes nothing: where there is no
// state it makes none, and needs no lock.
func (h *Host) openToRead(ctx context.Context) (*session, context.Context, error) {
	if h.known() && !h.Beside {
		return h.open(ctx)
	}
	if err := needRoot(); err != nil {
		return nil, ctx, err
	}
	st := store{dir: h.Dir}
	cur, err := st.current()
	if err != nil {
		return nil, ctx, err
	}
	return h.session(st, cur), ctx, nil
}

func needRoot() error {
	if os.Geteuid() != 0 {
		return remedied(BeRoot, errors.New("this needs root"))
	}
	return nil
}

func (h *Host) openUnsettled(ctx context.Context) (*session, context.Context, error) {
	if err := needRoot(); err != nil {
		return nil, ctx, err
	}
	st := store{dir: h.Dir}
	if err := st.begin(); err != nil {
		return nil, ctx, st.nothingDone(err)
	}
	if err := st.make(); err != nil && !isFolder(h.Dir) {
		return nil, ctx, st.nothingDone(err)
	}
	l, err := h.takeLock(ctx)
	if err != nil {
		return nil, ctx, err
	}
	cur, err := st.current()
	if err != nil {
		l.release()
		return nil, ctx, err
	}
	s := h.session(st, cur)
	s.lock, s.disconnect = l, s.Backend.Connect()
	return s, process.Held(ctx, l.files), nil
}

func (h *Host) takeLock(ctx context.Context) (*lock, error) {
	if h.Wait <= 0 {
		return takeLock(ctx, h.Dir, 0, nil)
	}
	return takeLock(ctx, h.Dir, h.Wait, func(holder string) {
		h.note("%s", (&BusyError{Holder: holder}).Waiting(h.Wait))
	})
}

func isFolder(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.IsDir()
}

func (s *session) close() {
	s.lock.release()
	if s.disconnect != nil {
		s.disconnect()
	}
}

// peek reads the state without the lock; for the reader, never for a change.
func (h *Host) peek() (store, *current, error) {
	st := store{dir: h.Dir}
	cur, err := st.current()
	return st, cur, err
}

// artifact loads what a generation was lowered to; nil for generation 0.
func (s *session) artifact(n int) (*Generation, backend.Artifact, error) {
	if n == 0 {
		return nil, nil, nil
	}
	g, err := s.generation(n)
	if err != nil {
		return nil, nil, err
	}
	a, err := s.artifactOf(g)
	return g, a, err
}

func (s *session) artifactOf(g *Generation) (backend.Artifact, error) {
	if s.decoded.id == g.Artifact && g.Artifact != "" {
		return s.decoded.artifact, nil
	}
	b, err := s.BackendOf(g)
	if err != nil {
		return nil, err
	}
	data, err := s.whole(g.Artifact)
	if err != nil {
		return nil, fmt.Errorf("generation %d: %w", g.Number, err)
	}
	a, err := b.Decode(data)
	if err != nil {
		return nil, fmt.Errorf("generation %d: %w", g.Number, err)
	}
	s.decoded.id, s.decoded.artifact = g.Artifact, a
	return a, nil
}

// bootID tells one boot of the machine from the next.
var bootID = sync.OnceValue(func() string {
	text, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(text))
})

// newBoot forgets what a reboot has undone.
func (s *session) newBoot() {
	id := bootID()
	if s.cur.BootID == id {
		return
	}
	s.cur.BootID = id
	s.cur.Running, s.cur.Since = 0, time.Time{}
	s.cur.Originals = nil
	s.cur.Pending = nil
}

// sweepTemporary removes files that a killed write left.
func (s *session) sweepTemporary() {
	for _, dir := range []string{".", generationsDir, blobsDir} {
		entries, err := os.ReadDir(filepath.Join(s.dir, dir))
		if err != nil {
			continue
		}
		for _, e := range entries {
			if strings.HasPrefix(e.Name(), ".") {
				_ = os.Remove(filepath.Join(s.dir, dir, e.Name()))
			}
		}
	}
}

func isMissing(err error) bool { return errors.Is(err, fs.ErrNotExist) }

// isLost says that a file of the state is not there, or cannot be used.
func isLost(err error) bool {
	var damaged *DamagedError
	return isMissing(err) || errors.As(err, &damaged)
}
