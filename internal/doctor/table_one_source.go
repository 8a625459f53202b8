package doctor

import (
	"fmt"

	"sluice/internal/base/english"
	"sluice/internal/prove/check"
)

var tableOneSource = Check{
	ID:    "table-one-source",
	What:  "one address holds a large part of the connection table",
	Least: check.Remark,
	Why: `A client that opens connections without end, or a proxy in front of the host, takes the room of
all others. Reported for an address, not one of the host's own, that holds a quarter of a table
of at least 1,000 entries; a warning if the table is half full.`,
	Fix: `Limit the connections of each source: "max 100 connections each" in a policy of Sluice, ct
count in nftables, connlimit in iptables. Traffic of a proxy of your own is better left
untracked.`,
	Undo: "Delete the rule.",
	look: func(s *Seen, say func(Finding)) {
		t := s.Table
		if t == nil || t.Listed < mentioned || len(t.Top) == 0 || t.Top[0].Address.IsLoopback() || 4*t.Top[0].Entries < t.Listed || s.own(t.Top[0].Address) {
			return
		}
		top := t.Top[0]
		f := Finding{
			Text: fmt.Sprintf("%s holds %s of %s entries of the connection table", top.Address, english.Grouped(top.Entries), english.Grouped(t.Listed)),
			Fix:  []string{"in a policy of Sluice: allow SERVICE max 100 connections each", "conntrack -D -s " + top.Address.String() + "   # deletes its entries: its connections are evaluated again"},
		}
		if t.percent() >= 50 {
			f.Severity = check.Warning
		}
		for _, o := range t.Top {
			f.Evidence = append(f.Evidence, found("conntrack -L", "%s entries from %s", english.Grouped(o.Entries), o.Address))
		}
		say(f)
	},
}
