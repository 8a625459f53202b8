package calibrate

import (
	"testing"

	"sluice/internal/backend/nftables"
	"sluice/internal/measure"
)

func TestMeasure(t *testing.T) {
	measure.Require(t)
	m, err := Measure(t.Context(), Options{Rounds: 3, Loads: 1, Say: t.Logf})
	if err != nil {
		t.Fatal(err)
	}
	d := nftables.DefaultCosts()
	for _, c := range nftables.Constants() {
		t.Logf("%-40s %12.6g  default %12.6g  %v", c.Name, c.Of(&m.Costs), c.Of(&d), m.Series[c.Name].Estimate())
	}
	t.Log(m.Noise)
}
