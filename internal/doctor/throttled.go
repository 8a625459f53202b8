package doctor

import (
	"fmt"
	"path/filepath"
	"strings"
	"time"

	"sluice/internal/prove/check"
)

var throttled = Check{
	ID:    "throttled",
	What:  "a program with connections waits because its quota of processor time is used up",
	Least: check.Warning,
	Why: `A service or container with a quota (CPUQuota= of systemd, --cpus of Docker, limits.cpu of
Kubernetes) stops for the rest of each period, 100 ms by default, once it has used its share:
connections wait, queues fill, and the host looks idle. Reported for control groups with a
program that has sockets in this network namespace, from a hundredth of the window.`,
	Fix:  "A higher quota, or fewer threads, which all use the same quota.",
	Undo: "Write the quota back.",
	look: func(s *Seen, say func(Finding)) {
		for _, t := range s.Throttled {
			if t.Waited.Seconds() < waitedMuch*s.Window.Seconds() {
				continue
			}
			unit := filepath.Base(t.Folder)
			fix := "more for the control group " + clip(t.Folder)
			if strings.HasSuffix(unit, ".service") || strings.HasSuffix(unit, ".slice") || strings.HasSuffix(unit, ".scope") {
				fix = "systemctl set-property --runtime " + clip(unit) + " CPUQuota=   # none"
			}
			say(Finding{
				Text:     fmt.Sprintf("%s waited %s for processor time: it had used up its quota", t.Programs[0], t.Waited.Round(time.Millisecond)),
				Evidence: []Evidence{found("cpu.stat of "+clip(t.Folder), "%s in the window, %s on all processors together", times(t.Times), t.Waited.Round(time.Millisecond))},
				Cost:     fmt.Sprintf("%.0f %% of the window", 100*t.Waited.Seconds()/s.Window.Seconds()),
				Fix:      []string{fix},
			})
		}
	},
}

// waitedMuch is the part of the window from which waiting for a quota is told.
const waitedMuch = 0.01
