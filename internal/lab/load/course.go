package load

import (
	"context"
	"math"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// course gathers what was recorded, interval by interval.
type course struct {
	run       *run
	intervals []kept
	total     *cell // of all that was collected
}

// kept is an interval with what is needed to correct it at the end.
type kept struct {
	Interval
	raw, latency, connect *hdrhistogram.PackedHistogram
}

func newCourse(r *run) *course { return &course{run: r, total: r.options.newCell()} }

// follow collects every interval when it has ended, and reports it.
func (c *course) follow(ctx context.Context) {
	o := c.run.options
	for n := 0; ; n++ {
		end := time.Duration(n+1) * o.Every
		if end > o.For {
			return
		}
		t := time.NewTimer(end - c.run.since())
		select {
		case <-t.C:
		case <-ctx.Done():
			t.Stop()
			// The last interval may end with the time.
			if c.run.since() < end {
				return
			}
		}
		c.collect(n)
		c.at(n).Open = int(c.run.open.Load())
		if o.Progress != nil {
			k := c.at(n)
			k.percentiles(c.expected())
			o.Progress(Tick{Interval: k.Interval, Done: math.Min(1, float64(end)/float64(o.For))})
		}
	}
}

// at is an interval, made when it was not there.
func (c *course) at(n int) *kept {
	every := c.run.options.Every
	for len(c.intervals) <= n {
		from := time.Duration(len(c.intervals)) * every
		c.intervals = append(c.intervals, kept{Interval: Interval{From: from, To: from + every, Errors: map[Kind]uint64{}}})
	}
	return &c.intervals[n]
}

// collect takes over what was recorded of intervals up to one.
func (c *course) collect(upTo int) {
	c.run.recorder.collect(upTo, func(n int, from *cell) {
		c.total.merge(from)
		if n != late {
			c.at(n).merge(from)
		}
	})
}

func (k *kept) merge(from *cell) {
	k.Answered += from.answered
	k.Sent += from.sent
	k.Received += from.received
	for kind, n := range from.errors {
		k.Errors[kind] += n
	}
	mergePacked(&k.raw, from.raw)
	mergePacked(&k.connect, from.connect)
	if from.latency != from.raw {
		mergePacked(&k.latency, from.latency)
	}
}

func mergePacked(into **hdrhistogram.PackedHistogram, from *hdrhistogram.Histogram) {
	switch {
	case *into == nil:
		*into = packed(from)
	case from.TotalCount() > 0:
		(*into).MergeFrom(from)
	}
}

// expected is the interval that a closed loop is corrected with, from what was
// collected so far; 0 in an open loop.
func (c *course) expected() time.Duration {
	if c.run.schedule != nil || c.total.raw.TotalCount() == 0 {
		return 0
	}
	return time.Duration(c.total.raw.ValueAtPercentile(50))
}

// percentiles computes those of an interval; expected is 0 in an open loop.
func (k *kept) percentiles(expected time.Duration) {
	unpack := func(p *hdrhistogram.PackedHistogram) Percentiles {
		if p == nil {
			return Percentiles{}
		}
		return PercentilesOf(corrected(p, 0))
	}
	k.Raw, k.Connect = unpack(k.raw), unpack(k.connect)
	switch {
	case k.latency != nil:
		k.Latency = unpack(k.latency)
	case k.raw != nil:
		k.Latency = PercentilesOf(corrected(k.raw, expected))
	}
}

// result computes what is known when all has ended.
func (c *course) result(took time.Duration, unsent []time.Duration, stillOpen int) *Result {
	o := c.run.options
	c.collect(int(^uint(0) >> 1))
	r := &Result{
		Options: *o, Address: c.run.address.String(), Start: c.run.began, Took: took,
		Answered: c.total.answered, Errors: c.total.errors, Statuses: c.total.statuses,
		Sent: c.total.sent, Received: c.total.received,
		Unsent: uint64(len(unsent)), Cut: c.total.cut,
		Raw: c.total.raw, Connect: c.total.connect, Handshake: c.total.shake, Lateness: c.total.lateness,
		Expected: c.expected(), Correction: ByInterval,
	}
	for _, intended := range unsent {
		record(c.total.waited, took-intended)
	}
	// What waited no longer than most took says nothing.
	waited := dense(o.span())
	median := c.total.latency.ValueAtPercentile(50)
	for _, bar := range c.total.waited.Distribution() {
		if bar.Count > 0 && bar.From > median {
			_ = waited.RecordValues(bar.From, bar.Count)
		}
	}
	if c.run.schedule != nil {
		r.Correction = FromIntended
		r.Latency = c.total.latency
		r.Latency.Merge(waited)
	} else {
		all := packed(c.total.raw)
		all.MergeFrom(waited)
		r.Latency = corrected(all, r.Expected)
	}
	c.finish(r, stillOpen)
	return r
}

// finish cuts the intervals to the time and computes their percentiles.
func (c *course) finish(r *Result, stillOpen int) {
	every := r.Options.Every
	inTime := uint64(0)
	for n := 0; time.Duration(n)*every < r.Took; n++ {
		k := c.at(n)
		if k.To >= r.Took {
			k.To, k.Open = r.Took, stillOpen
		}
		k.percentiles(r.Expected)
		r.Intervals = append(r.Intervals, k.Interval)
		inTime += k.Answered
	}
	r.Late = r.Answered - inTime
}
