package doctor

import (
	"fmt"

	"sluice/internal/base/english"
	"sluice/internal/prove/check"
)

var logBusy = Check{
	ID:    "log-busy",
	What:  "writing logs uses a large part of a processor",
	Least: check.Warning,
	Why: `A rule that logs each packet makes work for the kernel, journald and rsyslog, and so do access
logs: under an attack, more than the attack itself. Reported if a program that writes logs uses
a tenth of a processor.`,
	Fix: `Put a limit before each rule that logs (limit rate 5/minute), or log to a netlink group instead
of the kernel's log: "log: netlink" in a policy of Sluice.`,
	Undo: "Remove the limit.",
	look: func(s *Seen, say func(Finding)) {
		var share float64
		var who []Evidence
		for _, p := range s.Loggers {
			share += p.Share
			who = append(who, found(fmt.Sprintf("/proc/%d/stat", p.PID), "%s: %.0f %% of a processor", p.Name, 100*p.Share))
		}
		if share < 0.1 || s.Window.Seconds() < judgedSeconds {
			return
		}
		f := Finding{
			Text:     fmt.Sprintf("programs that write logs take %.0f %% of a processor", 100*share),
			Evidence: who,
			Cost:     fmt.Sprintf("%.2f processors", share),
			Fix:      []string{"journalctl -n 50   # what is logged"},
		}
		if s.Log.Packets > 0 {
			f.Evidence = append(f.Evidence, found("the kernel's log (dmesg)", "%s of %s are packets logged by rules", english.Grouped(s.Log.Packets), english.Plural(s.Log.Lines, "line")))
			f.Fix = append(f.Fix, "a limit before each rule that logs")
		}
		say(f)
	},
}
