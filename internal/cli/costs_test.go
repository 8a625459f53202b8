package cli

import (
	"testing"
	"time"

	"sluice/internal/backend/nftables/calibration"
)

func TestCostsWords(t *testing.T) {
	at := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	for _, c := range []struct {
		costs costs
		want  string
	}{
		{costs{}, "by the figures that come with Sluice: `sluice-lab bench calibrate` measures this machine"},
		{costs{ignored: "another kernel"}, "by the figures that come with Sluice: `sluice-lab bench calibrate` measures this machine"},
		{costs{elsewhere: true}, "by the figures that come with Sluice"},
		{costs{measured: &calibration.Calibration{Measured: at}}, "on this machine (measured 2026-11-21)"},
		{costs{measured: &calibration.Calibration{Measured: at, Warnings: []string{"noise"}}}, "on this machine (measured 2026-11-21, when it was busy)"},
	} {
		if got := c.costs.words(); got != c.want {
			t.Errorf("%+v: %q, want %q", c.costs, got, c.want)
		}
	}
}
