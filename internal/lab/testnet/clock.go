package testnet

import (
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// OwnClock skips a test that sets the clock of the machine, unless that was booted for it.
func OwnClock(t TB) {
	t.Helper()
	if os.Getenv("SLUICE_TEST_OWN_CLOCK") == "" {
		t.Skipf("the clock of this machine is not a test's to set: make kernels has one that is")
	}
}

// SetClock sets the wall clock forward, of a machine that was booted for it.
func SetClock(t TB, by time.Duration) {
	t.Helper()
	OwnClock(t)
	of := unix.NsecToTimeval(by.Nanoseconds())
	if _, err := unix.Adjtimex(&unix.Timex{Modes: unix.ADJ_SETOFFSET, Time: of}); err != nil {
		t.Fatalf("set the clock: %v", err)
	}
}
