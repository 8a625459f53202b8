package load

import (
	"context"
	"runtime"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// schedule gives the requests of an open loop out, in turn: the next connection
// that is free takes the next request, waits until its intended start, or starts
// at once where that is over.
type schedule struct {
	rate  float64
	total int64 // requests in the whole time
	since func() time.Duration

	mu       sync.Mutex
	next     int64 // to be taken
	released int64 // their intended start is over
	stopped  bool
	// waiting has the connection that took request i and waits for its start at i
	// modulo the number of connections: those that were taken before their start
	// follow one another, and are no more than there are connections.
	waiting []chan struct{}
}

func newSchedule(o *Options, since func() time.Duration) *schedule {
	s := &schedule{rate: o.Rate, since: since, waiting: make([]chan struct{}, o.Connections)}
	for s.total = int64(o.For.Seconds() * o.Rate); s.intended(s.total) < o.For; {
		s.total++
	}
	if most := o.Requests; most > 0 && most < uint64(s.total) {
		s.total = int64(most)
	}
	return s
}

// intended start of a request.
func (s *schedule) intended(i int64) time.Duration {
	return time.Duration(float64(i) / s.rate * float64(time.Second))
}

// take waits for the start of the next request. Woken says that it had to wait;
// ok is false when there are no more.
func (s *schedule) take(wake chan struct{}) (intended time.Duration, woken, ok bool) {
	s.mu.Lock()
	if s.stopped || s.next >= s.total {
		s.mu.Unlock()
		return 0, false, false
	}
	i := s.next
	s.next++
	if i < s.released {
		s.mu.Unlock()
		return s.intended(i), false, true
	}
	s.waiting[i%int64(len(s.waiting))] = wake
	s.mu.Unlock()
	<-wake
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.intended(i), true, i < s.released
}

// release wakes the connections that wait for a start which is over, and returns
// the next one to come; ok is false when there is none.
func (s *schedule) release() (next time.Duration, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.since()
	for s.released < s.total && s.intended(s.released) <= now {
		slot := &s.waiting[s.released%int64(len(s.waiting))]
		s.released++
		if *slot != nil {
			*slot <- struct{}{}
			*slot = nil
		}
	}
	return s.intended(s.released), s.released < s.total
}

// stop wakes all that wait for a start to come. It returns the intended starts of
// requests that were never taken.
func (s *schedule) stop() (unsent []time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stopped = true
	for i, wake := range s.waiting {
		if wake != nil {
			wake <- struct{}{}
			s.waiting[i] = nil
		}
	}
	for i := s.next; i < s.released; i++ {
		unsent = append(unsent, s.intended(i))
	}
	return unsent
}

const (
	shortestSleep = 100 * time.Microsecond // what is due within it is released together
	longestSleep  = 50 * time.Millisecond  // so that an interruption is seen
)

// pace releases requests when they are due, until there are none or the context
// ends.
func (s *schedule) pace(ctx context.Context, sleep func(time.Duration)) {
	for ctx.Err() == nil {
		next, more := s.release()
		if !more {
			return
		}
		sleep(min(max(next-s.since(), shortestSleep), longestSleep))
	}
}

// ownThread prepares the pacer's sleep: the runtime's timers fire at whole
// milliseconds when nothing else goes on (epoll_wait), the kernel's own sleep
// within microseconds. The thread ends with its goroutine.
func ownThread() {
	runtime.LockOSThread()
	_ = unix.Prctl(unix.PR_SET_TIMERSLACK, uintptr(time.Microsecond), 0, 0, 0)
}

func kernelSleep(d time.Duration) {
	t := unix.NsecToTimespec(int64(d))
	_ = unix.ClockNanosleep(unix.CLOCK_MONOTONIC, 0, &t, nil)
}
