package cli

import (
	"fmt"
	"strings"

	"sluice/internal/cli/command"
	"sluice/internal/engine"
	"sluice/internal/prove/check"
	"sluice/internal/prove/expect"
	"sluice/internal/words"
)

// refusedBy is why a policy is not loaded of which expectations fail.
func refusedBy(failing []expect.Result) *command.FoundError {
	var b strings.Builder
	for _, r := range failing {
		fmt.Fprintf(&b, "%s: this does not hold: %s\n", r.Expectation.Pos, r.Expectation.Text)
		fmt.Fprintln(&b, failuresText(r.Failures, "    "))
	}
	b.WriteString("nothing was changed: the policy does not do what it is expected to do\nhint: mend the rules or the expectation; --no-expect applies the policy all the same")
	return command.Found(b.String())
}

// withRemedies words what findings say would mend them, and adds to expectations that
// fail which command tells more.
func withRemedies(findings []check.Finding) {
	for i := range findings {
		f := &findings[i]
		if f.Code == engine.UnmetExpectation {
			f.Hint += "; sluice test tells more of the packets"
		}
		f.Hint += words.PolicyRemedy(f.Remedy)
	}
}
