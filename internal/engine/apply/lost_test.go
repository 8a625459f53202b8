package apply

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// damage is what happens to a file.
type damage struct {
	name       string
	do         func(path string) error
	unwritable bool // nothing can be written there either
}

func rewritten(change func(old []byte) []byte) func(string) error {
	return func(path string) error {
		old, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		return os.WriteFile(path, change(old), 0o600)
	}
}

var (
	missing = damage{name: "missing", do: os.RemoveAll}
	damages = []damage{
		missing,
		{"empty", rewritten(func([]byte) []byte { return nil }), false},
		{"cut off", rewritten(func(old []byte) []byte { return old[:len(old)/2] }), false},
		{"rubbish", rewritten(func([]byte) []byte { return []byte("rubbish\x00\xff\n") }), false},
		{"nothing but its format", rewritten(func([]byte) []byte { return []byte(`{"format":1}`) }), false},
		{"a folder", func(path string) error { return errors.Join(os.RemoveAll(path), os.Mkdir(path, 0o700)) }, true},
		{"a loop of links", func(path string) error {
			return errors.Join(os.RemoveAll(path), os.Symlink(filepath.Base(path), path))
		}, true},
		{"a FIFO", func(path string) error { return errors.Join(os.RemoveAll(path), unix.Mkfifo(path, 0o600)) }, false},
		{"a device", func(path string) error { return errors.Join(os.RemoveAll(path), os.Symlink("/dev/zero", path)) }, false},
		{"endless", func(path string) error { return os.Truncate(path, 1<<40) }, false}, // a hole
	}
)

// stateOf makes a state in which generation 1 of policy a and then 2 of b were
// confirmed, in a boot that is over.
func stateOf(t *testing.T) (*lab, string) {
	t.Helper()
	l := newLab(t)
	l.must(command{Op: "apply", Policy: "a"})
	l.must(command{Op: "apply", Policy: "b"})
	l.reboot()
	return l, l.dir
}

// reboot takes the rules away and makes the state one of a boot that is over.
func (l *lab) reboot() {
	l.t.Helper()
	l.ns.Nft("flush ruleset")
	for _, name := range []string{currentFile, journalFile} {
		path := filepath.Join(l.dir, name)
		data, err := os.ReadFile(path)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			l.t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(strings.ReplaceAll(string(data), bootID(), "before")), 0o600); err != nil {
			l.t.Fatal(err)
		}
	}
}

// boots restores and says what came of it: the policy that is loaded, or "closed".
func (l *lab) boots() (what, said string) {
	l.t.Helper()
	said, err := l.run(command{Op: "restore", Wait: time.Minute})
	what = l.holds()
	if rules := l.ns.MustRun("nft", "list", "ruleset"); strings.Contains(rules, "ssh, to fix this") {
		what = "closed"
		if !strings.Contains(rules, "tcp dport 22 ") {
			l.t.Errorf("ssh is not open:\n%s", rules)
		}
	}
	if closed := what == "closed"; closed != (err != nil) {
		l.t.Errorf("it holds %q and ends with %v", what, err)
	}
	if what == "closed" && !strings.Contains(said, "the host is closed") {
		l.t.Errorf("it does not say that the host is closed: %s", said)
	}
	return what, said
}

