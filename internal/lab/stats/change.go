package stats

import (
	"math"

	"github.com/aclements/go-moremath/stats"
)

// Alpha is the probability of calling two runs different that are not.
const Alpha = 0.05

// Change is how one run differs from another that measured the same thing. The
// runs need not have the same number of rounds.
type Change struct {
	Old, New Estimate
	// Ratio is new against old, of the medians; NaN where the old one is zero.
	Ratio float64
	// P is how likely two runs of the same thing differ as much (Mann-Whitney's U
	// test, as benchstat does it).
	P float64
	// Enough says whether the runs have so many rounds that a difference could be
	// told at all.
	Enough bool
}

// Significant reports whether the runs differ by more than chance.
func (c Change) Significant() bool { return c.Enough && c.P < Alpha }

// Compare says how two runs differ. Neither may be empty. Rounds without a number
// count for nothing. It takes each round for a measurement of its own. Where rounds resemble the one before, as seconds of one
// run may, it finds differences of a few per cent too often (resembling by 0.3, in one
// of seven pairs of equal runs instead of one in twenty); and what differed between
// two runs as a whole, it takes for the change. Runs that take turns have neither.
func Compare(old, now Series) Change {
	c := Change{Old: old.Estimate(), New: now.Estimate(), Ratio: math.NaN()}
	if c.Old.Median != 0 {
		c.Ratio = c.New.Median / c.Old.Median
	}
	c.P = 1
	if old, now = old.Numbers(), now.Numbers(); len(old) > 0 && len(now) > 0 {
		c.P = probabilityOfEqual(old, now)
		c.Enough = least(len(old), len(now)) < Alpha
	}
	return c
}

// probabilityOfEqual is how likely two series of one distribution lie as far
// apart, either way: twice the smaller tail of Mann-Whitney's U, exact for short
// series, also with ties. The two tails are asked each for itself: with ties and
// series of two lengths they differ, and the library's two-sided test doubles one
// that may be the other side's (benchmath, which calls it, too).
func probabilityOfEqual(a, b Series) float64 {
	tail := func(x, y Series) float64 {
		r, err := stats.MannWhitneyUTest(x, y, stats.LocationLess)
		if err != nil { // all values are equal
			return 1
		}
		return r.P
	}
	return min(1, 2*min(tail(a, b), tail(b, a)))
}

// Numbers are the rounds that have a number: a test that is given none of it does
// not end.
func (s Series) Numbers() Series {
	var out Series
	for _, x := range s {
		if !math.IsNaN(x) && !math.IsInf(x, 0) {
			out = append(out, x)
		}
	}
	return out
}

// least is the smallest P that two runs of so many rounds can have: every round
// of one above every round of the other, on either side. There are (n+m choose n)
// orders, all equally likely.
func least(n, m int) float64 {
	a, _ := math.Lgamma(float64(n + m + 1))
	b, _ := math.Lgamma(float64(n + 1))
	c, _ := math.Lgamma(float64(m + 1))
	return 2 / math.Exp(a-b-c)
}
