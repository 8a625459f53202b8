package stats

import (
	"fmt"
	"math"
	"slices"

	"github.com/aclements/go-moremath/stats"
)

// Series has one figure a round. Operations on several take the figures of the
// same round together, so that what slows the machine for a while slows both.
type Series []float64

// Estimate is a median with the bounds of its 95 % confidence interval.
type Estimate struct {
	Median float64 `json:"median"`
	Low    float64 `json:"low"`
	High   float64 `json:"high"`
}

func (e Estimate) String() string { return fmt.Sprintf("%.3g [%.3g, %.3g]", e.Median, e.Low, e.High) }

// Per divides, round by round.
func (s Series) Per(o Series) Series {
	return s.with(o, func(a, b float64) float64 { return a / b })
}

// Minus subtracts, round by round.
func (s Series) Minus(o Series) Series {
	return s.with(o, func(a, b float64) float64 { return a - b })
}

// Mean is the mean of several series, round by round.
func Mean(of ...Series) Series {
	sum := slices.Clone(of[0])
	for _, o := range of[1:] {
		sum = sum.with(o, func(a, b float64) float64 { return a + b })
	}
	for i := range sum {
		sum[i] /= float64(len(of))
	}
	return sum
}

func (s Series) with(o Series, f func(a, b float64) float64) Series {
	out := make(Series, min(len(s), len(o)))
	for i := range out {
		out[i] = f(s[i], o[i])
	}
	return out
}

// Estimate is the median over the rounds. Its bounds are the two rounds, counted
// from the lowest and from the highest, between which the median of what is
// measured lies with a probability of 95 %, whatever its distribution: the number
// of rounds below the median is binomial. Fewer than six rounds cannot say so;
// then the bounds are the lowest and the highest. The library's own interval
// (QuantileCI, which benchmath takes) leaves out more at one end: of eight rounds the
// highest alone.
func (s Series) Estimate() Estimate {
	if len(s) == 0 {
		return Estimate{math.NaN(), math.NaN(), math.NaN()}
	}
	sorted := slices.Sorted(slices.Values(s))
	n := len(sorted)
	k := 0 // how many rounds lie outside of the interval at each end
	for below := (stats.BinomialDist{N: n, P: 0.5}); k < (n-1)/2 && below.CDF(float64(k+1)) <= 0.025; {
		k++
	}
	return Estimate{
		Median: (sorted[(n-1)/2] + sorted[n/2]) / 2,
		Low:    sorted[k],
		High:   sorted[n-1-k],
	}
}

// Judged is a ratio beside its limit.
type Judged struct {
	Ratio Estimate
	Limit float64
	// Same is the ratio of a variant to itself, measured in the same rounds: an A/A
	// run. What it differs from 1 is the error of the method.
	Same Estimate

	off float64 // how far Same is from 1, see differs
}

// Judge compares a ratio with the most that it may be.
func Judge(ratio, same Series, limit float64) Judged {
	return Judged{Ratio: ratio.Estimate(), Limit: limit, Same: same.Estimate(), off: same.differs()}
}

// leastBounds is how many rounds it takes for bounds of 95 %.
const leastBounds = 6

// differs is how far an A/A run is from 1: by the farther of its bounds, since one that
// is 0.9 in this round and 1.1 in the next shows a machine on which nothing of a few per
// cent can be told, however near to 1 its median is. Too few rounds for bounds have the
// lowest and the highest in their place, which one stray round is; there it is the
// median.
func (s Series) differs() float64 {
	e := s.Estimate()
	if len(s) < leastBounds {
		return math.Abs(e.Median - 1)
	}
	return max(math.Abs(e.Low-1), math.Abs(e.High-1))
}

// Reached reports whether the upper bound of the ratio is within the limit, and
// the A/A run, scaled to the ratio, differs from 1 by less than half of what the
// ratio is away from the limit. Where the limit is that of a part more ("within
// 5 %"), the A/A run also differs by less than half of that part.
func (j Judged) Reached() bool {
	return j.Ratio.High <= j.Limit &&
		j.off*j.Ratio.Median < (j.Limit-j.Ratio.Median)/2 &&
		(j.Limit <= 1 || j.off < (j.Limit-1)/2)
}
