package cli

import (
	"fmt"
	"io"
	"time"

	"sluice/internal/cli/command"
	"sluice/internal/engine"
)

// costsHelp is for the commands that say what a packet pays.
const costsHelp = `
ns and layouts are by the figures that "sluice-lab bench calibrate" has measured on this
machine, or by default ones where it has not, or the kernel is another since.`

// tellCosts says in one line why what was measured is not used.
func tellCosts(w io.Writer, c engine.Costs) {
	if c.Ignored != "" {
		fmt.Fprintf(w, "%s %s\n", command.Paint(w, "33", "note:"), c.Ignored)
	}
}

// costWords say what ns are worth.
func costWords(c engine.CostsView) string {
	switch {
	case !c.Measured.IsZero() && len(c.Warnings) > 0:
		return fmt.Sprintf("on this machine (measured %s, when it was busy)", c.Measured.Format(time.DateOnly))
	case !c.Measured.IsZero():
		return fmt.Sprintf("on this machine (measured %s)", c.Measured.Format(time.DateOnly))
	case c.Elsewhere:
		return "by the figures that come with Sluice"
	}
	return "by the figures that come with Sluice: `sluice-lab bench calibrate` measures this machine"
}
