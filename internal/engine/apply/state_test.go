package apply

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"golang.org/x/sys/unix"

	"sluice/internal/backend"
	"sluice/internal/base/addrset"
	"sluice/internal/lab/testnet"
	"sluice/internal/program"
)

func testStore(t *testing.T) store {
	t.Helper()
	s := store{dir: filepath.Join(t.TempDir(), "state")}
	if err := s.make(); err != nil {
		t.Fatal(err)
	}
	return s
}

func TestStateIsPrivate(t *testing.T) {
	s := testStore(t)
	if err := s.saveCurrent(&current{Format: format, Next: 1}); err != nil {
		t.Fatal(err)
	}
	err := filepath.WalkDir(s.dir, func(path string, d os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err == nil && info.Mode().Perm()&0o077 != 0 {
			t.Errorf("%s has mode %o", path, info.Mode().Perm())
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

func TestBadState(t *testing.T) {
	tests := []struct {
		name, text string
		newer      bool
	}{
		{"newer", `{"format": 2}`, true},
		{"no format", `{}`, false},
		{"empty", ``, false},
		{"cut off", `{"format": 1, "next"`, false},
		{"other type", `{"format": 1, "next": "two", "what": 7, "number": "x"}`, false},
		{"format is text", `{"format": "1"}`, false},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			s := testStore(t)
			for _, file := range []string{currentFile, journalFile, generationName(1)} {
				if err := os.WriteFile(filepath.Join(s.dir, file), []byte(test.text), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			var c current
			currentErr := s.readJSON(currentFile, &c)
			_, journalErr := s.journal()
			_, generationErr := s.generation(1)
			for _, err := range []error{currentErr, journalErr, generationErr} {
				var newer *NewerError
				var damaged *DamagedError
				if isNewer := errors.As(err, &newer); isNewer != test.newer || !isNewer && !errors.As(err, &damaged) {
					t.Errorf("got %v", err)
				}
			}
		})
	}
}

func TestBlobs(t *testing.T) {
	s := testStore(t)
	data := []byte(strings.Repeat("203.0.113.0-203.0.113.255 ", 10000))
	first, err := s.putBlob(data)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(s.dir, blobsDir, first+blobSuffix)
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	if info.Size() > int64(len(data))/10 {
		t.Errorf("%d bytes take %d", len(data), info.Size())
	}
	if got, err := s.blob(first); err != nil || !bytes.Equal(got, data) {
		t.Errorf("read back: %v", err)
	}
	// Damage is seen, and fixed by the next one who has the data.
	other, err := s.putBlob([]byte("other"))
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(s.dir, blobsDir, other+blobSuffix))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, text, 0o600); err != nil {
		t.Fatal(err)
	}
	var damaged *DamagedError
	if _, err := s.blob(first); !errors.As(err, &damaged) {
		t.Errorf("another blob's contents: %v", err)
	}
	if again, err := s.putBlob(data); err != nil || again != first {
		t.Errorf("put again: %s, %v", again, err)
	}
	if _, err := s.blob(first); err != nil {
		t.Error(err)
	}
}

func TestLock(t *testing.T) {
	dir := t.TempDir()
	held, err := takeLock(t.Context(), dir, 0, nil)
	if err != nil {
		t.Fatal(err)
	}
	waited := 0
	_, err = takeLock(t.Context(), dir, 100*time.Millisecond, func(string) { waited++ })
	var busy *BusyError
	if !errors.As(err, &busy) || !strings.Contains(busy.Holder, "process ") || waited != 1 {
		t.Errorf("a held lock: %v, told %d times", err, waited)
	}
	held.release()
	held.release()
	again, err := takeLock(t.Context(), dir, 0, nil)
	if err != nil {
		t.Fatal(err)
	}
	again.release()
}

// TestLockGoesRound: who takes the lock again and again lets others have it, and who waits
// and is stopped keeps nobody from it.
func TestLockGoesRound(t *testing.T) {
	dir := t.TempDir()
	var got atomic.Bool
	done := make(chan error)
	go func() {
		l, err := takeLock(t.Context(), dir, time.Hour, func(string) {})
		got.Store(true)
		l.release()
		done <- err
	}()
	for !got.Load() {
		l, err := takeLock(t.Context(), dir, time.Hour, nil)
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Millisecond)
		l.release()
	}
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	stopped, err := openLock(dir)
	if err == nil {
		err = stopped.turn()
	}
	if err != nil {
		t.Fatal(err)
	}
	defer stopped.release()
	l, err := takeLock(t.Context(), dir, 0, nil)
	if err != nil {
		t.Fatal(err)
	}
	l.release()
}

// TestLockIsOne: whether the lock's file can be made may change while a command holds
// the lock.
func TestLockIsOne(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, lockFile)
	if err := os.Symlink(filepath.Join(dir, "missing", "x"), path); err != nil {
		t.Fatal(err) // nobody can make the file now
	}
	held, err := takeLock(t.Context(), dir, 0, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	var busy *BusyError
	if _, err = takeLock(t.Context(), dir, 0, nil); !errors.As(err, &busy) {
		t.Errorf("with the file, a second lock is given: %v", err)
	}
	held.release()
	if held, err = takeLock(t.Context(), dir, 0, nil); err != nil {
		t.Fatal(err)
	}
	defer held.release()
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if _, err = takeLock(t.Context(), dir, 0, nil); !errors.As(err, &busy) {
		t.Errorf("without the file, a second lock is given: %v", err)
	}
}

// TestLockOfOlderVersions is that of the file alone.
func TestLockOfOlderVersions(t *testing.T) {
	dir := t.TempDir()
	file, err := os.Create(filepath.Join(dir, lockFile))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	if err := unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		t.Fatal(err)
	}
	var busy *BusyError
	if _, err := takeLock(t.Context(), dir, 0, nil); !errors.As(err, &busy) {
		t.Errorf("a second lock is given: %v", err)
	}
}

