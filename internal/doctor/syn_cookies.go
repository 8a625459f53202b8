package doctor

import (
	"fmt"

	"sluice/internal/base/english"
	"sluice/internal/prove/check"
)

var synCookies = Check{
	ID:    "syn-cookies",
	What:  "the host sends SYN cookies: more connections begin than its queues hold",
	Least: check.Warning,
	Why: `If a listening socket gets more connection requests than its queue holds, the kernel answers
without storing them. Under a flood of SYNs that is right; without one the queue is too short.
Connections made by cookie lose window scaling unless both ends use TCP timestamps.`,
	Fix: `Under a flood: drop or limit it before connection tracking. Otherwise: a longer queue
(net.ipv4.tcp_max_syn_backlog, net.core.somaxconn).`,
	Undo:   "Write the settings back.",
	ByHand: "under a flood the cookies are right, and otherwise a program uses a longer queue only after a restart",
	look: func(s *Seen, say func(Finding)) {
		n := s.Moved["TcpExt.SyncookiesSent"]
		if n == 0 {
			return
		}
		say(Finding{
			Text: fmt.Sprintf("%s were sent: more connections begin than the queues hold", english.Plural(n, "SYN cookie")),
			Evidence: []Evidence{
				found("TcpExt SyncookiesSent (nstat)", "%s in the window", english.Grouped(n)),
				found("TcpExt SyncookiesFailed (nstat)", "%s invalid answers in the window", english.Grouped(s.Moved["TcpExt.SyncookiesFailed"])),
			},
			Cost: fmt.Sprintf("%.0f SYNs a second", s.second(n)),
			Fix:  []string{"in a policy of Sluice: bypass: [SERVICE], and a limit by source before it"},
		})
	},
}
