package doctor

import (
	"fmt"

	"sluice/internal/base/english"
	"sluice/internal/prove/check"
)

var dropped = Check{
	ID:    "drops",
	What:  "the kernel drops packets",
	Least: check.Remark,
	Why: `Each packet that the kernel does not deliver is counted by the function that dropped it and the
reason: NETFILTER_DROP is a rule of some firewall, or a full connection table. A BPF program at
the tracepoint kfree_skb counts them during the window; that needs a kernel with BTF. Reported
from ten packets and one a second.`,
	Fix:    "Follow the reason. Packets that rules dropped are not a fault in themselves.",
	Undo:   "Nothing was changed.",
	ByHand: "packets that rules drop are not a fault in themselves",
	look: func(s *Seen, say func(Finding)) {
		var total uint64
		var where []Evidence
		for i, d := range s.Drops {
			total += d.Total
			if i < mostTop {
				where = append(where, found("tracepoint kfree_skb", "%s: %s", d.Name, english.Plural(d.Total, "packet")))
			}
		}
		if total < 10 || s.second(total) < 1 {
			return
		}
		say(Finding{
			Text:     fmt.Sprintf("the kernel dropped %s, most of them in %s", english.Plural(total, "packet"), s.Drops[0].Name),
			Evidence: where,
			Cost:     fmt.Sprintf("%.0f packets a second", s.second(total)),
		})
	},
}
