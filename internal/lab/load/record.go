package load

import (
	"maps"
	"sync"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// late is the interval of what ended after the time in which requests are
// started.
const late = -1

// recorder takes what happened to requests, by the interval in which they ended.
// Connections are spread over shards, so that they do not wait for one another.
type recorder struct {
	options *Options
	shards  []shard
}

type shard struct {
	mu    sync.Mutex
	cells map[int]*cell // of intervals that were not collected yet
	spare []*cell
	_     [64]byte // no two locks in one cache line
}

// cell is what was recorded of one interval.
type cell struct {
	answered               uint64
	errors                 map[Kind]uint64
	statuses               map[int]uint64
	sent, received         uint64
	cut                    uint64
	raw, latency           *hdrhistogram.Histogram // the same one in a closed loop
	connect, shake, waited *hdrhistogram.Histogram
	lateness               *hdrhistogram.Histogram // in an open loop
}

func (o *Options) newCell() *cell {
	span := o.span()
	c := &cell{
		errors: map[Kind]uint64{}, statuses: map[int]uint64{},
		raw: dense(span), connect: dense(span), shake: dense(span), waited: dense(span),
	}
	c.latency = c.raw
	if o.Rate > 0 {
		c.latency, c.lateness = dense(span), dense(span)
	}
	return c
}

func (c *cell) histograms() []*hdrhistogram.Histogram {
	all := []*hdrhistogram.Histogram{c.raw, c.connect, c.shake, c.waited}
	if c.lateness != nil {
		all = append(all, c.latency, c.lateness)
	}
	return all
}

func (c *cell) reset() {
	c.answered, c.sent, c.received, c.cut = 0, 0, 0, 0
	clear(c.errors)
	clear(c.statuses)
	for _, h := range c.histograms() {
		if h.TotalCount() > 0 {
			h.Reset()
		}
	}
}

func (c *cell) merge(from *cell) {
	c.answered += from.answered
	c.sent += from.sent
	c.received += from.received
	c.cut += from.cut
	for k, n := range from.errors {
		c.errors[k] += n
	}
	for s, n := range from.statuses {
		c.statuses[s] += n
	}
	into := c.histograms()
	for i, h := range from.histograms() {
		if h.TotalCount() > 0 {
			into[i].Merge(h)
		}
	}
}

func newRecorder(o *Options, shards int) *recorder {
	r := &recorder{options: o, shards: make([]shard, shards)}
	for i := range r.shards {
		r.shards[i].cells = map[int]*cell{}
	}
	return r
}

// interval is that in which a moment lies.
func (o *Options) interval(at time.Duration) int {
	if at >= o.For {
		return late
	}
	return int(at / o.Every)
}

// at gives a function the cell of an interval.
func (r *recorder) at(shard, interval int, f func(*cell)) {
	s := &r.shards[shard]
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.cells[interval]
	if c == nil {
		if n := len(s.spare); n > 0 {
			c, s.spare = s.spare[n-1], s.spare[:n-1]
		} else {
			c = r.options.newCell()
		}
		s.cells[interval] = c
	}
	f(c)
}

// collect gives out what was recorded of intervals up to one, and forgets it.
func (r *recorder) collect(upTo int, each func(interval int, c *cell)) {
	for i := range r.shards {
		s := &r.shards[i]
		s.mu.Lock()
		taken := map[int]*cell{}
		maps.Copy(taken, s.cells)
		maps.DeleteFunc(taken, func(interval int, _ *cell) bool { return interval > upTo })
		for interval := range taken {
			delete(s.cells, interval)
		}
		s.mu.Unlock()
		for interval, c := range taken {
			each(interval, c)
			c.reset()
			s.mu.Lock()
			s.spare = append(s.spare, c)
			s.mu.Unlock()
		}
	}
}
