package apply

import (
	"bufio"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"sluice/internal/backend/nftables"
	"sluice/internal/base/testseed"
	"sluice/internal/lab/testnet"
)

// points runs a command once in a lab of its own and says how many points it
// has.
func points(t *testing.T, prepare []command, c command) []string {
	t.Helper()
	l := newLab(t)
	for _, p := range prepare {
		l.must(p)
	}
	c.Trace = filepath.Join(t.TempDir(), "trace")
	l.must(c)
	file, err := os.Open(c.Trace)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	var names []string
	for lines := bufio.NewScanner(file); lines.Scan(); {
		names = append(names, lines.Text())
	}
	if len(names) == 0 {
		t.Fatal("no points")
	}
	return names
}

// TestKilledAtEveryPoint kills a command at each of its points. The kernel then
// holds the old policy or the new one, the next command agrees with the kernel,
// and nothing is left over.
func TestKilledAtEveryPoint(t *testing.T) {
	a, b := command{Op: "apply", Policy: "a"}, command{Op: "apply", Policy: "b"}
	few := command{Op: "apply", Policy: "a with 192.0.2.1 192.0.2.5"}
	tests := []struct {
		name     string
		prepare  []command
		run      command
		old, new string
	}{
		{"first apply", nil, a, "", "a"},
		{"apply", []command{a}, b, "a", "b"},
		{"apply of a few elements", []command{few}, command{Op: "apply", Policy: "a with 192.0.2.1 192.0.2.9"}, few.Policy, "a with 192.0.2.1 192.0.2.9"},
		{"apply with sysctls", []command{a}, command{Op: "apply", Policy: "timeout77"}, "a", "timeout77"},
		{"apply to confirm", []command{a}, command{Op: "apply", Policy: "b", Confirm: time.Hour}, "a", "b"},
		{"confirm", []command{a, {Op: "apply", Policy: "b", Confirm: time.Hour}}, command{Op: "confirm"}, "b", "b"},
		{"rollback", []command{a, b}, command{Op: "rollback", N: -1}, "b", "a"},
		{"remove", []command{a}, command{Op: "remove"}, "a", ""},
	}
	for n, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			names := points(t, test.prepare, test.run)
			for i, name := range names {
				if testing.Short() && strings.HasPrefix(test.name, "apply ") && i%2 == n%2 {
					continue // "apply" is killed at these points
				}
				t.Run(fmt.Sprintf("%d %s", i+1, name), func(t *testing.T) {
					t.Parallel()
					l := newLab(t)
					for _, p := range test.prepare {
						l.must(p)
					}
					killed := test.run
					killed.KillAt = fmt.Sprint(i + 1)
					if out, err := l.run(killed); err == nil || !strings.Contains(err.Error(), "killed") {
						t.Fatalf("it was not killed: %v %s", err, out)
					}
					l.clean(test.old, test.new)
				})
			}
		})
	}
}

// TestRestoreKilledAtEveryPoint kills restore after somebody flushed the rules;
// the next restore loads the policy.
func TestRestoreKilledAtEveryPoint(t *testing.T) {
	prepare := []command{{Op: "apply", Policy: "a"}, {Op: "flush"}}
	for i, name := range points(t, prepare, command{Op: "restore"}) {
		t.Run(fmt.Sprintf("%d %s", i+1, name), func(t *testing.T) {
			t.Parallel()
			l := newLab(t)
			for _, p := range prepare {
				l.must(p)
			}
			if out, err := l.run(command{Op: "restore", KillAt: fmt.Sprint(i + 1)}); err == nil {
				t.Fatalf("it was not killed: %s", out)
			}
			l.must(command{Op: "restore", Wait: time.Minute})
			l.clean("a", "a")
		})
	}
}

