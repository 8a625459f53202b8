package measure

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"
)

// Run is what one injection did.
type Run struct {
	First    int           // the flow of the first packet
	Packets  int           // sent
	Survived int           // passed all rules
	Time     time.Duration // processor time of the thread
}

// NsPerPacket is the cost of a packet with its whole way through the stack.
func (r Run) NsPerPacket() float64 { return float64(r.Time.Nanoseconds()) / float64(r.Packets) }

const (
	liveFrames = 1 << 1 // BPF_F_TEST_XDP_LIVE_FRAMES of linux/bpf.h
	batch      = 64     // frames that the stack takes at once, as from a driver
)

// context of a test run: struct xdp_md of linux/bpf.h.
type xdpMd struct {
	Data, DataEnd, DataMeta, IngressIfindex, RxQueueIndex, EgressIfindex uint32
}

// Inject sends packets of the traffic, going on where the last injection of the
// same source stopped, and waits until the stack is done with them. The number is
// rounded up to whole batches of 64.
func (l *Lab) Inject(ctx context.Context, s *Source, packets int) (Run, error) {
	if err := ctx.Err(); err != nil {
		return Run{}, err
	}
	run, err := l.inject(s, (packets+batch-1)/batch*batch)
	if err != nil {
		return Run{}, fmt.Errorf("inject into %s: %w", l.Namespace.Label(), err)
	}
	return run, nil
}

func (l *Lab) inject(s *Source, packets int) (Run, error) {
	p, err := l.port(s.in)
	if err != nil {
		return Run{}, err
	}
	first, sentBefore, err := s.position()
	if err != nil {
		return Run{}, err
	}
	survivedBefore, err := l.drain.survived()
	if err != nil {
		return Run{}, err
	}
	run := Run{First: first}
	if s.way == ByPacketRing {
		run.Time, err = l.byRing(p, s, packets)
	} else {
		run.Time, err = l.byLiveFrames(p, s, packets)
	}
	if err != nil {
		return Run{}, err
	}
	_, sent, err := s.position()
	if err != nil {
		return Run{}, err
	}
	survived, err := l.drain.survived()
	if err != nil {
		return Run{}, err
	}
	run.Packets, run.Survived = int(sent-sentBefore), int(survived-survivedBefore)
	return run, nil
}

func (l *Lab) byLiveFrames(p *port, s *Source, packets int) (took time.Duration, err error) {
	err = l.Namespace.Do(func() error {
		return pinned(true, func() (err error) {
			start, err := threadTime()
			if err != nil {
				return err
			}
			err = undisturbed(func() (err error) {
				_, err = s.program.Run(&ebpf.RunOptions{
					Data:    s.frame,
					Context: xdpMd{DataEnd: uint32(len(s.frame)), IngressIfindex: p.index},
					Repeat:  uint32(packets), BatchSize: batch, Flags: liveFrames,
				})
				return err
			})
			end, timeErr := threadTime()
			took = end - start
			return errors.Join(err, timeErr)
		})
	})
	return took, err
}

// undisturbed runs f while no signal comes to the thread, whose process has others for
// them: a test run that a signal ends early is started again, and more packets are sent
// than were asked for (bpf_test_timer_continue in net/bpf/test_run.c). What a fault of
// the thread itself raises still comes.
func undisturbed(f func() error) error {
	var all, before unix.Sigset_t
	for i := range all.Val {
		all.Val[i] = ^all.Val[i]
	}
	for _, fault := range []unix.Signal{unix.SIGSEGV, unix.SIGBUS, unix.SIGFPE, unix.SIGILL, unix.SIGTRAP} {
		all.Val[0] &^= 1 << (fault - 1)
	}
	if err := unix.PthreadSigmask(unix.SIG_SETMASK, &all, &before); err != nil {
		return fmt.Errorf("hold signals back: %w", err)
	}
	return errors.Join(f(), unix.PthreadSigmask(unix.SIG_SETMASK, &before, nil))
}

func threadTime() (time.Duration, error) {
	var t unix.Timespec
	err := unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &t)
	return time.Duration(t.Nano()), err
}

// pinned runs f with the thread on one processor; ahead of every other thread there
// where that is asked for and the right to it is given. The caller has locked the
// thread.
func pinned(ahead bool, f func() error) error {
	var before, one unix.CPUSet
	if err := unix.SchedGetaffinity(0, &before); err != nil {
		return fmt.Errorf("read the thread's processors: %w", err)
	}
	for i := len(before)*64 - 1; i >= 0; i-- {
		if before.IsSet(i) {
			one.Set(i) // the last: the first serves most interrupts
			break
		}
	}
	if err := unix.SchedSetaffinity(0, &one); err != nil {
		return fmt.Errorf("keep the thread on one processor: %w", err)
	}
	defer func() { _ = unix.SchedSetaffinity(0, &before) }()
	fifo := unix.SchedAttr{Size: unix.SizeofSchedAttr, Policy: unix.SCHED_FIFO, Priority: 1}
	if ahead && unix.SchedSetAttr(0, &fifo, 0) == nil {
		defer func() {
			_ = unix.SchedSetAttr(0, &unix.SchedAttr{Size: unix.SizeofSchedAttr, Policy: unix.SCHED_NORMAL}, 0)
		}()
	}
	return f()
}
