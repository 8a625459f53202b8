// Package account says what the kernel takes for what a thread asks of it: bytes of
// kernel memory, and time of the processor. Package calibrate calls it, and the
// tests of what backends predict.
package account

import (
	"errors"
	"runtime"
	"time"

	"github.com/prometheus/procfs"
	"golang.org/x/sys/unix"

	"sluice/internal/lab/testnet"
	"sluice/internal/system/kernel/memgroup"
)

// Account counts kernel memory: of a group of the memory controller where that
// counts by thread (version 1), or else of the whole machine.
type Account struct{ group *memgroup.Group }

// Open makes an account. The caller closes it.
func Open() *Account {
	g, err := memgroup.New("account")
	if err != nil {
		return &Account{}
	}
	if g.V2 {
		_ = g.Remove() // it takes no single thread
		return &Account{}
	}
	return &Account{g}
}

// Close removes the group.
func (a *Account) Close() error {
	if a.group == nil {
		return nil
	}
	return a.group.Remove()
}

// Own says whether nobody else's memory is counted.
func (a *Account) Own() bool { return a.group != nil }

// bytes is what kernel objects take.
func (a *Account) bytes() (int64, error) {
	if !a.Own() {
		return slabBytes()
	}
	return a.group.Kernel()
}

// settled is bytes when what the kernel frees behind a grace period is gone.
func (a *Account) settled() (int64, error) {
	last, err := a.bytes()
	for begin, same := time.Now(), 0; err == nil && same < 4 && time.Since(begin) < 2*time.Second; {
		time.Sleep(25 * time.Millisecond)
		now, failed := a.bytes()
		if same++; now < last {
			same = 0
		}
		last, err = now, failed
	}
	return last, err
}

// Take runs f in a namespace and says what it added: bytes of kernel memory, which
// may be fewer than before, and time of the processor, that of processes included
// which f has waited for.
func (a *Account) Take(in *testnet.Namespace, f func() error) (bytes int64, cpu time.Duration, err error) {
	before, err := a.bytes()
	if err != nil {
		return 0, 0, err
	}
	err = in.Do(func() error {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		if a.Own() {
			back, err := memgroup.Join(a.group.Dir)
			if err != nil {
				return err
			}
			defer back()
		}
		begin := processorTime()
		defer func() { cpu = processorTime() - begin }()
		return f()
	})
	if err != nil {
		return 0, 0, err
	}
	after, err := a.settled()
	return after - before, cpu, err
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
func slabBytes() (int64, error) {
	proc, err := procfs.NewDefaultFS()
	if err != nil {
		return 0, err
	}
	m, err := proc.Meminfo()
	if err == nil && (m.SlabBytes == nil || m.VmallocUsedBytes == nil) {
		err = errors.New("/proc/meminfo lacks what the kernel holds")
	}
	if err != nil {
		return 0, err
	}
	return int64(*m.SlabBytes + *m.VmallocUsedBytes), nil
}
