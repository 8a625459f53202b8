package cli

import (
	"fmt"
	"io"

	"sluice/internal/cli/command"
	"sluice/internal/engine"
)

// costsHelp is for the commands that say what a packet costs.
const costsHelp = `
ns and layouts are by the figures that "sluice-lab bench calibrate" has measured on this
machine, or by default ones where it has not, or the kernel is another since.`

// tellCosts says in one line why what was measured is not used.
func tellCosts(w io.Writer, c engine.Costs) {
	if c.Ignored != "" {
		fmt.Fprintf(w, "%s %s\n", command.Paint(w, "33", "note:"), c.Ignored)
	}
}
