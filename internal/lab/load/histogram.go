package load

import (
	"math/bits"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// Histograms count ns from one microsecond, with an error of at most one in a
// thousand.
const (
	lowest = 1000
	digits = 3
	// unit is the width of the narrowest bucket, half the power of two of buckets
	// per power of two: geometry that lowest and digits give an HdrHistogram.
	unit     = 512
	halfBits = 10
)

// span is the longest time that histograms of a run hold.
func (o *Options) span() int64 {
	return int64(max(time.Minute, 2*(o.For+o.Timeout)))
}

func dense(span int64) *hdrhistogram.Histogram { return hdrhistogram.New(lowest, span, digits) }

func packed(of *hdrhistogram.Histogram) *hdrhistogram.PackedHistogram {
	p := hdrhistogram.NewPacked(lowest, of.HighestTrackableValue(), digits)
	p.MergeFrom(of)
	p.Compact()
	return p
}

// record takes a time that is out of range for the range's end.
func record(h *hdrhistogram.Histogram, took time.Duration) {
	_ = h.RecordValue(min(max(0, int64(took)), h.HighestTrackableValue()))
}

var quantiles = []float64{50, 90, 99, 99.9}

// PercentilesOf are those of a histogram of ns.
func PercentilesOf(h *hdrhistogram.Histogram) Percentiles {
	p := Percentiles{Count: h.TotalCount()}
	if p.Count == 0 {
		return p
	}
	v := h.ValueAtPercentilesSlice(quantiles)
	p.P50, p.P90, p.P99, p.P999, p.Max = time.Duration(v[0]), time.Duration(v[1]), time.Duration(v[2]), time.Duration(v[3]), time.Duration(h.Max())
	return p
}

// corrected adds to a histogram of a closed loop the requests that were not sent
// while another one took longer than expected: one that took t stands for those
// that would have started an interval later and taken t less that interval, and so
// on down to the interval (as HdrHistogram's copyCorrectedForCoordinatedOmission).
func corrected(raw *hdrhistogram.PackedHistogram, expected time.Duration) *hdrhistogram.Histogram {
	out := dense(raw.HighestTrackableValue())
	interval := int64(expected)
	for value, count := range raw.ForEachBucket {
		_ = out.RecordValues(value, count)
		if interval <= 0 {
			continue
		}
		// Those that fall into one bucket are recorded together.
		for missing := value - interval; missing >= interval; {
			bottom := max(bucketBottom(missing), interval)
			n := (missing-bottom)/interval + 1
			_ = out.RecordValues(missing, count*n)
			missing -= n * interval
		}
	}
	return out
}

// bucketBottom is the lowest value that shares a bucket with v.
func bucketBottom(v int64) int64 {
	width := int64(unit)
	if n := bits.Len64(uint64(v)) - 1 - halfBits; n > 0 {
		width = max(width, 1<<n)
	}
	return v &^ (width - 1)
}
