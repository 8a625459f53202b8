package answers

import (
	"testing"
	"time"

	"sluice/internal/backend"
	"sluice/internal/engine"
)

func TestCostsWords(t *testing.T) {
	at := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	for _, c := range []struct {
		costs engine.Costs
		want  string
	}{
		{engine.Costs{}, "by the figures built into Sluice: `sluice-lab bench calibrate` measures this machine"},
		{engine.Costs{Ignored: "another kernel"}, "by the figures built into Sluice: `sluice-lab bench calibrate` measures this machine"},
		{engine.Costs{Elsewhere: true}, "by the figures built into Sluice"},
		{engine.Costs{Figures: backend.Figures{Measured: at}}, "on this machine (measured 2026-11-21)"},
		{engine.Costs{Figures: backend.Figures{Measured: at, Warnings: []string{"noise"}}}, "on this machine (measured 2026-11-21, when it was busy)"},
	} {
		if got := CostWords(c.costs.View()); got != c.want {
			t.Errorf("%+v: %q, want %q", c.costs, got, c.want)
		}
	}
}
