// Package stats says what repeated measurements show: medians with bounds,
// ratios of what was measured in the same rounds, whether a limit is kept, and
// whether two runs differ. Whatever measures calls it; it knows nothing of what the
// numbers are.
//
// The words:
//
//   - A [Series] has one figure a round.
//   - An [Estimate] is a median with the bounds of its 95 % confidence interval.
//   - A/A is one side of a comparison against itself, over the same rounds: what it
//     differs from 1 is the error of the method.
package stats
