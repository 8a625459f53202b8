package engine

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"time"

	"sluice/internal/backend"
	"sluice/internal/backend/nftables"
	"sluice/internal/backend/nftables/calibration"
	"sluice/internal/base/regular"
	"sluice/internal/engine/apply"
	"sluice/internal/prove/estimate"
	"sluice/internal/system/host"
)

// Costs is by which figures layouts are chosen and packets are priced.
type Costs struct {
	Measured  *calibration.Calibration // nil: by the figures that come with Sluice
	Ignored   string                   // why what was measured is not used
	Elsewhere bool                     // for another host than this one
}

// CostsOf are those of this host. What was measured is never needed: where it cannot be
// used, the figures that come with Sluice are. Words is the text of an error; nil: its own.
func CostsOf(state string, words func(error) string) Costs {
	ignored := func(r apply.Remedy, format string, args ...any) Costs {
		return Costs{Ignored: wordsOf(&apply.RemedyError{Err: fmt.Errorf(format, args...), Remedy: r}, words)}
	}
	const damaged = "what was measured on this machine is damaged, so the figures that come with Sluice are taken: %w"
	c, err := calibration.Load(state)
	var other *calibration.OtherVersionError
	var bad *calibration.DamagedError
	switch {
	case errors.As(err, &other):
		return ignored(apply.MeasureAnew, "the calibration is of another version of sluice (%s, this one reads %s) and is not used, the figures that come with Sluice are", other.Schema, calibration.Schema)
	case errors.Is(err, fs.ErrPermission):
		return Costs{Ignored: fmt.Sprintf("what was measured on this machine cannot be read, so the figures that come with Sluice are taken: %v", err)}
	case errors.As(err, &bad):
		return ignored(apply.MeasureAnewOrForget, damaged, err)
	case regular.Unfit(err):
		return ignored(apply.ReplaceMeasured, damaged, err)
	case err != nil:
		return Costs{Ignored: fmt.Errorf(damaged, err).Error()}
	case c == nil:
		return Costs{}
	}
	if why := c.Unfit(host.ThisMachine()); why != "" {
		return ignored(apply.MeasureAnew, "the calibration of %s is not used, the figures that come with Sluice are: %s", c.Day(), why)
	}
	return Costs{Measured: c}
}

// Options give the figures to the backend.
func (c Costs) Options() []nftables.Option {
	if c.Measured == nil {
		return nil
	}
	return []nftables.Option{nftables.Costs(c.Measured.Costs)}
}

// sum tells figures from others, for what is the same as long as they are.
func (c Costs) sum() string {
	model := nftables.DefaultCosts()
	if c.Measured != nil {
		model = c.Measured.Costs
	}
	text, _ := json.Marshal(model) // numbers alone
	return string(text)
}

// CostsView says by which figures something was estimated.
type CostsView struct {
	Figures  string    `json:"figures"` // "measured" or "default"
	Measured time.Time `json:"measured,omitzero"`
	Warnings []string  `json:"warnings,omitempty"` // why what was measured should not be trusted
	Ignored  string    `json:"ignored,omitempty"`  // why what was measured is not used
}

// View is the costs as results have them.
func (c Costs) View() CostsView {
	if c.Measured == nil {
		return CostsView{Figures: "default", Ignored: c.Ignored}
	}
	return CostsView{Figures: "measured", Measured: c.Measured.Measured, Warnings: c.Measured.Warnings}
}

// Price is what packets pay for the rules of a policy.
type Price struct {
	CostsView
	NS      float64         `json:"ns"` // in the mean
	Classes []estimate.Cost `json:"classes"`
}

// PriceOf estimates what packets pay, of the mix that was built; nil where the backend
// has no prices.
func PriceOf(b backend.Backend, built *Built, costs Costs) *Price {
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
