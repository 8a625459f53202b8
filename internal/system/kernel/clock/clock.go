// Package clock notices that the wall clock was set, and that the machine slept. Callers:
// engine/apply.
package clock

import (
	"context"
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// never is later than a timer is waited for, in seconds; the kernel's own most is 2^63 ns.
const never = 1 << 33

// Watch calls jumped whenever the wall clock was set or the machine woke up, until the
// context ends or that cannot be seen. A clock that is slewed does not jump.
func Watch(ctx context.Context, jumped func()) error {
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
	for {
		_, err := timer.Read(make([]byte, 8))
		if errors.Is(err, unix.ECANCELED) {
			err = arm(timer) // before anybody acts on it, or what comes between is lost
		}
		if err != nil {
			return failed(err)
		}
		jumped()
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
