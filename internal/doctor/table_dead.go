package doctor

import (
	"fmt"

	"sluice/internal/base/english"
	"sluice/internal/prove/check"
)

var tableDead = Check{
	ID:    "table-dead",
	What:  "most entries of the connection table are of closed or idle connections",
	Least: check.Remark,
	Why: `A TCP entry lives for two minutes after the connection was closed
(nf_conntrack_tcp_timeout_time_wait), and for five days without a packet if it was not
(nf_conntrack_tcp_timeout_established): clients that vanish leave such entries behind. Reported
if they are more than half of a table of at least 1,000 entries; a warning if the table is half
full.`,
	Fix: `Shorter timeouts: 30 s after a closed connection, some hours without packets (longer than the
keep-alive of connections that must stay open).`,
	Undo:    "Write the settings back; entries keep the timeout that their last packet set.",
	Fixable: true,
	look: func(s *Seen, say func(Finding)) {
		t := s.Table
		if t == nil || t.Listed < mentioned || 2*(t.Ended+t.Idle) < t.Listed {
			return
		}
		f := Finding{
			Text: fmt.Sprintf("%d %% of the connection table is dead: %s entries of closed connections, %s without a packet for an hour", (t.Ended+t.Idle)*100/t.Listed, english.Grouped(t.Ended), english.Grouped(t.Idle)),
			Cost: bytesText((t.Ended+t.Idle)*t.EntryBytes) + " of memory, and their room in the table",
		}
		if t.percent() >= 50 {
			f.Severity = check.Warning
		}
		f.Evidence = append(f.Evidence, t.kinds()...)
		for _, c := range s.shortened() {
			f.Evidence = append(f.Evidence, found("/proc/sys/net/netfilter/"+c.Name[len("net.netfilter."):], "%s s", c.Now))
			f.set("", c)
		}
		say(f)
	},
}
