package engine

import (
	"math"
	"time"

	"sluice/internal/backend"
	"sluice/internal/prove/estimate"
)

// Costs is by which figures layouts are chosen and packets are priced.
type Costs struct {
	backend.Figures
	Ignored   string // why what was measured is not used, in words
	Elsewhere bool   // for another host than this one
}

// Calibrated is a backend by the figures of this host, where it has any. Words is the text
// of an error; nil: its own.
func Calibrated(b backend.Backend, state string, words func(error) string) (backend.Backend, Costs) {
	c, is := b.(backend.Calibrated)
	if !is {
		return b, Costs{}
	}
	by, figures := c.Calibrated(state)
	costs := Costs{Figures: figures}
	if figures.Unused != nil {
		costs.Ignored = wordsOf(figures.Unused, words)
	}
	return by, costs
}

// calibrated is Calibrated, and says why what was measured is not used.
func (h *Host) calibrated(b backend.Backend) (backend.Backend, Costs) {
	by, costs := Calibrated(b, h.State, h.Words)
	if costs.Ignored != "" {
		h.note(costs.Ignored)
	}
	return by, costs
}

// CostsView says by which figures something was estimated.
type CostsView struct {
	Figures  string    `json:"figures"` // "measured" or "default"
	Measured time.Time `json:"measured,omitzero"`
	Warnings []string  `json:"warnings,omitempty"` // why what was measured should not be trusted
	Ignored  string    `json:"ignored,omitempty"`  // why what was measured is not used
	// Elsewhere says that it is for another host than this one.
	Elsewhere bool `json:"elsewhere,omitempty"`
}

// View is the costs as results have them.
func (c Costs) View() CostsView {
	figures := "default"
	if !c.Measured.IsZero() {
		figures = "measured"
	}
	return CostsView{figures, c.Measured, c.Warnings, c.Ignored, c.Elsewhere}
}

// Price is what packets pay for the rules of a policy.
type Price struct {
	CostsView
	NS      float64         `json:"ns"` // in the mean
	Classes []estimate.Cost `json:"classes"`
}

// priceOf estimates what packets pay, of the mix that was built; nil where the backend
// has no prices.
func priceOf(b backend.Backend, built *Built, costs Costs) *Price {
	pricer, is := b.(backend.Pricer)
	if !is || built.Mix == nil {
		return nil
	}
	out := &Price{CostsView: costs.View(), Classes: estimate.Classes(pricer.Prices(built.Program), built.Program, built.Mix)}
	for i := range out.Classes {
		out.Classes[i].NS = math.Round(out.Classes[i].NS)
	}
	out.NS = math.Round(estimate.Mean(out.Classes))
	return out
}
