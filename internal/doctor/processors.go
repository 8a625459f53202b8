package doctor

import (
	"fmt"

	"sluice/internal/base/english"
	"sluice/internal/prove/check"
)

// judgedSeconds is how long a window is at least before shares of a processor's time, which
// is counted in units of 10 ms, are judged.
const judgedSeconds = 0.5

var oneProcessor = Check{
	ID:    "one-processor",
	What:  "one processor receives nearly all packets and has no time left",
	Least: check.Warning,
	Why: `Packets are worked off by the processor that the card interrupts: rules, connection
tracking and routing with them. With one queue all of that is one processor's, whose time is
the host's limit while others idle. Said where one spends eight tenths of its time in softirq,
and another less than a third.`,
	Mend: "More queues (ethtool -L), or RPS, by which a processor hands packets on; cheaper rules.",
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
			Mend:     []string{"ethtool -l DEVICE, then ethtool -L DEVICE combined NUMBER", "for each queue: echo MASK > /sys/class/net/DEVICE/queues/rx-N/rps_cpus"},
			Undo:     []string{"for each queue: echo 0 > /sys/class/net/DEVICE/queues/rx-N/rps_cpus"},
		})
	},
}

var stolen = Check{
	ID:    "stolen",
	What:  "the hypervisor gives the time of this machine's processors to others",
	Least: check.Warning,
	Why: `A virtual machine that wants to run and may not waits, and its packets with it. That
looks like a slow firewall from inside. Said from a twentieth of all time on.`,
	Mend: "Ask who runs the hypervisor, or take a machine with processors of its own.",
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

var logBusy = Check{
	ID:    "log-busy",
	What:  "writing the log takes a large part of a processor",
	Least: check.Warning,
	Why: `A rule that logs each packet makes the kernel, journald and rsyslog work for each of
them, and so do access logs: under an attack more than the attack itself. Said where a program
that writes logs takes a tenth of a processor.`,
	Mend: `A limit before each rule that logs (limit rate 5/minute), or a netlink log group in
place of the kernel's log: "log: netlink" in a policy of Sluice.`,
	Undo: "Take the limit away.",
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
			Mend:     []string{"journalctl -n 50   # what is written"},
		}
		if s.Log.Packets > 0 {
			f.Evidence = append(f.Evidence, found("the kernel's log (dmesg)", "%s of %s are packets that rules logged", english.Grouped(s.Log.Packets), english.Plural(s.Log.Lines, "line")))
			f.Mend = append(f.Mend, "a limit before each rule that logs")
		}
		say(f)
	},
}
