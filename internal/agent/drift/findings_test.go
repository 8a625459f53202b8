package drift

import (
	"testing"

	"sluice/internal/engine"
	"sluice/internal/engine/apply"
	"sluice/internal/engine/verify"
)

// What others name so that a terminal obeys it is told without that.
func TestPrintable(t *testing.T) {
	v := &engine.Verified{Verified: &apply.Verified{Proof: &apply.Proof{Proof: &verify.Proof{}}}}
	v.Attached = []engine.Beside{{Opens: true, Text: "a\x1b[2Jb\nc"}}
	for _, f := range findingsOf(v) {
		if f.Text == "a[2Jbc" {
			return
		}
	}
	t.Errorf("%q", findingsOf(v))
}
