package cli

import (
	"bytes"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"sluice/internal/engine"
	"sluice/internal/engine/apply"
)

// An answer is for the policy that was asked about: once, "no" took back what
// another command had confirmed meanwhile.
func TestAnswerAfterSomebodyElses(t *testing.T) {
	for _, answer := range []string{"n", "y", ""} {
		cmd := &cobra.Command{}
		var out bytes.Buffer
		cmd.SetOut(&out)
		h := &engine.Host{Host: &apply.Host{Dir: t.TempDir()}}
		if err := answered(cmd, h, &apply.Pending{Token: "asked"}, answer); err != nil {
			t.Errorf("%q: %v", answer, err)
		}
		if !strings.Contains(out.String(), "nothing to answer any more") {
			t.Errorf("%q: %s", answer, out.String())
		}
	}
}