// TestRestoreOfWhatIsLeft damages each file of the state, and takes each two away. A
// host whose policy was confirmed never comes up open.
func TestRestoreOfWhatIsLeft(t *testing.T) {
	t.Parallel()
	_, whole := stateOf(t)
	loaded := map[string]bool{lockFile: true, currentFile: true, journalFile: true, stepFile: true, commandsFile: true, readingFile: true, watcherLog: true, generationName(1): true, "the program": true}
	g, err := store{dir: whole}.generation(2)
	if err != nil {
		t.Fatal(err)
	}
	files := map[string]string{"the program": g.Program, "the artifact": g.Artifact}
	for name, id := range files {
		files[name] = filepath.Join(blobsDir, id+blobSuffix)
	}
	for _, name := range []string{lockFile, currentFile, commandsFile, generationName(1), generationName(2), generationsDir, blobsDir} {
		files[name] = name
	}
	momentary := map[string]bool{commandsFile: true}
	for _, name := range []string{journalFile, stepFile, watcherLog, readingFile} {
		momentary[name] = true
		files[name] = name
		if err := os.WriteFile(filepath.Join(whole, name), []byte("{}"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	try := func(t *testing.T, closed, unwritable bool, do func(dir string) error) {
		t.Parallel()
		one := newLab(t)
		if err := os.CopyFS(one.dir, os.DirFS(whole)); err != nil {
			t.Fatal(err)
		}
		if err := do(one.dir); err != nil {
			t.Fatal(err)
		}
		want := "b"
		if closed {
			want = "closed"
		}
		what, said := one.boots()
		if what != want {
			t.Errorf("it holds %q, want %q: %s", what, want, said)
		}
		if unwritable {
			return // what is there cannot be written over, so nobody else can go on
		}
		// What follows goes on from there.
		if s := one.status(); s.Condition != Running {
			t.Errorf("afterwards: %+v", s)
		}
		one.ns.Nft("flush ruleset")
		if again, said := one.boots(); again != want {
			t.Errorf("the next boot holds %q, want %q: %s", again, want, said)
		}
		one.must(command{Op: "apply", Policy: "c"})
		one.ns.Nft("flush ruleset")
		if what, said := one.boots(); what != "c" {
			t.Errorf("after an apply it holds %q: %s", what, said)
		}
	}
	for i, name := range slices.Sorted(maps.Keys(files)) {
		path := files[name]
		for j, d := range damages {
			if testing.Short() && d.name != "missing" && (i+j)%3 != 0 {
				continue
			}
			if info, err := os.Stat(filepath.Join(whole, path)); err != nil || info.IsDir() && d.name != "missing" {
				continue
			}
			t.Run(name+" is "+d.name, func(t *testing.T) {
				try(t, !loaded[name], d.unwritable && momentary[name], func(dir string) error { return d.do(filepath.Join(dir, path)) })
			})
		}
	}
	for one := range files {
		for two := range files {
			if one >= two || testing.Short() {
				continue
			}
			t.Run(one+" and "+two+" are missing", func(t *testing.T) {
				// Without the record, an older generation that is gone leaves a gap that
				// nobody needs; the artifact is needed in any case.
				closed := !loaded[one] || !loaded[two]
				try(t, closed, false, func(dir string) error {
					return errors.Join(os.RemoveAll(filepath.Join(dir, files[one])), os.RemoveAll(filepath.Join(dir, files[two])))
				})
			})
		}
	}
	t.Run("the lock alone is left", func(t *testing.T) {
		try(t, true, false, func(dir string) error {
			return errors.Join(os.RemoveAll(dir), os.Mkdir(dir, 0o700), os.WriteFile(filepath.Join(dir, lockFile), nil, 0o600))
		})
	})
}

// TestRestoreOfNothing: without anything of a state nothing was ever confirmed,
// whatever other commands keep there.
func TestRestoreOfNothing(t *testing.T) {
	l := newLab(t)
	for _, name := range []string{"cache", "lists", "netns"} {
		if err := os.Mkdir(filepath.Join(l.dir, name), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	if what, said := l.boots(); what != "" {
		t.Errorf("it holds %q: %s", what, said)
	}
	if (&Host{Dir: l.dir}).known() {
		t.Error("restore has made a state")
	}
}

// TestRestoreOfARemovedPolicy: a record that says that nothing boots is believed; one
// that is lost says nothing.
func TestRestoreOfARemovedPolicy(t *testing.T) {
	l := newLab(t)
	l.must(command{Op: "apply", Policy: "a"})
	l.must(command{Op: "remove"})
	l.reboot()
	if what, said := l.boots(); what != "" {
		t.Errorf("it holds %q: %s", what, said)
	}
	if err := os.Remove(filepath.Join(l.dir, currentFile)); err != nil {
		t.Fatal(err)
	}
	if what, said := l.boots(); what != "closed" {
		t.Errorf("without the record it holds %q: %s", what, said)
	}
	l.must(command{Op: "remove"})
	l.reboot()
	if what, said := l.boots(); what != "" {
		t.Errorf("removed again, it holds %q: %s", what, said)
	}
}

// TestLostRecordKnowsWhatRuns takes the record away while policies run, and looks for
// what it said in the generations and in the kernel.
func TestLostRecordKnowsWhatRuns(t *testing.T) {
	tests := []struct {
		name    string
		before  []command
		running int
		boot    int
	}{
		{"applied", []command{{Op: "apply", Policy: "a"}, {Op: "apply", Policy: "b"}}, 2, 2},
		{"rolled back", []command{{Op: "apply", Policy: "a"}, {Op: "apply", Policy: "b"}, {Op: "rollback", N: 1}}, 1, 1},
		{"on trial", []command{{Op: "apply", Policy: "a"}, {Op: "apply", Policy: "b", Confirm: time.Hour}}, 2, 1},
		{"confirmed", []command{{Op: "apply", Policy: "a"}, {Op: "apply", Policy: "b", Confirm: time.Hour}, {Op: "confirm"}}, 2, 2},
		{"given up", []command{{Op: "apply", Policy: "a"}, {Op: "apply", Policy: "b", Confirm: time.Hour}, {Op: "rollback", N: -1}}, 1, 1},
	}
	for _, test := range tests {
		for _, d := range []damage{missing, damages[3]} {
			t.Run(test.name+", then the record is "+d.name, func(t *testing.T) {
				t.Parallel()
				l := newLab(t)
				for _, c := range test.before {
					l.must(c)
				}
				before := l.status()
				if err := d.do(filepath.Join(l.dir, currentFile)); err != nil {
					t.Fatal(err)
				}
				for range 2 {
					s := l.status()
					if !s.Fine() || s.Generation == nil || s.Generation.Number != test.running || s.Boot != test.boot {
						t.Errorf("status: %+v", s)
					}
					if (s.Pending == nil) != (before.Pending == nil) || s.Pending != nil && s.Pending.Token != before.Pending.Token {
						t.Errorf("waiting was %+v, and is %+v", before.Pending, s.Pending)
					}
				}
				l.must(command{Op: "apply", Policy: "c", Confirm: time.Hour})
				if s := l.status(); s.Generation.Number != 3 {
					t.Errorf("the next generation is %d", s.Generation.Number)
				}
			})
		}
	}
}

// TestLostRecordEndsNoTrial: the watcher goes back also where the record is gone.
func TestLostRecordEndsNoTrial(t *testing.T) {
	for _, d := range []damage{missing, damages[1], damages[5]} {
		t.Run(d.name, func(t *testing.T) {
			t.Parallel()
			l := newLab(t)
			l.must(command{Op: "apply", Policy: "a"})
			l.must(command{Op: "apply", Policy: "b", Confirm: 3 * time.Second})
			if err := d.do(filepath.Join(l.dir, currentFile)); err != nil {
				t.Fatal(err)
			}
			l.await("a")
			l.settled()
		})
	}
}

// TestFirstRecord: two first commands make one record.
func TestFirstRecord(t *testing.T) {
	s := store{dir: filepath.Join(t.TempDir(), "state")}
	if err := s.begin(); err != nil {
		t.Fatal(err)
	}
	c, err := s.current()
	if err != nil || c.cause != nil {
		t.Fatalf("%+v, %v", c, err)
	}
	c.Next = 7
	if err := s.saveCurrent(c); err != nil {
		t.Fatal(err)
	}
	if err := s.begin(); err != nil {
		t.Fatal(err)
	}
	if c, err := s.current(); err != nil || c.Next != 7 {
		t.Errorf("begun again: %+v, %v", c, err)
	}
	left, err := os.ReadDir(s.dir)
	if err != nil || len(left) != 1 {
		t.Errorf("left: %v, %v", left, err)
	}
}

// FuzzRecord: whatever the record says, it is read, rebuilt, or of a newer Sluice.
func FuzzRecord(f *testing.F) {
	for _, c := range []current{{Format: format, Next: 1}, {Format: format, Next: 3, Running: 2, Boot: 1, Pending: &Pending{Generation: 2, Previous: 1}}, {Format: format + 1}} {
		data, err := json.Marshal(c)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	f.Add([]byte(`{"format":1}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		s := testStore(t)
		if err := os.WriteFile(filepath.Join(s.dir, currentFile), data, 0o600); err != nil {
			t.Fatal(err)
		}
		c, err := s.current()
		var newer *NewerError
		switch {
		case errors.As(err, &newer):
		case err != nil:
			t.Errorf("%q: %v", data, err)
		case c.cause != nil && c.Lost == "":
			t.Errorf("%q: without a generation it is known what boots: %+v", data, c)
		case c.Boot >= c.Next || c.Next < 1:
			t.Error(fmt.Sprintf("%q", data), c)
		}
	})
}
