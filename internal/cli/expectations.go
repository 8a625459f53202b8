package cli

import (
	"sluice/internal/engine"
	"sluice/internal/prove/check"
	"sluice/internal/words"
)

// withRemedies words what findings say would fix them, and adds to expectations that
// fail which command tells more.
func withRemedies(findings []check.Finding) {
	for i := range findings {
		f := &findings[i]
		if f.Code == engine.UnmetExpectation {
			f.Hint += "; sluice test shows the packets"
		}
		f.Hint += words.PolicyRemedy(f.Remedy)
	}
}
