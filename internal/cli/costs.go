package cli

import (
	"fmt"
	"io"

	"sluice/internal/cli/command"
	"sluice/internal/engine"
)

// costsHelp is for the commands that say what a packet costs.
const costsHelp = `
Costs in ns and layouts use the figures that "sluice-lab bench calibrate" measured on this
machine, or built-in ones if it was not run or the kernel has changed since.`

// tellCosts says in one line why what was measured is not used.
func tellCosts(w io.Writer, c engine.Costs) {
	if c.Ignored != "" {
		fmt.Fprintf(w, "%s %s\n", command.Paint(w, "33", "note:"), c.Ignored)
	}
}
