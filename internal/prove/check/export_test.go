package check

import (
	"sluice/internal/language/resolve"
	"sluice/internal/system/host"
)

// RunCounting is Run, and how many comparisons of boxes it made.
func RunCounting(r *resolve.Resolved, facts host.Facts) (findings []Finding, compared int) {
	c := newChecker(r, facts)
	return c.run(), c.effort.taken
}

// LintCounting is Lint, and how many comparisons of boxes it made.
func LintCounting(r *resolve.Resolved, facts host.Facts) (findings []Finding, compared int) {
	c := newChecker(r, facts)
	report := c.lint()
	return report.Findings, c.effort.taken
}
