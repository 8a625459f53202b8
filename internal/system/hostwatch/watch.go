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
	Every      time.Duration // between samples; 0 means a second
	From       time.Time     // second 0 of the time axis; zero means now
	// NoDrops leaves out the packets dropped by function: no BPF program is loaded.
	NoDrops bool
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
	began     sample // before the first interval
	cancel    context.CancelFunc
	ended     chan struct{} // closed when the last sample is taken

	mu       sync.Mutex
	samples  []sample
	warnings []string
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
	if o.Every <= 0 {
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
	w.began = w.sample()
	ctx, w.cancel = context.WithCancel(ctx)
	go w.run(ctx)
	return w, nil
}

// run takes samples at whole intervals after Watch.from, and one at the end.
func (w *Watch) run(ctx context.Context) {
	defer close(w.ended)
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
			s.drops = w.lastDrops // without it the counts would seem to begin anew
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

// Stop takes the last sample and says what was seen.
func (w *Watch) Stop() Result {
	w.cancel()
	<-w.ended
	defer w.close()
	return w.result()
}

func (w *Watch) close() {
	if w.drops != nil {
		w.drops.Close()
	}
	for _, s := range w.spaces {
		s.close()
	}
}
