package doctor

import (
	"fmt"

	"sluice/internal/base/english"
	"sluice/internal/prove/check"
)

var dropped = Check{
	ID:    "drops",
	What:  "the kernel gives packets up",
	Least: check.Remark,
	Why: `Each packet that the kernel does not deliver is counted by the function that gave it up
and the reason that it names: NETFILTER_DROP is a rule of some firewall, or a full connection
table. Counted by a BPF program at the tracepoint kfree_skb, within the window; kernels without
BTF cannot. Said from ten packets on, and one a second.`,
	Fix:    "Ask on by the reason. What rules dropped is no illness by itself.",
	Undo:   "Nothing was changed.",
	ByHand: "what rules drop is no illness by itself",
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
			Text:     fmt.Sprintf("the kernel gave up %s, most of them in %s", english.Plural(total, "packet"), s.Drops[0].Name),
			Evidence: where,
			Cost:     fmt.Sprintf("%.0f packets a second", s.second(total)),
		})
	},
}
