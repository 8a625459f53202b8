package doctor

import (
	"fmt"

	"sluice/internal/base/english"
	"sluice/internal/prove/check"
)

var reversePath = Check{
	ID:    "reverse-path",
	What:  "packets are dropped since answers to them would leave by another interface",
	Least: check.Warning,
	Why: `With rp_filter the kernel drops a packet whose source it would not route back the way
that the packet came: forged ones, and those of a host with two ways to the internet. No rule
sees them any more, and no log tells of them.`,
	Fix: `Where both ways are right: rp_filter=2 on these interfaces, which asks only for any way
back. Where the packets are forged, nothing.`,
	Undo:   "Write the setting back.",
	ByHand: "whether both ways are right or the packets are forged is not seen in a counter",
	look: func(s *Seen, say func(Finding)) {
		n := s.Moved["TcpExt.IPReversePathFilter"]
		if n == 0 {
			return
		}
		f := Finding{
			Text:     fmt.Sprintf("rp_filter dropped %s", english.Plural(n, "packet")),
			Evidence: []Evidence{found("TcpExt IPReversePathFilter (nstat)", "%s in the window, %s since the namespace was made", english.Grouped(n), english.Grouped(s.Total["TcpExt.IPReversePathFilter"]))},
			Cost:     fmt.Sprintf("%.1f packets a second", s.second(n)),
			Fix:      []string{"sysctl -w net.ipv4.conf.all.log_martians=1   # the kernel's log then says which; write 0 afterwards"},
		}
		for _, name := range []string{"all", "default"} {
			f.Evidence = append(f.Evidence, found("sysctl net.ipv4.conf."+name+".rp_filter", "%s", s.setting("net.ipv4.conf."+name+".rp_filter")))
		}
		if s.setting("net.ipv4.conf.all.rp_filter") == "1" {
			f.Fix = append(f.Fix, "sysctl -w net.ipv4.conf.all.rp_filter=2   # where both ways are right")
			f.Undo = append(f.Undo, "sysctl -w net.ipv4.conf.all.rp_filter=1")
		}
		say(f)
	},
}
