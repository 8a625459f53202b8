package doctor

import (
	"fmt"

	"sluice/internal/base/english"
	"sluice/internal/prove/check"
)

var synCookies = Check{
	ID:    "syn-cookies",
	What:  "the host answers with SYN cookies: more connections begin than it has room for",
	Least: check.Warning,
	Why: `When the requests for connections of a listening socket are more than its queue holds,
the kernel answers without remembering them. That is right under a flood of SYNs; without one
the queue is too short. Connections by cookie lose window scaling where there are no TCP
time stamps.`,
	Fix: `Under a flood: drop or limit it before connection tracking. Otherwise a longer queue
(net.ipv4.tcp_max_syn_backlog, net.core.somaxconn).`,
	Undo:   "Write the settings back.",
	ByHand: "under a flood the cookies are right, and without one a program takes a longer queue only when it is started anew",
	look: func(s *Seen, say func(Finding)) {
		n := s.Moved["TcpExt.SyncookiesSent"]
		if n == 0 {
			return
		}
		say(Finding{
			Text: fmt.Sprintf("%s were sent: more connections begin than the host has room for", english.Plural(n, "SYN cookie")),
			Evidence: []Evidence{
				found("TcpExt SyncookiesSent (nstat)", "%s in the window", english.Grouped(n)),
				found("TcpExt SyncookiesFailed (nstat)", "%s answers to none in the window", english.Grouped(s.Moved["TcpExt.SyncookiesFailed"])),
			},
			Cost: fmt.Sprintf("%.0f SYNs a second", s.second(n)),
			Fix:  []string{"in a policy of Sluice: bypass: [SERVICE], and a limit by source before it"},
		})
	},
}
