package hostwatch

import (
	"context"
	"fmt"
	"sync"
	"time"

	"sluice/internal/system/kernel/drops"
	"sluice/internal/system/kernel/statistics"
)

// Options say what is watched.
type Options struct {
	// Namespaces to watch; none means the caller's own.
	Namespaces []Namespace
	Every      time.Duration // between samples; 0 means a second, less than 0 that Watch.Next takes them
	From       time.Time     // second 0 of the time axis; zero means now
	// NoDrops leaves out the packets dropped by function: no BPF program is loaded.
	NoDrops bool
	// Begun counts the connections that begin, for each of which the kernel then makes a
	// message (conntrack.Begun).
	Begun bool
}

// Namespace is a network namespace to watch.
type Namespace struct {
	Name string // what charts call it; "" where there is but one
	Path string // a file that stands for it, such as /run/netns/NAME; "" is the caller's own
}

// Watch records until it is stopped.
type Watch struct {
	every  time.Duration
	from   time.Time
	spaces []*space
	drops  *drops.Watcher // nil: not seen
	// lastDrops stand for what cannot be read any more.
	lastDrops map[drops.Place]uint64
	functions map[uint64]string // the kernel's, by the address that was in one
	began     sample            // before the first interval
	cancel    context.CancelFunc
	ended     chan struct{} // closed when the last sample is taken

	mu       sync.Mutex
	samples  []sample
	warnings []string
	standing int // warnings of the beginning
}

// sample is what one moment shows: counters since the machine was started.
type sample struct {
	at         float64 // seconds since Watch.from
	processors []statistics.Time
	spaces     []spaceSample
	drops      map[drops.Place]uint64
}

// Start begins to watch. It fails only where a namespace cannot be entered; what
// cannot be seen is among the result's warnings. The caller stops the watch, also
// after the context has ended it.
func Start(ctx context.Context, o Options) (*Watch, error) {
	if o.Every == 0 {
		o.Every = time.Second
	}
	if o.From.IsZero() {
		o.From = time.Now()
	}
	if len(o.Namespaces) == 0 {
		o.Namespaces = []Namespace{{}}
	}
	w := &Watch{every: o.Every, from: o.From, ended: make(chan struct{})}
	var numbers []uint32
	for _, n := range o.Namespaces {
		s, err := open(n)
		if err != nil {
			w.close()
			return nil, err
		}
		w.spaces = append(w.spaces, s)
		numbers = append(numbers, s.inside.Number())
	}
	if !o.NoDrops {
		var err error
		if w.drops, err = drops.Watch(numbers...); err != nil {
			w.warn("packets dropped by kernel function are not shown: %v", err)
		}
	}
	if o.Begun {
		for _, s := range w.spaces {
			s.countBegun(w.warn)
		}
	}
	w.began = w.sample()
	for i := range w.began.spaces {
		w.began.spaces[i].begun = 0 // of those that began meanwhile too
	}
	w.standing = len(w.warnings)
	ctx, w.cancel = context.WithCancel(ctx)
	go w.run(ctx)
	return w, nil
}

// run takes samples at whole intervals after Watch.from, and one at the end.
func (w *Watch) run(ctx context.Context) {
	defer close(w.ended)
	if w.every < 0 {
		<-ctx.Done()
		return
	}
	for {
		next := w.every - time.Since(w.from)%w.every
		if next <= 0 || next > w.every { // second 0 is still to come
			next = w.every
		}
		timer := time.NewTimer(next)
		select {
		case <-timer.C:
			w.take()
		case <-ctx.Done():
			timer.Stop()
			w.take()
			return
		}
	}
}

func (w *Watch) take() {
	s := w.sample()
	w.mu.Lock()
	defer w.mu.Unlock()
	w.samples = append(w.samples, s)
}

func (w *Watch) sample() sample {
	s := sample{at: time.Since(w.from).Seconds()}
	var err error
	if s.processors, err = statistics.Processors(); err != nil {
		w.warn("processors are not shown: %v", err)
	}
	for _, space := range w.spaces {
		s.spaces = append(s.spaces, space.sample(w.warn))
	}
	if w.drops != nil {
		if s.drops, err = w.drops.Read(); err != nil {
			w.warn("packets dropped by kernel function are not shown: %v", err)
			s.drops = w.lastDrops // without it the counts would seem to start again
		}
		w.lastDrops = s.drops
	}
	return s
}

// warn keeps a warning once.
func (w *Watch) warn(format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, said := range w.warnings {
		if said == text {
			return
		}
	}
	w.warnings = append(w.warnings, text)
}

// Stop takes the last sample and says what was seen, since the last Next if there was one.
func (w *Watch) Stop() Result {
	w.cancel()
	<-w.ended
	defer w.close()
	return w.result()
}

// Next takes a sample and says what was seen since the last one that it took, or since Start.
// It is for watches whose Options.Every is less than 0.
func (w *Watch) Next() Result {
	w.take()
	r := w.result()
	w.mu.Lock()
	defer w.mu.Unlock()
	w.began, w.samples, w.warnings = w.samples[len(w.samples)-1], nil, w.warnings[:w.standing]
	return r
}

func (w *Watch) close() {
	if w.drops != nil {
		w.drops.Close()
	}
	for _, s := range w.spaces {
		s.close()
	}
}
