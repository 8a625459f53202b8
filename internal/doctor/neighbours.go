package doctor

import (
	"fmt"

	"sluice/internal/base/english"
	"sluice/internal/prove/check"
)

var neighboursFull = Check{
	ID:    "neighbours",
	What:  "the table of neighbours (ARP, NDP) is full",
	Least: check.Error,
	Why: `The kernel has room for the link addresses of gc_thresh3 neighbours, of all network
namespaces together: a host of many machines or containers has more. Packets to others are
dropped.`,
	Fix:     "Higher bounds: net.ipv4.neigh.default.gc_thresh1 to 3, the same for IPv6.",
	Undo:    "Write the settings back.",
	Fixable: true,
	look: func(s *Seen, say func(Finding)) {
		n := s.Moved[neighboursRefused]
		if n == 0 {
			return
		}
		f := Finding{
			Text:     "the table of neighbours is full",
			Evidence: []Evidence{found("table_fulls of /proc/net/stat/arp_cache and ndisc_cache", "%s times in the window", english.Grouped(n))},
			Cost:     fmt.Sprintf("%.0f packets a second", s.second(n)),
		}
		for _, family := range []string{"ipv4", "ipv6"} {
			name := "net." + family + ".neigh.default.gc_thresh3"
			if now := s.number(name); now > 0 {
				f.Evidence = append(f.Evidence, found("sysctl "+name, "%d", now))
				f.set("", s.to(name, 8*now))
			}
		}
		say(f)
	},
}
