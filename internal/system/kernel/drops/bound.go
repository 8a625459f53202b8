package drops

import (
	"fmt"
	"time"
)

// A tracepoint that calls a program costs a packet some 50 ns, whatever the program does, and
// dropping it may cost 500. From Flood packets a second on that is worth to be saved.
const (
	Flood     = 50_000
	calmTime  = time.Second // between two looks where there is none
	floodTime = 100 * time.Millisecond
	restTime  = 4 * floodTime // for which the program is off the tracepoint then
)

// Bound takes the program off the tracepoint for four fifths of the time while Flood packets a
// second, or more, are dropped, until the watcher is closed. What is dropped meanwhile is
// reckoned by what was before: a flood is so, and of what is rare a fifth is seen. What fails
// is told by Read.
func (w *Watcher) Bound() {
	w.bounding.Lock()
	defer w.bounding.Unlock()
	begun := time.Now()
	before, err := w.counted()
	for window := calmTime; err == nil && w.wait(window); {
		var now map[Place]uint64
		if now, err = w.counted(); err != nil {
			break
		}
		seen, delta := time.Since(begun), map[Place]uint64{}
		sum := uint64(0)
		for p, n := range now {
			if n -= before[p]; n > 0 {
				delta[p] = n
				sum += n
			}
		}
		window = calmTime
		if float64(sum) >= w.flood*seen.Seconds() {
			window = floodTime
			if err = w.rest(delta, seen); err != nil {
				break
			}
		}
		begun = time.Now()
		before, err = w.counted()
	}
	w.mutex.Lock()
	defer w.mutex.Unlock()
	w.failed = err
}

// rest takes the program off for a while, in which as much is dropped as in the time before.
func (w *Watcher) rest(delta map[Place]uint64, seen time.Duration) error {
	begun := time.Now()
	_ = w.attached.Close()
	w.attached = nil
	on := w.wait(restTime)
	if on {
		if err := w.attach(); err != nil {
			return fmt.Errorf("watch dropped packets: %w", err)
		}
	}
	ratio := time.Since(begun).Seconds() / seen.Seconds()
	w.mutex.Lock()
	defer w.mutex.Unlock()
	if w.reckoned == nil {
		w.reckoned = map[Place]uint64{}
	}
	for p, n := range delta {
		w.reckoned[p] += uint64(ratio * float64(n))
	}
	return nil
}

// wait says whether the watcher is open still.
func (w *Watcher) wait(d time.Duration) bool {
	select {
	case <-w.closing:
		return false
	case <-time.After(d):
		return true
	}
}
