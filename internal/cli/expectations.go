package cli

import (
	"fmt"
	"strings"

	"sluice/internal/cli/command"
	"sluice/internal/engine"
	"sluice/internal/language/policy"
	"sluice/internal/prove/check"
	"sluice/internal/prove/expect"
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

// unmetExpectation is the code of findings that are expectations that fail.
const unmetExpectation check.Code = "expectation"

// asUnmet turns expectations that fail into findings.
func asUnmet(p *policy.Policy, results []expect.Result) (out []check.Finding) {
	for _, r := range engine.Unmet(results) {
		e := p.Errorf(r.Expectation.Pos, "mend the rules or the expectation; sluice test tells more of the packets", "%s", r.Unmet())
		f := check.Finding{Code: unmetExpectation, Severity: check.Error, Pos: e.Pos, Message: e.Message, Hint: e.Hint, Line: e.Line}
		for _, by := range r.Failures {
			if by.Pos.Line != 0 {
				f.Related = append(f.Related, check.Related{Pos: by.Pos, Text: by.Text})
			}
		}
		out = append(out, f)
	}
	return out
}
