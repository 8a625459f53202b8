package clock_test

import (
	"context"
	"testing"
	"time"

	"sluice/internal/lab/testnet"
	"sluice/internal/system/kernel/clock"
)

func TestWatchEnds(t *testing.T) {
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- clock.Watch(ctx, func() {}) }()
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// TestWatch sets the clock, of a machine that is the test's own.
func TestWatch(t *testing.T) {
	testnet.OwnClock(t)
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	jumped := make(chan struct{}, 1000)
	go func() { _ = clock.Watch(ctx, func() { jumped <- struct{}{} }) }()
	for range 2 {
		for seen := false; !seen; { // nobody says when it listens
			testnet.SetClock(t, -12*time.Hour)
			testnet.SetClock(t, 12*time.Hour)
			select {
			case <-jumped:
				seen = true
			case <-time.After(100 * time.Millisecond):
			}
		}
	}
}
