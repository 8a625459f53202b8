package doctor

import (
	"fmt"
	"slices"
	"strings"

	"sluice/internal/base/english"
	"sluice/internal/importer"
	"sluice/internal/program"
	"sluice/internal/prove/check"
)

var noFlowtable = Check{
	ID:    "no-flowtable",
	What:  "packets of known connections take the whole forward path: there is no flowtable",
	Least: check.Remark,
	Why: `Each forwarded packet goes through connection tracking, routing and the rules of the forward
hook, even if its connection is known. A flowtable takes packets of known connections at the
ingress hook of the device and sends them on: a quarter less work for each, in story 4. Rules
no longer see these packets, so counters, limits and bans of the forward chain miss them.
Reported from 1,000 forwarded packets a second, as a warning from 5,000, if there are rules and
connections are tracked.`,
	Fix: `Add a flowtable of the devices that forward, and a rule that offloads known connections to it;
in a policy of Sluice, "accelerate: true" under forward. The kernel needs nf_flow_table and
nft_flow_offload, which distributions ship.`,
	Undo: "Delete the table with the flowtable.",
	look: func(s *Seen, say func(Finding)) {
		n := s.Moved["Ip.ForwDatagrams"] + s.Moved["Ip6OutForwDatagrams"]
		i := slices.IndexFunc(s.Rules, forwards)
		rate := s.second(n)
		if rate < forwardsMuch || s.Table == nil || i < 0 || s.Flowtables > 0 || rate < knownPackets*s.Table.Fresh {
			return
		}
		var devices []string
		for _, d := range s.Devices {
			if d.Up && d.Name != "lo" && d.Master == 0 {
				devices = append(devices, d.Name)
			}
		}
		f := Finding{
			Text: fmt.Sprintf("%s forwarded packets a second go through connection tracking, routing and rules: there is no flowtable", english.Grouped(uint64(rate))),
			Evidence: []Evidence{
				found("Ip ForwDatagrams, Ip6OutForwDatagrams (nstat)", "%s in the window", english.Grouped(n)),
				found(toolOf(s.Rules[i]), "rules at the forward hook"),
				found("nft list flowtables", "none"),
			},
			Cost: "about 2,400 instructions for each packet of a known connection (story 4)",
			Fix: []string{
				"in a policy of Sluice: forward: {accelerate: true}",
				"or by hand: nft add table inet fastpath",
				"nft 'add flowtable inet fastpath fast { hook ingress priority 0; devices = { " + strings.Join(devices, ", ") + " }; }'",
				"nft 'add chain inet fastpath forward { type filter hook forward priority -1; }'",
				"nft 'add rule inet fastpath forward meta l4proto { tcp, udp } ct state established flow add @fast'",
			},
			Undo: []string{"nft delete table inet fastpath"},
		}
		if rate >= forwardsVeryMuch {
			f.Severity = check.Warning
		}
		say(f)
	},
}

const (
	// From so many forwarded packets a second a missing flowtable is worth a remark, and a
	// warning.
	forwardsMuch, forwardsVeryMuch = 1000, 5000
	// knownPackets is how many packets a connection has at least, on average, before they
	// are mostly of known ones: the first ones never go by a flowtable.
	knownPackets = 10
)

// forwards says that a ruleset asks packets that are forwarded.
func forwards(r *importer.Ruleset) bool {
	return slices.ContainsFunc(r.Program.Hooks, func(h program.Hook) bool {
		return h.Kind == program.Forward && (h.Default == program.Drop || slices.ContainsFunc(r.Program.Chains, func(c program.Chain) bool {
			return c.Name == h.Chain && len(c.Rules) > 0
		}))
	})
}
