package cli

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"strings"
	"time"

	"sluice/internal/backend"
	"sluice/internal/backend/nftables"
	"sluice/internal/backend/nftables/calibration"
	"sluice/internal/cli/command"
	"sluice/internal/prove/estimate"
	"sluice/internal/system/host"
)

// costsHelp is for the commands that say what a packet pays.
const costsHelp = `
ns and layouts are by the figures that "sluice-lab bench calibrate" has measured on this
machine, or by default ones where it has not, or the kernel is another since.`

// costs is by which figures a command estimates.
type costs struct {
	measured  *calibration.Calibration // nil: by the figures that come with Sluice
	ignored   string                   // why what was measured is not used
	elsewhere bool                     // the host is another than this one
}

// costs are those of this host. What was measured is never needed: where it cannot be
// used, the figures that come with Sluice are, and that is said.
func (o options) costs() costs {
	c, err := calibration.Load(o.stateDir)
	var other *calibration.OtherVersionError
	switch {
	case errors.As(err, &other):
		return costs{ignored: fmt.Sprintf("the calibration is of another version of sluice (%s, this one reads %s) and is not used, the figures that come with Sluice are; sluice-lab bench calibrate measures anew", other.Schema, calibration.Schema)}
	case errors.Is(err, fs.ErrPermission):
		return costs{ignored: fmt.Sprintf("what was measured on this machine cannot be read, so the figures that come with Sluice are taken: %v", err)}
	case err != nil: // its place in the file, and on another line the way out
		text, way, _ := strings.Cut(err.Error(), "\nhint: ")
		return costs{ignored: strings.TrimSuffix(fmt.Sprintf("what was measured on this machine is damaged, so the figures that come with Sluice are taken: %s; %s", text, way), "; ")}
	case c == nil:
		return costs{}
	}
	if why := c.Unfit(host.ThisMachine()); why != "" {
		return costs{ignored: fmt.Sprintf("the calibration of %s is not used, the figures that come with Sluice are: %s; sluice-lab bench calibrate measures anew", c.Day(), why)}
	}
	return costs{measured: c}
}

// options give the figures to the backend.
func (c costs) options() []nftables.Option {
	if c.measured == nil {
		return nil
	}
	return []nftables.Option{nftables.Costs(c.measured.Costs)}
}

// tell says in one line why what was measured is not used.
func (c costs) tell(w io.Writer) {
	if c.ignored != "" {
		fmt.Fprintf(w, "%s %s\n", command.Paint(w, "33", "note:"), c.ignored)
	}
}

// sum tells figures from others, for what is the same as long as they are.
func (c costs) sum() string {
	model := nftables.DefaultCosts()
	if c.measured != nil {
		model = c.measured.Costs
	}
	text, _ := json.Marshal(model) // numbers alone
	return string(text)
}

// words say what ns are worth.
func (c costs) words() string {
	switch {
	case c.measured != nil && len(c.measured.Warnings) > 0:
		return fmt.Sprintf("on this machine (measured %s, when it was busy)", c.measured.Day())
	case c.measured != nil:
		return fmt.Sprintf("on this machine (measured %s)", c.measured.Day())
	case c.elsewhere:
		return "by the figures that come with Sluice"
	}
	return "by the figures that come with Sluice: `sluice-lab bench calibrate` measures this machine"
}

// costsView is the same in JSON.
type costsView struct {
	Figures  string    `json:"figures"` // "measured" or "default"
	Measured time.Time `json:"measured,omitzero"`
	Warnings []string  `json:"warnings,omitempty"` // why what was measured should not be trusted
	Ignored  string    `json:"ignored,omitempty"`  // why what was measured is not used
}

func (c costs) view() costsView {
	if c.measured == nil {
		return costsView{Figures: "default", Ignored: c.ignored}
	}
	return costsView{Figures: "measured", Measured: c.measured.Measured, Warnings: c.measured.Warnings}
}

// packetCosts is what packets pay for the rules of a policy.
type packetCosts struct {
	costsView
	NS      float64         `json:"ns"` // in the mean
	Classes []estimate.Cost `json:"classes"`
}

// packetCosts estimates what packets pay, of the mix that compile has made; nil where
// the backend has no prices.
func (p *pipeline) packetCosts(b backend.Backend) *packetCosts {
	pricer, is := b.(backend.Pricer)
	if !is || p.mix == nil {
		return nil
	}
	out := &packetCosts{costsView: p.costs.view(), Classes: estimate.Classes(pricer.Prices(p.program), p.program, p.mix)}
	for i := range out.Classes {
		out.Classes[i].NS = math.Round(out.Classes[i].NS)
	}
	out.NS = math.Round(estimate.Mean(out.Classes))
	return out
}
