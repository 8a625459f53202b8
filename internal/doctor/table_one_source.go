package doctor

import (
	"fmt"

	"sluice/internal/base/english"
	"sluice/internal/prove/check"
)

var tableOneSource = Check{
	ID:    "table-one-source",
	What:  "one address has a large part of the connection table",
	Least: check.Remark,
	Why: `A client that opens connections without end, or a proxy before the host, takes the
room of all others. Said of an address, not of the host itself, with a quarter of a table of
1,000 entries or more; a warning where the table is half full.`,
	Fix: `Bound the connections of a source: in a policy of Sluice "max 100 connections each",
in nftables ct count, in iptables connlimit. A proxy of your own is better left untracked.`,
	Undo: "Take the rule away.",
	look: func(s *Seen, say func(Finding)) {
		t := s.Table
		if t == nil || t.Listed < mentioned || len(t.Top) == 0 || t.Top[0].Address.IsLoopback() || 4*t.Top[0].Entries < t.Listed || s.own(t.Top[0].Address) {
			return
		}
		top := t.Top[0]
		f := Finding{
			Text: fmt.Sprintf("%s has %s of %s entries of the connection table", top.Address, english.Grouped(top.Entries), english.Grouped(t.Listed)),
			Fix:  []string{"in a policy of Sluice: allow SERVICE max 100 connections each", "conntrack -D -s " + top.Address.String() + "   # deletes its entries: its connections are judged anew"},
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