// TestLockHolders finds who holds the lock, signed or not, and nobody who waits. What
// ends a process without a word closes its files and unlocks nothing, so that the lock
// is the child's then.
func TestLockHolders(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, lockFile)
	if err := os.Symlink(filepath.Join(dir, "missing", "x"), path); err != nil {
		t.Fatal(err)
	}
	start := func(l *lock) int {
		t.Helper()
		cmd := exec.Command("sleep", "3600")
		cmd.ExtraFiles = l.files()
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
		return cmd.Process.Pid
	}
	waiting, err := openLock(dir)
	if err != nil {
		t.Fatal(err)
	}
	start(waiting)
	held, err := takeLock(t.Context(), dir, 0, nil)
	if err != nil {
		t.Fatal(err)
	}
	if got := lockTakers(waiting.files()...); len(got) == 0 || slices.ContainsFunc(got, func(pid int) bool { return pid != os.Getpid() }) {
		t.Errorf("processes %v took it, want %d", got, os.Getpid())
	}
	waiting.release()
	child := start(held)
	for _, f := range held.files() {
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
	}
	another, err := openLock(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer another.release()
	if got := lockHolders(another.files()...); !slices.Equal(got, []int{child}) {
		t.Errorf("processes %v hold it, want %d", got, child)
	}
	if got := lockTakers(another.files()...); len(got) != 0 {
		t.Errorf("processes %v took it and hold it, want none", got)
	}
	want := fmt.Sprintf("process %d (sleep 3600) is changing the firewall", child)
	if _, err := takeLock(t.Context(), dir, 0, nil); err == nil || err.Error() != want {
		t.Errorf("%v, want %s", err, want)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	var busy *BusyError
	if _, err := takeLock(ctx, dir, time.Hour, nil); !errors.Is(err, context.Canceled) || errors.As(err, &busy) {
		t.Errorf("not waited for: %v", err)
	}
}

// TestLockOfOthers: a user who may read the state cannot keep root from it.
func TestLockOfOthers(t *testing.T) {
	other := &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	testnet.Require(t, testnet.Probed("processes of other users", func() error {
		cmd := exec.Command("true")
		cmd.SysProcAttr = other
		return cmd.Run()
	}))
	dir := t.TempDir()
	path := filepath.Join(dir, lockFile)
	if err := os.WriteFile(path, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	keep := func(path string) int {
		t.Helper()
		file, err := os.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		defer file.Close()
		if err := unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
			t.Fatal(err)
		}
		cmd := exec.Command("sleep", "3600")
		cmd.ExtraFiles = []*os.File{file}
		cmd.SysProcAttr = other
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
		return cmd.Process.Pid
	}
	first := keep(dir)
	held, err := takeLock(t.Context(), dir, 0, nil)
	if err != nil {
		t.Fatal(err)
	}
	var busy *BusyError
	if _, err := takeLock(t.Context(), dir, 0, nil); !errors.As(err, &busy) {
		t.Errorf("a second lock is given: %v", err)
	}
	held.release()
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("others may lock the file too: %v, %v", info.Mode(), err)
	}
	keep(path)
	if _, err := takeLock(t.Context(), dir, 0, nil); !errors.As(err, &busy) || !strings.HasPrefix(busy.Holder, fmt.Sprintf("process %d ", first)) {
		t.Errorf("what nobody can have is given: %v", err)
	}
}