// clean holds the next command to its promise after a kill.
func (l *lab) clean(old, new string) string {
	l.t.Helper()
	l.quiet()
	before := l.markedAs()
	s := l.status()
	after := l.holds(old, new)
	if after != old && after != new {
		l.t.Fatalf("neither the old nor the new policy: %q", after)
	}
	if before != "" && before != after {
		l.t.Errorf("the mark said %q, and after the next command the kernel holds %q", before, after)
	}
	if !s.Fine() {
		l.t.Errorf("the next command does not know what runs: %+v", s)
	}
	if s.Generation != nil && strings.TrimSuffix(s.Generation.Policy, ".yaml") != after {
		l.t.Errorf("the state says %s, the kernel holds %q", s.Generation.Policy, after)
	}
	if s.Generation == nil && after != "" {
		l.t.Errorf("the state says nothing, the kernel holds %q", after)
	}
	if _, err := os.Stat(filepath.Join(l.dir, journalFile)); !errors.Is(err, fs.ErrNotExist) {
		l.t.Errorf("the journal is still there: %v", err)
	}
	err := filepath.WalkDir(l.dir, func(path string, d fs.DirEntry, err error) error {
		if err == nil && strings.HasPrefix(d.Name(), ".") {
			l.t.Errorf("left over: %s", path)
		}
		return err
	})
	if err != nil {
		l.t.Error(err)
	}
	return after
}

// quiet waits for the nft that a killed command has left: it holds the lock until
// its transaction is over.
func (l *lab) quiet() {
	l.t.Helper()
	file, err := os.Open(filepath.Join(l.dir, lockFile))
	if errors.Is(err, fs.ErrNotExist) {
		return
	}
	if err != nil {
		l.t.Fatal(err)
	}
	defer file.Close()
	if err := unix.Flock(int(file.Fd()), unix.LOCK_EX); err != nil {
		l.t.Fatal(err)
	}
}

// markedAs is the policy whose mark the kernel carries, "" where it has none or
// the state does not know it any more.
func (l *lab) markedAs() string {
	l.t.Helper()
	mark := ""
	err := l.ns.Do(func() (err error) {
		mark, _, err = nftables.New().Mark(l.t.Context())
		return err
	})
	if err != nil {
		l.t.Fatal(err)
	}
	st := store{dir: l.dir}
	numbers, err := st.numbers()
	if err != nil {
		l.t.Fatal(err)
	}
	for _, n := range numbers {
		if g, err := st.generation(n); err == nil && g.Mark == mark {
			return strings.TrimSuffix(g.Policy, ".yaml")
		}
	}
	return ""
}

// TestConfirmSurvivesKills kills an apply that waits for a confirmation after
// each of its points from the arming of the watcher on: the old policy returns
// without any other command.
func TestConfirmSurvivesKills(t *testing.T) {
	a := command{Op: "apply", Policy: "a"}
	b := command{Op: "apply", Policy: "b", Confirm: 1500 * time.Millisecond}
	names := points(t, []command{a}, b)
	armed := false
	for i, name := range names {
		if armed = armed || name == "armed"; !armed {
			continue
		}
		t.Run(fmt.Sprintf("%d %s", i+1, name), func(t *testing.T) {
			t.Parallel()
			b := b
			l := newLab(t)
			l.must(a)
			b.KillAt = fmt.Sprint(i + 1)
			if out, err := l.run(b); err == nil {
				t.Fatalf("it was not killed: %s", out)
			}
			l.await("a")
			l.settled()
			if s := l.status(); s.Pending != nil || !s.Fine() {
				t.Errorf("status: %+v", s)
			}
		})
	}
}

// TestStoppedHolderIsKilled has a stopped command hold the lock while the time
// for a confirmation runs out.
func TestStoppedHolderIsKilled(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("waits for the watcher's patience with the lock")
	}
	l := newLab(t)
	l.onTrial()
	hold := filepath.Join(l.dir, "hold")
	stopped := l.ns.Start("/usr/bin/env", l.childArgs(command{Op: "apply", Policy: "c", Hold: hold})...)
	await(t, "the change holds the lock", func() bool { return exists(hold) })
	if err := syscall.Kill(stopped.Pid(), syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	l.endTrial()
	await(t, "the policy of before is back", func() bool { return l.holds() == "a" })
	l.settled()
}

