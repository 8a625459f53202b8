package load

import (
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// Result is what a load has found.
type Result struct {
	Options Options   // with what was left out filled in
	Address string    // that was asked, with port
	Start   time.Time // second 0 of all intervals
	// Took is the time in which requests were started: Options.For, or less when
	// Interrupted.
	Took        time.Duration
	Interrupted bool // the context ended first

	// Intervals follow one another from the start. Requests that ended after Took
	// are in none of them, but in the totals below.
	Intervals []Interval

	Answered       uint64          // in time and after
	Late           uint64          // of them, after Took
	Errors         map[Kind]uint64 // of all
	Statuses       map[int]uint64  // of whole responses, by HTTP status
	Sent, Received uint64          // bytes of HTTP, without what TLS adds
	// Unsent are requests that the schedule wanted and for which no connection was
	// free before the end, Cut those under way when the load was interrupted. What
	// they waited is in Latency where it is more than the median: how long they
	// would have taken is not known, but at least that.
	Unsent, Cut uint64

	// Latency is corrected for coordinated omission as Correction says, Raw is as
	// measured from the sending. Values of all histograms are ns.
	Latency, Raw *hdrhistogram.Histogram
	Correction   Correction
	// Expected is the interval that a closed loop was corrected with: the median of
	// Raw, which is what a connection takes from one request to the next.
	Expected  time.Duration
	Connect   *hdrhistogram.Histogram // of TCP, of connections that were opened
	Handshake *hdrhistogram.Histogram // of TLS
	// Lateness is by how much the pacer itself woke connections after the intended
	// start in an open loop: the error of this tool.
	Lateness *hdrhistogram.Histogram

	// Processor is the time that this process spent, in user and kernel mode. That
	// of everything else it did meanwhile is in it.
	Processor time.Duration
}

// Interval is a part of the time.
type Interval struct {
	From, To       time.Duration // since the start
	Answered       uint64        // requests that ended in it
	Errors         map[Kind]uint64
	Sent, Received uint64      // bytes
	Latency, Raw   Percentiles // see Result
	Connect        Percentiles
	Open           int // connections open at its end
}

// Rate is answered requests per second.
func (i Interval) Rate() float64 { return perSecond(i.Answered, i.To-i.From) }

// Failed is errors of all kinds.
func (i Interval) Failed() uint64 { return sum(i.Errors) }

// Rate is answered requests per second, over the time in which they were started.
func (r *Result) Rate() float64 { return perSecond(r.Answered-r.Late, r.Took) }

// Percentiles of a histogram.
type Percentiles struct {
	Count                    int64
	P50, P90, P99, P999, Max time.Duration
}

// Correction says how latencies were corrected for coordinated omission.
type Correction string

// The ways of correction.
const (
	// FromIntended measures from when the schedule wanted the request to start.
	FromIntended Correction = "measured from the intended start"
	// ByInterval adds what would have started while a request took several expected
	// intervals.
	ByInterval Correction = "corrected with the expected interval"
)

func perSecond(n uint64, in time.Duration) float64 {
	if in <= 0 {
		return 0
	}
	return float64(n) / in.Seconds()
}

func sum(counts map[Kind]uint64) (n uint64) {
	for _, c := range counts {
		n += c
	}
	return n
}
