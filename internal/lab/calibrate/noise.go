package calibrate

import (
	"fmt"
	"math"
	"strings"

	"sluice/internal/backend/nftables"
	"sluice/internal/base/english"
	"sluice/internal/lab/stats"
)

// What makes a machine too noisy to tell.
const (
	// A packet of the bare stack may differ from itself by so much: less than what a
	// lookup in the smallest set costs.
	mostSame = 15.0 // ns
	// A constant is in doubt whose bounds are further from the median than this
	// part of it, unless they are within some units.
	mostSpread = 0.4
	someNS     = 4.0
	someBytes  = 32.0
	// So many of all constants may be in doubt.
	mostDoubtful = 0.2
	// Other programs may take so much of the processors: what they do to the caches
	// slows every round alike, so that the spread does not tell.
	mostOthers = 0.2
)

// settle makes the model of the medians, and says where they are not to be trusted.
func (m *Measured) settle() {
	if e := m.Same.Estimate(); max(math.Abs(e.Low), math.Abs(e.High)) > mostSame {
		m.Noise = append(m.Noise, fmt.Sprintf("the same packet differs from itself by %.0f to %.0f ns", e.Low, e.High))
	}
	if m.Others > mostOthers {
		m.Noise = append(m.Noise, fmt.Sprintf("other programs took %.0f %% of the processors", 100*m.Others))
	}
	var doubtful, below []string
	for _, c := range nftables.Constants() {
		s, measured := m.Series[c.Name]
		if !measured {
			continue
		}
		e := s.Estimate()
		if e.Median < c.Least {
			below = append(below, c.Name)
		}
		if inDoubt(c, e) {
			doubtful = append(doubtful, c.Name)
		}
		c.Set(&m.Costs, rounded(min(max(e.Median, c.Least), c.Most)))
	}
	m.rising()
	if len(below) > 0 {
		m.Noise = append(m.Noise, fmt.Sprintf("%s costs nothing, by what was measured", strings.Join(below, ", ")))
	}
	if float64(len(doubtful)) > mostDoubtful*float64(len(m.Series)) {
		m.Noise = append(m.Noise, fmt.Sprintf("%s of %d spread by more than %.0f %%: %s",
			english.Plural(len(doubtful), "constant"), len(m.Series), 100*mostSpread, strings.Join(doubtful, ", ")))
	}
}

func inDoubt(c nftables.Constant, e stats.Estimate) bool {
	some := someNS
	if c.Unit == "bytes" {
		some = someBytes
	}
	return max(e.High-e.Median, e.Median-e.Low) > max(some, mostSpread*e.Median)
}

// rounded keeps three digits: more say nothing.
func rounded(x float64) float64 {
	if x == 0 {
		return 0
	}
	unit := math.Pow(10, math.Floor(math.Log10(x))-2)
	return math.Round(math.Round(x/unit)*unit*1000) / 1000
}

// rising makes lookups cost no less in larger sets, where noise says so: the medians
// of rounds that rise need not.
func (m *Measured) rising() {
	before := nftables.Constant{}
	for _, c := range nftables.Constants() {
		curve := strings.HasPrefix(c.Name, "lookup.interval-set.") || strings.HasPrefix(c.Name, "lookup.hash-set.")
		if curve && group(before.Name) == group(c.Name) {
			c.Set(&m.Costs, max(c.Of(&m.Costs), before.Of(&m.Costs)))
		}
		before = c
	}
}

// group is a name without its last part.
func group(name string) string { return name[:max(0, strings.LastIndexByte(name, '.'))] }
