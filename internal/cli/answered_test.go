package cli

import (
	"bytes"
	"strings"
	"testing"

	"sluice/internal/engine"
	"sluice/internal/engine/apply"
)

// An answer is for the policy that was asked about: once, "no" took back what
// another command had confirmed meanwhile.
func TestAnswerAfterSomebodyElses(t *testing.T) {
	for _, answer := range []string{"n", "y", ""} {
		var out bytes.Buffer
		h := &engine.Host{Host: &apply.Host{Dir: t.TempDir()}}
		if err := answered(&out, h, policyTrial(h, &apply.Outcome{Pending: &apply.Pending{Token: "asked"}}), answer); err != nil {
			t.Errorf("%q: %v", answer, err)
		}
		if !strings.Contains(out.String(), "too late to answer") {
			t.Errorf("%q: %s", answer, out.String())
		}
	}
}
