package faults

import (
	"sync"
	"time"
)

// clock is that of a host, which may be wrong, and go fast or slow.
type clock struct {
	mutex    sync.Mutex
	at, said time.Time // when it was set, and to what; zero: it is right
	gains    float64   // seconds in a second
}

func (c *clock) now() time.Time {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	now := time.Now()
	if c.at.IsZero() {
		return now
	}
	gone := now.Sub(c.at)
	return c.said.Add(gone + time.Duration(c.gains*float64(gone)))
}

// set sets it on or back, and has it gain from then on.
func (c *clock) set(by time.Duration, gains float64) {
	said := c.now().Round(0).Add(by)
	c.mutex.Lock()
	defer c.mutex.Unlock()
	c.at, c.said, c.gains = time.Now(), said, gains
}

// ahead is how far it is.
func (c *clock) ahead() time.Duration { return c.now().Sub(time.Now().Round(0)) }

// setClock has the clock of a host be wrong: by minutes, which nothing depends on, or by so
// much that nothing that is signed, no certificate among it, seems to be good.
func (h *host) setClock() {
	f := h.f
	by := f.upTo(4 * time.Minute)
	if f.chance(3) || f.bug == wallClock {
		by = 2*time.Hour + f.upTo(40*time.Hour)
	}
	if f.chance(2) {
		by = -by
	}
	h.clock.set(by, []float64{0, 0, -0.2, 0.2}[f.below(4)])
	f.history.Add(Event{Kind: Set, Host: h.id, Ahead: by})
}

// rightClock sets it right.
func (h *host) rightClock() {
	if by := -h.clock.ahead(); by != 0 {
		h.clock.set(by, 0)
		h.f.history.Add(Event{Kind: Set, Host: h.id, Ahead: by})
	}
}
