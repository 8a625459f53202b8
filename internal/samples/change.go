package samples

import (
	"math"

	"golang.org/x/perf/benchmath"
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

// Compare says how two runs differ. Neither may be empty.
func Compare(old, now Series) Change {
	sample := func(s Series) *benchmath.Sample {
		return benchmath.NewSample(append([]float64(nil), s...), &benchmath.Thresholds{CompareAlpha: Alpha})
	}
	c := Change{Old: old.Estimate(), New: now.Estimate(), Ratio: math.NaN()}
	if c.Old.Median != 0 {
		c.Ratio = c.New.Median / c.Old.Median
	}
	c.P = benchmath.AssumeNothing.Compare(sample(old), sample(now)).P
	c.Enough = least(len(old), len(now)) < Alpha
	return c
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
