package doctor

import (
	"fmt"

	"sluice/internal/base/english"
	"sluice/internal/prove/check"
)

var stolen = Check{
	ID:    "stolen",
	What:  "the hypervisor gives this machine's processor time to others",
	Least: check.Warning,
	Why: `A virtual machine that is ready to run but not scheduled waits, and so do its packets. From
inside, that looks like a slow firewall. Reported from a twentieth of all time.`,
	Fix:  "Contact whoever runs the hypervisor, or use a machine with dedicated processors.",
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
			Text:     fmt.Sprintf("%.0f %% of this machine's processor time went to others", 100*sum),
			Evidence: []Evidence{found("steal of /proc/stat", "%.1f %% of the time of %s", 100*sum, english.Plural(len(s.Processors), "processor"))},
		})
	},
}
