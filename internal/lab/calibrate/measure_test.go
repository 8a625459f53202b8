package calibrate

import (
	"testing"

	"sluice/internal/backend/nftables"
	"sluice/internal/lab/measure"
)

// TestMeasure holds a short run to measure every constant, and to find something that
// can be stored.
func TestMeasure(t *testing.T) {
	measure.Require(t)
	m, err := Measure(t.Context(), Options{Rounds: 2, Packets: 1 << 12, Loads: 1, Say: t.Logf})
	if err != nil {
		t.Fatal(err)
	}
	d := nftables.DefaultCosts()
	for _, c := range nftables.Constants() {
		s, measured := m.Series[c.Name]
		if !measured {
			t.Errorf("%s was not measured", c.Name)
			continue
		}
		t.Logf("%-40s %12.6g  default %12.6g  %v", c.Name, c.Of(&m.Costs), c.Of(&d), s.Estimate())
	}
	t.Log(m.Noise)
	if c, err := m.Costs.Check(); err != nil {
		t.Errorf("%s: %v", c.Name, err)
	}
}
