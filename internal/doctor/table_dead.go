package doctor

import (
	"fmt"

	"sluice/internal/base/english"
	"sluice/internal/prove/check"
)

var tableDead = Check{
	ID:    "table-dead",
	What:  "most of the connection table is of connections that are over or idle",
	Least: check.Remark,
	Why: `An entry of TCP lives on for two minutes when its connection was closed
(nf_conntrack_tcp_timeout_time_wait), and for five days without a packet when it was not
(nf_conntrack_tcp_timeout_established): clients that vanish leave them behind. Said where
they are more than half of a table of 1,000 entries or more; a warning where the table is
half full.`,
	Fix: `Shorter time-outs: 30 s behind a closed connection, some hours for one without
packets (longer than the keep-alive of what is to stay open).`,
	Undo:    "Write the settings back; entries keep the time-out that their last packet gave them.",
	Fixable: true,
	look: func(s *Seen, say func(Finding)) {
		t := s.Table
		if t == nil || t.Listed < mentioned || 2*(t.Ended+t.Idle) < t.Listed {
			return
		}
		f := Finding{
			Text: fmt.Sprintf("%d %% of the connection table are dead: %s entries of connections that ended, %s of ones without a packet for an hour", (t.Ended+t.Idle)*100/t.Listed, english.Grouped(t.Ended), english.Grouped(t.Idle)),
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
