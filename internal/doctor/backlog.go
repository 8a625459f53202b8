package doctor

import (
	"fmt"

	"sluice/internal/base/english"
	"sluice/internal/prove/check"
)

var backlogFull = Check{
	ID:    "backlog",
	What:  "received packets are dropped because a processor's queue is full",
	Least: check.Error,
	Why: `Packets of devices without NAPI of their own (veth, tunnels), and those that RPS spreads, wait
in a queue of 1,000 packets per processor. The counters are those of the machine, all network
namespaces together. If a processor stops with packets left (squeezed), nothing is lost yet:
that is a remark if it happens 100 times a second.`,
	Fix: `For bursts, a longer queue (net.core.netdev_max_backlog). For a steady load, more processors
(RPS) or cheaper rules.`,
	Undo:    "Write the setting back.",
	Fixable: true,
	look: func(s *Seen, say func(Finding)) {
		var lost, squeezed uint64
		var where []Evidence
		for _, p := range s.Processors {
			lost += p.Dropped
			squeezed += p.Squeezed
			if p.Dropped+p.Squeezed > 0 {
				where = append(where, found("/proc/net/softnet_stat", "processor %d: %s dropped, stopped with packets left %s times, of %s packets", p.Number, english.Grouped(p.Dropped), english.Grouped(p.Squeezed), english.Grouped(p.Received)))
			}
		}
		const squeezedOften = 100 // a second
		f := Finding{Evidence: where}
		setting, larger := "net.core.netdev_max_backlog", uint64(10000)
		switch {
		case lost > 0:
			f.Text = fmt.Sprintf("%s were dropped at the receive queues of processors", english.Plural(lost, "packet"))
			f.Cost = fmt.Sprintf("%.0f packets a second", s.second(lost))
		case s.second(squeezed) >= squeezedOften:
			f.Severity = check.Remark
			f.Text = fmt.Sprintf("processors stopped receiving with packets left %.0f times a second", s.second(squeezed))
			setting, larger = "net.core.netdev_budget", 600
		default:
			return
		}
		if now := s.number(setting); now > 0 && now < larger {
			f.Evidence = append(f.Evidence, found("sysctl "+setting, "%d", now))
			f.set("", s.to(setting, larger))
		}
		say(f)
	},
}