// TestLockThroughLink: what a link leads to is neither written nor locked.
func TestLockThroughLink(t *testing.T) {
	dir, target := t.TempDir(), filepath.Join(t.TempDir(), "target")
	if err := os.WriteFile(target, []byte("kept"), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{lockFile, stepFile} {
		if err := os.Symlink(target, filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	held, err := takeLock(t.Context(), dir, 0, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer held.release()
	if err := (store{dir: dir}).saveStep("2 of 3"); err != nil {
		t.Error(err)
	}
	if text, err := os.ReadFile(target); err != nil || string(text) != "kept" {
		t.Errorf("the target has %q, %v", text, err)
	}
	if info, err := os.Stat(target); err != nil || info.Mode().Perm() != 0o644 {
		t.Errorf("the target has the mode %v, %v", info.Mode(), err)
	}
	if text, err := os.ReadFile(filepath.Join(dir, stepFile)); err != nil || string(text) != "2 of 3" {
		t.Errorf("the step is %q, %v", text, err)
	}
}

func TestProgramSurvivesTheDisk(t *testing.T) {
	address := netip.MustParseAddr("2001:db8::1")
	prefix := netip.MustParsePrefix("10.0.0.0/24")
	rate := program.Rate{Packets: 6, Per: 30000, Burst: 6}
	p := policyOf("a")
	p.Chains = append(p.Chains, program.Chain{Name: "all", Rules: []program.Rule{{
		ID: "r", Match: []program.Condition{{Field: program.Source, Not: true, Addresses: []addrset.Range{{From: address, To: address}}}},
		Actions: []program.Action{
			program.Jump{Chain: "x"},
			program.Goto{Chain: "x"},
			program.NoTrack{},
			program.Count{Counter: "c"},
			program.Log{Prefix: "p", Rate: rate},
			program.Limit{Name: "l", Rate: rate, Per: program.PerSource, Table: "t", Ban: "b", BanTimeout: 5},
			program.ConnectionLimit{Name: "n", Max: 20},
			program.SetAdd{Set: "s", Timeout: 7},
			program.SetMark{Value: 1, Mask: 3},
			program.DNAT{To: address, Port: 80},
			program.DNATPrefix{From: prefix, To: prefix},
			program.SNAT{To: address},
			program.SNATPrefix{From: prefix, To: prefix},
			program.Masquerade{},
			program.Redirect{Port: 8080},
			program.MapSource{From: prefix, To: prefix},
			program.MapDestination{From: prefix, To: prefix},
			program.ClampMSS{},
			program.Offload{Flowtable: "f"},
			program.Accept,
		},
	}}})
	data, err := encodeProgram(p)
	if err != nil {
		t.Fatal(err)
	}
	got, err := decodeProgram(data)
	if err != nil {
		t.Fatal(err)
	}
	equalAddr := cmp.Comparer(func(a, b netip.Addr) bool { return a == b })
	equalPrefix := cmp.Comparer(func(a, b netip.Prefix) bool { return a == b })
	if d := cmp.Diff(p, got, equalAddr, equalPrefix, cmpopts.EquateEmpty()); d != "" {
		t.Errorf("changed on disk:\n%s", d)
	}
	if _, err := decodeProgram(data[:len(data)/2]); err == nil {
		t.Error("half a program was read")
	}
}

func TestWithoutDevices(t *testing.T) {
	p := &program.Program{
		Hooks: []program.Hook{
			{Kind: program.Ingress, Phase: program.Early, Devices: []string{"eth0", "vm0"}, Chain: "early"},
			{Kind: program.Ingress, Phase: program.Early, Devices: []string{"vm1"}, Chain: "gone"},
			{Kind: program.Forward, Phase: program.Filter, Chain: "forward"},
		},
		Flowtables: []program.Flowtable{{Name: "one", Devices: []string{"eth0", "vm0"}}, {Name: "two", Devices: []string{"vm1", "vm0"}}},
		Chains: []program.Chain{
			{Name: "early"},
			{Name: "gone", Rules: []program.Rule{{Actions: []program.Action{program.Jump{Chain: "helper"}}}}},
			{Name: "helper"},
			{Name: "forward", Rules: []program.Rule{
				{Comment: "one", Actions: []program.Action{program.Offload{Flowtable: "one"}}},
				{Comment: "two", Actions: []program.Action{program.Offload{Flowtable: "two"}}},
				{Comment: "counted", Actions: []program.Action{program.Count{Counter: "c"}, program.Offload{Flowtable: "two"}}},
			}},
		},
	}
	missing := withoutDevices(p, func(name string) bool { return name == "eth0" })
	if !slices.Equal(missing, []string{"vm0", "vm1"}) {
		t.Errorf("missing: %v", missing)
	}
	if len(p.Hooks) != 2 || !slices.Equal(p.Hooks[0].Devices, []string{"eth0"}) {
		t.Errorf("hooks: %+v", p.Hooks)
	}
	if len(p.Flowtables) != 1 || !slices.Equal(p.Flowtables[0].Devices, []string{"eth0"}) {
		t.Errorf("flowtables: %+v", p.Flowtables)
	}
	var chains, rules []string
	for _, c := range p.Chains {
		chains = append(chains, c.Name)
		for _, r := range c.Rules {
			rules = append(rules, r.Comment)
		}
	}
	if !slices.Equal(chains, []string{"early", "forward"}) || !slices.Equal(rules, []string{"one", "counted"}) {
		t.Errorf("chains %v, rules %v", chains, rules)
	}
	if again := withoutDevices(p, func(name string) bool { return name == "eth0" }); len(again) != 0 {
		t.Errorf("again: %v", again)
	}
}

func TestMark(t *testing.T) {
	mark := newMark(7)
	if !strings.HasPrefix(mark, "generation_7_") || mark == newMark(7) {
		t.Errorf("mark %s", mark)
	}
}

type plainArtifact struct{ need uint64 }

func (plainArtifact) Backend() string         { return "plain" }
func (plainArtifact) Text() string            { return "" }
func (plainArtifact) Encode() ([]byte, error) { return nil, nil }

// What tables may grow to is no reason to refuse.
func (a plainArtifact) Cost() backend.Cost  { return backend.Cost{Memory: a.need, Growth: 1 << 40} }
func (plainArtifact) Notes() []program.Note { return nil }

func TestMemoryBudget(t *testing.T) {
	s := &session{Host: &Host{}}
	tests := []struct {
		need, free uint64
		force, ok  bool
	}{
		{49, 100, false, true}, {50, 100, false, true}, {51, 100, false, false}, {51, 100, true, true}, {51, 0, false, true},
	}
	for _, test := range tests {
		err := s.admit(Input{Program: policyOf("a"), Artifact: plainArtifact{test.need}, Memory: test.free}, &Options{Force: test.force})
		var memory *MemoryError
		if (err == nil) != test.ok || err != nil && !errors.As(err, &memory) {
			t.Errorf("%d of %d, force %v: %v", test.need, test.free, test.force, err)
		}
	}
}

func TestDir(t *testing.T) {
	if dir, err := Dir("/s", ""); err != nil || dir != "/s" {
		t.Errorf("the host's own: %s, %v", dir, err)
	}
	if dir, err := Dir("/s", "vm-1.a"); err != nil || dir != "/s/netns/vm-1.a" {
		t.Errorf("a namespace: %s, %v", dir, err)
	}
	for _, bad := range []string{"..", "a/b", "../x", ".hidden", "a b", "-x", "a\nb", strings.Repeat("x", 300)} {
		if _, err := Dir("/s", bad); err == nil {
			t.Errorf("%q is taken for a name", bad)
		}
	}
}

func TestPendingOutlivesTheJournal(t *testing.T) {
	s := testStore(t)
	p := &Pending{Token: "t1", Generation: 2}
	if err := s.saveJournal(&journal{Format: format, Pending: p}); err != nil {
		t.Fatal(err)
	}
	find := func(token string) *Pending {
		t.Helper()
		got, err := s.pendingOf(token)
		if err != nil {
			t.Fatal(err)
		}
		return got
	}
	if find("t1") == nil || find("t2") != nil {
		t.Error("a change under way")
	}
	if err := s.saveCurrent(&current{Format: format, Next: 3, Pending: p}); err != nil {
		t.Fatal(err)
	}
	if err := s.endJournal(); err != nil {
		t.Fatal(err)
	}
	if find("t1") == nil {
		t.Error("the state has it, and it was not found")
	}
	if err := s.saveCurrent(&current{Format: format, Next: 3}); err != nil {
		t.Fatal(err)
	}
	if find("t1") != nil {
		t.Error("it is over, and it was found")
	}
}

func FuzzReadState(f *testing.F) {
	whole, err := json.Marshal(current{Format: format, Next: 3, Running: 2, Pending: &Pending{Token: "t"}})
	if err != nil {
		f.Fatal(err)
	}
	for _, seed := range [][]byte{whole, []byte(`{"format":1}`), []byte(`{"format":9}`), []byte(`[]`), nil} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		s := testStore(t)
		for _, file := range []string{currentFile, journalFile, generationName(1)} {
			if err := os.WriteFile(filepath.Join(s.dir, file), data, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		_, _ = s.current()
		_, _ = s.journal()
		_, _ = s.generation(1)
		_, _ = s.pendingOf("t")
	})
}

func TestCounters(t *testing.T) {
	p := policyOf("a")
	origin := program.Origin{File: "a.yaml", Line: 7, Text: "allow ssh limit 6/30s per source"}
	p.Chains[0].Rules = append(p.Chains[0].Rules, program.Rule{Origin: origin, Actions: []program.Action{
		program.Limit{FullCounter: "full"}, program.ConnectionLimit{FullCounter: "free"}, program.Count{Counter: "second"},
	}})
	p.Counters = []program.Counter{
		{Name: "second", Origin: origin},
		{Name: "first", Origin: program.Origin{File: "a.yaml", Line: 3}},
		{Name: "full"},
		{Name: "free"},
		{Name: "missing"},
	}
	rules, full := counters(p, map[string]backend.Count{"first": {Packets: 1}, "second": {Packets: 2, Bytes: 80}, "full": {Packets: 5}, "free": {}})
	if len(rules) != 2 || rules[0].Name != "first" || rules[1].Name != "second" || rules[1].Bytes != 80 {
		t.Errorf("rules: %+v", rules)
	}
	if len(full) != 1 || full[0].Name != "full" || full[0].Origin.Line != 7 {
		t.Errorf("full: %+v", full)
	}
}
