package doctor

import (
	"fmt"

	"sluice/internal/base/english"
	"sluice/internal/prove/check"
)

var oneProcessor = Check{
	ID:    "one-processor",
	What:  "one processor receives nearly all packets and is out of time",
	Least: check.Warning,
	Why: `Packets are handled by the processor that the card interrupts: rules, connection tracking and
routing included. With one queue all of that falls on one processor, which limits the host
while others idle. Reported if one spends eight tenths of its time in softirq and another is
busy for less than a third.`,
	Fix:  "More queues (ethtool -L), RPS, which spreads packets over processors, or cheaper rules.",
	Undo: "Write 0 to rps_cpus.",
	look: func(s *Seen, say func(Finding)) {
		if s.Window.Seconds() < judgedSeconds {
			return
		}
		var most Processor
		idle := false
		for _, p := range s.Processors {
			if p.Softirq > most.Softirq {
				most = p
			}
			idle = idle || p.Busy < 1.0/3
		}
		if most.Softirq < 0.8 || !idle {
			return
		}
		say(Finding{
			Text:     fmt.Sprintf("processor %d spends %.0f %% of its time on packets, while another idles", most.Number, 100*most.Softirq),
			Evidence: []Evidence{found("/proc/stat", "processor %d: softirq %.0f %%, busy %.0f %%", most.Number, 100*most.Softirq, 100*most.Busy), found("/proc/net/softnet_stat", "it received %s packets in the window", english.Grouped(most.Received))},
			Cost:     fmt.Sprintf("%.0f packets a second are all that this host can take", s.second(most.Received)/most.Softirq),
			Fix:      []string{"ethtool -l DEVICE, then ethtool -L DEVICE combined NUMBER", "for each queue: echo MASK > /sys/class/net/DEVICE/queues/rx-N/rps_cpus"},
			Undo:     []string{"for each queue: echo 0 > /sys/class/net/DEVICE/queues/rx-N/rps_cpus"},
		})
	},
}
