package doctor

import (
	"sluice/internal/program"
	"sluice/internal/prove/check"
)

var twoFirewalls = Check{
	ID:    "two-firewalls",
	What:  "legacy iptables and nftables both filter what comes in",
	Least: check.Warning,
	Why: `A packet has to pass both, and each tool shows its own rules alone: what "iptables -L"
lets in, the other one may drop. It comes about where a program brings an iptables of its own,
or after an upgrade.`,
	Fix:  "One of them: load the rules of iptables-legacy-save with iptables-nft-restore, then flush the legacy ones.",
	Undo: "iptables-legacy-restore with what iptables-legacy-save wrote before.",
	look: func(s *Seen, say func(Finding)) {
		var legacy, other []Evidence
		for _, r := range s.Rules {
			for _, h := range r.Program.Hooks {
				if h.Kind != program.Input || h.Phase == program.NAT || !filters(r.Program, h) {
					continue
				}
				e := found(toolOf(r), "chain %s of hook input, priority of phase %s", h.Chain, h.Phase)
				if r.Tool == "iptables-legacy" {
					legacy = append(legacy, e)
				} else {
					other = append(other, e)
				}
			}
		}
		if len(legacy) > 0 && len(other) > 0 {
			say(Finding{
				Text:     "legacy iptables and nftables both filter what comes in",
				Evidence: append(legacy[:1:1], other[0]),
				Fix:      []string{"iptables-legacy-save > rules; iptables-nft-restore < rules; then flush the legacy tables"},
				Undo:     []string{"iptables-legacy-restore < rules"},
			})
		}
	},
}
