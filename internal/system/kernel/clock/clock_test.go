package clock_test

import (
	"context"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"sluice/internal/lab/testnet"
	"sluice/internal/system/kernel/clock"
)

// TestWatch sets the clock forward by a nanosecond, and back.
func TestWatch(t *testing.T) {
	forward := true
	set := func() {
		t.Helper()
		by := unix.Timeval{Usec: 1} // of nanoseconds
		if forward = !forward; forward {
			by = unix.Timeval{Sec: -1, Usec: 999_999_999}
		}
		if _, err := unix.Adjtimex(&unix.Timex{Modes: unix.ADJ_SETOFFSET | unix.ADJ_NANO, Time: by}); err != nil {
			testnet.Lacks(t, "a clock that may be set", err)
		}
	}
	set()
	set()
	ctx, stop := context.WithCancel(t.Context())
	jumps, ended := make(chan clock.Jump, 1000), make(chan error, 1)
	go func() { ended <- clock.Watch(ctx, func(j clock.Jump) { jumps <- j }) }()
	for seen, tries := 0, 0; seen < 4; tries++ {
		if tries == 600 {
			t.Fatal("it is not noticed")
		}
		set() // until it is seen: nobody says when it listens
		select {
		case j := <-jumps:
			if seen++; j.Set.Abs() > time.Minute || j.Slept.Abs() > time.Minute {
				t.Errorf("it jumped by %+v", j)
			}
		case err := <-ended:
			t.Fatal(err)
		case <-time.After(100 * time.Millisecond):
		}
	}
	if !forward {
		set()
	}
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}
