package nftables

import (
	"strings"
	"testing"

	"sluice/internal/backend"
)

func TestMark(t *testing.T) {
	steps := []backend.Step{
		{Purpose: backend.Fill, Transaction: Script("f\n")},
		{Purpose: backend.Switch, Transaction: Script("one")},
		{Purpose: backend.Switch, Transaction: Script("two")},
		{Purpose: backend.Edit, Transaction: Script("e")},
		{Purpose: backend.Sweep, Transaction: Script("s")},
	}
	mark := backend.MarkPrefix + "7_0123456789ab"
	marked := New().Marked(steps, mark)
	for i, step := range marked {
		if has := strings.Contains(step.Text(), mark); has != (i == 2) {
			t.Errorf("step %d: %q", i, step.Text())
		}
	}
	if steps[2].Text() != "two" {
		t.Error("the steps that were given changed")
	}
	own := New().Marked([]backend.Step{steps[0], steps[3], steps[4]}, mark)
	if len(own) != 4 || own[1].Purpose != backend.Switch || !strings.Contains(own[1].Text(), mark) || own[2].Text() != "e" {
		t.Errorf("without a switch: %+v", own)
	}
	if off := New().Marked(nil, ""); len(off) != 1 || strings.Contains(off[0].Text(), "add chain") || !strings.Contains(off[0].Text(), "delete table") {
		t.Errorf("taking it away: %+v", off)
	}
}
