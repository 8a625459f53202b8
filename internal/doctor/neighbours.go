package doctor

import (
	"fmt"

	"sluice/internal/base/english"
	"sluice/internal/prove/check"
)

var neighboursFull = Check{
	ID:    "neighbours",
	What:  "the neighbour table (ARP, NDP) is full",
	Least: check.Error,
	Why: `The kernel keeps the link-layer addresses of at most gc_thresh3 neighbours, in all network
namespaces together. A host with many machines or containers around it needs more. Packets to
any other neighbour are dropped.`,
	Fix:     "Raise net.ipv4.neigh.default.gc_thresh1 to gc_thresh3, and the same for IPv6.",
	Undo:    "Write the settings back.",
	Fixable: true,
	look: func(s *Seen, say func(Finding)) {
		n := s.Moved[neighboursRefused]
		if n == 0 {
			return
		}
		f := Finding{
			Text:     "the neighbour table is full",
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