// TestSlowChangeKeepsItsWatcher has a change take longer than the time for its
// confirmation, which counts from the end of the change.
func TestSlowChangeKeepsItsWatcher(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	l.must(command{Op: "apply", Policy: "a"})
	hold := filepath.Join(l.dir, "hold")
	slow := l.ns.Start("/usr/bin/env", l.childArgs(command{Op: "apply", Policy: "b", Confirm: time.Second, Hold: hold, HoldAt: "verified"})...)
	await(t, "the rules are read back", func() bool { return exists(hold) })
	time.Sleep(2 * time.Second) // twice what the trial has
	l.wantHolds("b")
	if err := os.Remove(hold); err != nil {
		t.Fatal(err)
	}
	<-slow.Done()
	l.await("a")
	l.settled()
}

// TestRandomKills applies under traffic that both policies let through, and
// kills at random moments.
func TestRandomKills(t *testing.T) {
	t.Parallel()
	rounds := 200
	if testing.Short() {
		rounds = 15
	}
	random := testseed.Rand(t)
	testnet.Require(t, testnet.Nftables)
	net := testnet.New(t)
	host, client := net.Unnamed("host"), net.Unnamed("client")
	net.Join(testnet.End{In: host, Device: "eth0", Addresses: []string{"10.0.0.1/24"}}, testnet.End{In: client, Device: "eth0", Addresses: []string{"10.0.0.2/24"}})
	l := &lab{t, host, t.TempDir()}
	host.ServeUDP("10.0.0.1:7000")
	start := time.Now()
	l.must(command{Op: "apply", Policy: "a large"})
	longest := time.Since(start)

	var sent, lost atomic.Int64
	stop := make(chan struct{})
	var traffic sync.WaitGroup
	traffic.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
			}
			sent.Add(1)
			r := client.TryUDP(testnet.UDPTry{To: netip.MustParseAddrPort("10.0.0.1:7000")})
			if r.Outcome != testnet.Answered {
				lost.Add(1)
			}
			time.Sleep(500 * time.Microsecond) // leave the processors to the applies
		}
	})
	running := "a large"
	counts := map[string]int{}
	for range rounds {
		next := "b large"
		if running == next {
			next = "a large"
		}
		c := command{Op: "apply", Policy: next}
		if random.IntN(3) == 0 {
			c.Confirm = time.Hour
		}
		start := time.Now()
		p := host.Start("/usr/bin/env", l.childArgs(c)...)
		time.Sleep(time.Duration(random.Int64N(int64(longest))))
		_ = syscall.Kill(p.Pid(), syscall.SIGKILL)
		<-p.Done()
		if strings.Contains(p.Output(), "generation") {
			// It was through: aim within the time that it takes.
			longest = max(20*time.Millisecond, time.Since(start))
			counts["through"]++
		} else {
			longest += 5 * time.Millisecond
		}
		running = l.clean(running, next)
		counts[running]++
	}
	close(stop)
	traffic.Wait()
	t.Logf("held afterwards: %v; %d packets, %d lost", counts, sent.Load(), lost.Load())
	if lost.Load() > 0 {
		t.Errorf("%d of %d packets that both policies allow were lost", lost.Load(), sent.Load())
	}
	if !testing.Short() && (counts["a large"] == 0 || counts["b large"] == 0) { // of few kills that may be so
		t.Errorf("the kills were all on one side: %v", counts)
	}
}

// TestDamagedHistoryDoesNotBlock has an interrupted change meet a state whose
// old generation cannot be read any more.
func TestDamagedHistoryDoesNotBlock(t *testing.T) {
	a, b := command{Op: "apply", Policy: "a"}, command{Op: "apply", Policy: "b"}
	at := 0
	for i, name := range points(t, []command{a}, b) {
		if strings.HasPrefix(name, "before switch") {
			at = i + 1
		}
	}
	l := newLab(t)
	l.must(a)
	b.KillAt = fmt.Sprint(at)
	if out, err := l.run(b); err == nil {
		t.Fatalf("it was not killed: %s", out)
	}
	blobs, err := filepath.Glob(filepath.Join(l.dir, blobsDir, "*"))
	if err != nil {
		t.Fatal(err)
	}
	for _, blob := range blobs {
		if err := os.WriteFile(blob, []byte("rubbish"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	l.must(command{Op: "apply", Policy: "c"})
	l.wantHolds("c")
	if s := l.status(); !s.Fine() {
		t.Errorf("status: %+v", s)
	}
}
