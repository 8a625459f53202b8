package agent

import (
	"testing"

	"sluice/internal/agent/fleet"
	"sluice/internal/engine/apply"
)

// TestAppliedBy: what is kept at once is held to its probes, whoever was at the rules meanwhile.
func TestAppliedBy(t *testing.T) {
	for what, c := range map[string]struct {
		out  apply.Outcome
		want fleet.Applied
	}{
		"edited and looked up":     {apply.Outcome{Generation: 2, Edited: true}, fleet.Applied{Generation: 2, Edited: true, Proved: true}},
		"edited, and all was read": {apply.Outcome{Generation: 2}, fleet.Applied{Generation: 2, Edited: true}},
		"what runs already":        {apply.Outcome{Generation: 2, Unchanged: true}, fleet.Applied{Generation: 2}},
		"on trial":                 {apply.Outcome{Generation: 2, Pending: &apply.Pending{}}, fleet.Applied{Generation: 2, Pending: true}},
		"edited in a longer trial": {apply.Outcome{Generation: 2, Pending: &apply.Pending{}, Edited: true}, fleet.Applied{Generation: 2, Pending: true, Proved: true}},
	} {
		got := *appliedBy(&c.out)
		got.Until = c.want.Until
		if got != c.want {
			t.Errorf("%s: %+v", what, got)
		}
	}
}
