// Package clock notices that the wall clock was set, and that the machine slept. The agent
// calls it.
package clock

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// Jump is what became of the clocks at once.
type Jump struct {
	Set   time.Duration // by how much the wall clock was set forward, against CLOCK_BOOTTIME
	Slept time.Duration // by how much CLOCK_MONOTONIC, which time-outs of the kernel go by, stood still
}

// never is later than a timer is waited for, in seconds; the kernel's own most is 2^63 ns.
const never = 1 << 33

// Watch calls jumped, from a goroutine of its own, whenever the wall clock was set or the
// machine woke up, until the context ends or that cannot be seen. A clock that is slewed
// does not jump.
func Watch(ctx context.Context, jumped func(Jump)) error {
	// A file that does not block is read by the runtime's poller, so that Close ends a read.
	fd, err := unix.TimerfdCreate(unix.CLOCK_REALTIME, unix.TFD_CLOEXEC|unix.TFD_NONBLOCK)
	if err != nil {
		return fmt.Errorf("watch the clock: %w", err)
	}
	timer := os.NewFile(uintptr(fd), "timerfd")
	stop := context.AfterFunc(ctx, func() { _ = timer.Close() })
	defer func() {
		stop()
		_ = timer.Close()
	}()
	failed := func(err error) error {
		if ctx.Err() != nil {
			return nil //nolint:nilerr // the timer is closed for it
		}
		return fmt.Errorf("watch the clock: %w", err)
	}
	if err := arm(timer); err != nil {
		return failed(err)
	}
	for last := now(); ; {
		_, err := timer.Read(make([]byte, 8))
		if errors.Is(err, unix.ECANCELED) {
			err = arm(timer) // before the clocks are read, or what comes between is lost
		}
		if err != nil {
			return failed(err)
		}
		next := now()
		jumped(Jump{next.wall - last.wall, next.slept - last.slept})
		last = next
	}
}

func arm(timer *os.File) error {
	raw, err := timer.SyscallConn()
	if err != nil {
		return err
	}
	at := unix.ItimerSpec{Value: unix.Timespec{Sec: never}}
	var refused error
	err = raw.Control(func(fd uintptr) {
		refused = unix.TimerfdSettime(int(fd), unix.TFD_TIMER_ABSTIME|unix.TFD_TIMER_CANCEL_ON_SET, &at, nil)
	})
	if errors.Is(refused, unix.ECANCELED) {
		refused = nil // it is armed, and the clock was set once more
	}
	return errors.Join(err, refused)
}

// clocks are how far they are apart.
type clocks struct{ wall, slept time.Duration }

func now() clocks {
	read := func(clock int32) time.Duration {
		var ts unix.Timespec
		_ = unix.ClockGettime(clock, &ts) // they are always there
		return time.Duration(ts.Nano())
	}
	boot := read(unix.CLOCK_BOOTTIME)
	return clocks{wall: read(unix.CLOCK_REALTIME) - boot, slept: boot - read(unix.CLOCK_MONOTONIC)}
}
