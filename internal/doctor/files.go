package doctor

import (
	"fmt"

	"sluice/internal/base/english"
	"sluice/internal/prove/check"
)

var filesFull = Check{
	ID:    "files",
	What:  "a program, or the machine, is close to its limit of open files",
	Least: check.Warning,
	Why: `A connection is an open file. At its limit a server accepts nothing more, and waits or spins.
Reported from nine tenths of the limit.`,
	Fix:    "Raise the limit: LimitNOFILE= in its unit, fs.file-max for the machine.",
	Undo:   "Remove the line and restart the program.",
	ByHand: "a program gets a higher limit only after a restart, and it may be leaking files",
	look: func(s *Seen, say func(Finding)) {
		for _, f := range s.Files.Full {
			say(Finding{
				Text:     fmt.Sprintf("%s (process %d) has %s of %s files open", f.Name, f.PID, english.Grouped(f.Open), english.Grouped(f.Most)),
				Evidence: []Evidence{found(fmt.Sprintf("/proc/%d/fd and limits", f.PID), "%s of %s", english.Grouped(f.Open), english.Grouped(f.Most))},
				Fix:      []string{fmt.Sprintf("LimitNOFILE=%d in its unit, then restart it", 4*f.Most)},
			})
		}
		if m := s.Files; m.Most > 0 && m.Open*10 >= m.Most*9 {
			say(Finding{
				Severity: check.Error,
				Text:     fmt.Sprintf("the machine has %s of %s files open", english.Grouped(m.Open), english.Grouped(m.Most)),
				Evidence: []Evidence{found("/proc/sys/fs/file-nr", "%s of %s", english.Grouped(m.Open), english.Grouped(m.Most))},
				Fix:      []string{fmt.Sprintf("sysctl -w fs.file-max=%d", 2*m.Most)},
				Undo:     []string{fmt.Sprintf("sysctl -w fs.file-max=%d", m.Most)},
			})
		}
	},
}
