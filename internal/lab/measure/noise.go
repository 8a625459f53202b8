package measure

import (
	"fmt"
	"math"

	"sluice/internal/lab/stats"
)

// MostNoise is how far a ratio of a thing to itself may be from 1, its bounds
// included, on a machine whose figures can be told apart.
const MostNoise = 0.05

// Noisy says of an A/A run, the ratios of a thing to itself round by round, whether
// the machine was too noisy to tell small differences, and how noisy it was.
func Noisy(same stats.Series) (string, bool) {
	if len(same) == 0 {
		return "nothing was measured against itself", true
	}
	e := same.Estimate()
	off := max(math.Abs(e.Low-1), math.Abs(e.High-1))
	text := fmt.Sprintf("the same rules against themselves: %.3f × (%.3f – %.3f)", e.Median, e.Low, e.High)
	return text, math.IsNaN(off) || off > MostNoise
}
