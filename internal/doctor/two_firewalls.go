package doctor

import (
	"sluice/internal/program"
	"sluice/internal/prove/check"
)

var twoFirewalls = Check{
	ID:    "two-firewalls",
	What:  "legacy iptables and nftables both filter incoming packets",
	Least: check.Warning,
	Why: `A packet must pass both, and each tool shows only its own rules: what "iptables -L" accepts,
nftables may drop. This happens if a program ships its own iptables, or after an upgrade.`,
	Fix: `Keep one: load the output of iptables-legacy-save with iptables-nft-restore, then flush the
legacy rules.`,
	Undo: "iptables-legacy-restore with the saved output of iptables-legacy-save.",
	look: func(s *Seen, say func(Finding)) {
		var legacy, other []Evidence
		for _, r := range s.Rules {
			for _, h := range r.Program.Hooks {
				if h.Kind != program.Input || h.Phase == program.NAT || !filters(r.Program, h) {
					continue
				}
				e := found(toolOf(r), "chain %s at hook input, priority of phase %s", h.Chain, h.Phase)
				if r.Tool == "iptables-legacy" {
					legacy = append(legacy, e)
				} else {
					other = append(other, e)
				}
			}
		}
		if len(legacy) > 0 && len(other) > 0 {
			say(Finding{
				Text:     "legacy iptables and nftables both filter incoming packets",
				Evidence: append(legacy[:1:1], other[0]),
				Fix:      []string{"iptables-legacy-save > rules; iptables-nft-restore < rules; then flush the legacy tables"},
				Undo:     []string{"iptables-legacy-restore < rules"},
			})
		}
	},
}
