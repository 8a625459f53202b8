package nftables

import (
	"bufio"
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"sluice/internal/backend"
	"sluice/internal/kernel/nft"
	"sluice/internal/testnet"
)

var measure = flag.Bool("measure", false, "measure what the constants of costs say, on the kernel at hand")

// account is where kernel memory of this test alone is counted: a group of the
// memory controller (version 1, which counts by thread), or else the whole
// machine.
type account struct{ dir string }

const memoryGroups = "/sys/fs/cgroup/memory"

func newAccount(t testing.TB) *account {
	t.Helper()
	dir := filepath.Join(memoryGroups, fmt.Sprintf("sluice-test-%d-%d", os.Getpid(), time.Now().UnixNano()))
	if _, err := os.Stat(filepath.Join(memoryGroups, "tasks")); err != nil || os.Mkdir(dir, 0o755) != nil {
		return &account{}
	}
	t.Cleanup(func() {
		// Memory that is freed behind a grace period is still of the group.
		for range 50 {
			if err := os.Remove(dir); err == nil || errors.Is(err, os.ErrNotExist) {
				return
			}
			time.Sleep(20 * time.Millisecond)
		}
	})
	return &account{dir}
}

// own says whether nobody else's memory is counted.
func (a *account) own() bool { return a.dir != "" }

// bytes is what kernel objects take.
func (a *account) bytes(t testing.TB) uint64 {
	t.Helper()
	if !a.own() {
		return slabBytes(t)
	}
	text, err := os.ReadFile(filepath.Join(a.dir, "memory.kmem.usage_in_bytes"))
	if err != nil {
		t.Fatal(err)
	}
	n, err := strconv.ParseUint(strings.TrimSpace(string(text)), 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// settled is bytes when what the kernel frees behind a grace period is gone.
func (a *account) settled(t testing.TB) uint64 {
	t.Helper()
	last, same := a.bytes(t), 0
	for begin := time.Now(); same < 4 && time.Since(begin) < 2*time.Second; {
		time.Sleep(25 * time.Millisecond)
		now := a.bytes(t)
		if same++; now < last {
			same = 0
		}
		last = now
	}
	return last
}

// take takes steps in a namespace and says what they added: bytes of kernel
// memory, and time of the processor, that of nft included.
func (a *account) take(t testing.TB, in *testnet.Namespace, steps ...backend.Step) (bytes uint64, cpu time.Duration) {
	t.Helper()
	before := a.bytes(t)
	err := in.Do(func() error {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		if a.own() {
			leave, err := a.enter()
			if err != nil {
				return err
			}
			defer leave()
		}
		begin := processorTime()
		for _, s := range steps {
			if err := s.Take(context.Background(), nft.Run); err != nil {
				return fmt.Errorf("%s: %w", s.Name, err)
			}
		}
		cpu = processorTime() - begin
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return a.settled(t) - before, cpu
}

// enter puts the calling thread into the group.
func (a *account) enter() (leave func(), err error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/self/task/%d/cgroup", unix.Gettid()))
	if err != nil {
		return nil, err
	}
	was := ""
	for line := range strings.Lines(string(text)) {
		if parts := strings.SplitN(strings.TrimSpace(line), ":", 3); len(parts) == 3 && parts[1] == "memory" {
			was = filepath.Join(memoryGroups, parts[2])
		}
	}
	write := func(dir string) error {
		return os.WriteFile(filepath.Join(dir, "tasks"), []byte(strconv.Itoa(unix.Gettid())), 0)
	}
	return func() { _ = write(was) }, write(a.dir)
}

// processorTime is that of this thread and of processes that ended.
func processorTime() time.Duration {
	var own unix.Timespec
	var children unix.Rusage
	_ = unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &own)
	_ = unix.Getrusage(unix.RUSAGE_CHILDREN, &children)
	return time.Duration(own.Nano() + children.Utime.Nano() + children.Stime.Nano())
}

// slabBytes is what kernel objects take on this machine: slabs, and the arrays
// that were too large for one.
func slabBytes(t testing.TB) uint64 {
	t.Helper()
	f, err := os.Open("/proc/meminfo")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var total uint64
	for lines := bufio.NewScanner(f); lines.Scan(); {
		fields := strings.Fields(lines.Text())
		switch fields[0] {
		case "Slab:", "VmallocUsed:":
			n, err := strconv.ParseUint(fields[1], 10, 64)
			if err != nil {
				t.Fatal(err)
			}
			total += n << 10
		}
	}
	return total
}
