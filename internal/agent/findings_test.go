package agent

import (
	"strings"
	"testing"

	"sluice/internal/doctor"
	"sluice/internal/fleet/wire"
	"sluice/internal/prove/check"
)

// TestWorst: what is told of a host has room in a message, however much is wrong with it.
func TestWorst(t *testing.T) {
	var all []doctor.Finding
	for range 2 * wire.MostFindings {
		all = append(all, doctor.Finding{Check: "softirq", Severity: check.Warning, Text: strings.Repeat("é", wire.MostFindingText)})
	}
	is := worst(all)
	if _, err := wire.Encode(&wire.Message{Findings: &is}); err != nil || len(is.Findings) != wire.MostFindings || !strings.HasSuffix(is.Findings[0].Text, "é…") {
		t.Errorf("%+v %v", is, err)
	}
	if none := worst(nil); len(none.Findings) != 0 || none.Check() != nil {
		t.Errorf("%+v", none)
	}
}
