package doctor

import (
	"fmt"

	"sluice/internal/base/english"
	"sluice/internal/prove/check"
)

var reversePath = Check{
	ID:    "reverse-path",
	What:  "packets are dropped because answers to them would leave by another interface",
	Least: check.Warning,
	Why: `With rp_filter the kernel drops a packet if the route to its source is another interface than
the one it came in by: forged packets, but also those of a host with two uplinks. No rule sees
such a packet, and no log shows it.`,
	Fix: `If both paths are right: rp_filter=2 on these interfaces, which accepts a source with any route
back. If the packets are forged: nothing.`,
	Undo:   "Write the setting back.",
	ByHand: "a counter does not show whether both paths are right or the packets are forged",
	look: func(s *Seen, say func(Finding)) {
		n := s.Moved["TcpExt.IPReversePathFilter"]
		if n == 0 {
			return
		}
		f := Finding{
			Text:     fmt.Sprintf("rp_filter dropped %s", english.Plural(n, "packet")),
			Evidence: []Evidence{found("TcpExt IPReversePathFilter (nstat)", "%s in the window, %s since the namespace was made", english.Grouped(n), english.Grouped(s.Total["TcpExt.IPReversePathFilter"]))},
			Cost:     fmt.Sprintf("%.1f packets a second", s.second(n)),
			Fix:      []string{"sysctl -w net.ipv4.conf.all.log_martians=1   # the kernel's log then shows which; write 0 afterwards"},
		}
		for _, name := range []string{"all", "default"} {
			f.Evidence = append(f.Evidence, found("sysctl net.ipv4.conf."+name+".rp_filter", "%s", s.setting("net.ipv4.conf."+name+".rp_filter")))
		}
		if s.setting("net.ipv4.conf.all.rp_filter") == "1" {
			f.Fix = append(f.Fix, "sysctl -w net.ipv4.conf.all.rp_filter=2   # if both paths are right")
			f.Undo = append(f.Undo, "sysctl -w net.ipv4.conf.all.rp_filter=1")
		}
		say(f)
	},
}
