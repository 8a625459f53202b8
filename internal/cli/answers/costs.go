package answers

import (
	"fmt"
	"time"

	"sluice/internal/engine"
)

// CostWords say what ns are worth.
func CostWords(c engine.CostsView) string {
	switch {
	case !c.Measured.IsZero() && len(c.Warnings) > 0:
		return fmt.Sprintf("on this machine (measured %s, when it was busy)", c.Measured.Format(time.DateOnly))
	case !c.Measured.IsZero():
		return fmt.Sprintf("on this machine (measured %s)", c.Measured.Format(time.DateOnly))
	case c.Elsewhere:
		return "by the figures built into Sluice"
	}
	return "by the figures built into Sluice: `sluice-lab bench calibrate` measures this machine"
}
