package doctor

import (
	"fmt"
	"net/netip"
	"slices"

	"sluice/internal/base/english"
	"sluice/internal/prove/check"
)

var listensWide = Check{
	ID:    "listens-wide",
	What:  "a program listens on every address, although only the host itself uses it",
	Least: check.Remark,
	Why: `A program that listens on 0.0.0.0 or :: is one firewall mistake away from the internet.
Reported for programs that have connections now, all of them from loopback.`,
	Fix:  "Have it listen on 127.0.0.1 or ::1.",
	Undo: "Write the address back.",
	look: func(s *Seen, say func(Finding)) {
		for _, l := range s.Listening {
			if !l.At.Addr().IsUnspecified() || len(l.Peers) == 0 || len(l.Peers) >= mostPeers {
				continue
			}
			if slices.ContainsFunc(l.Peers, func(a netip.Addr) bool { return !a.IsLoopback() && !s.own(a) }) {
				continue
			}
			who := l.Program
			if who == "" {
				who = "a program"
			}
			say(Finding{
				Text:     fmt.Sprintf("%s listens on %s, and only the host itself connects to it", who, l.At),
				Evidence: []Evidence{found("ss -tn sport = :"+fmt.Sprint(l.At.Port()), "%s, all of them from the host's own addresses", english.Plural(len(l.Peers), "connection"))},
				Fix:      []string{fmt.Sprintf("have it listen on %s", netip.AddrPortFrom(loopbackOf(l.At.Addr()), l.At.Port()))},
			})
		}
	},
}
