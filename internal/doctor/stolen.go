package doctor

import (
	"fmt"

	"sluice/internal/base/english"
	"sluice/internal/prove/check"
)

var stolen = Check{
	ID:    "stolen",
	What:  "the hypervisor gives the time of this machine's processors to others",
	Least: check.Warning,
	Why: `A virtual machine that wants to run and may not waits, and its packets with it. That
looks like a slow firewall from inside. Said from a twentieth of all time on.`,
	Fix:  "Ask who runs the hypervisor, or take a machine with processors of its own.",
	Undo: "Nothing was changed.",
	look: func(s *Seen, say func(Finding)) {
		if s.Window.Seconds() < judgedSeconds || len(s.Processors) == 0 {
			return
		}
		var sum float64
		for _, p := range s.Processors {
			sum += p.Stolen
		}
		if sum /= float64(len(s.Processors)); sum < 0.05 {
			return
		}
		say(Finding{
			Text:     fmt.Sprintf("%.0f %% of this machine's time were given to others", 100*sum),
			Evidence: []Evidence{found("steal of /proc/stat", "%.1f %% of the time of %s", 100*sum, english.Plural(len(s.Processors), "processor"))},
		})
	},
}
