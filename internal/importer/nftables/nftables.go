// Package nftables reads what nft lists of the tables of other owners, each of which
// becomes a ruleset of its own. importer/loaded calls it. The backend reads the rules, as
// it does its own (package backend/nftables); what iptables over nftables has made is read
// of iptables-save, which alone knows its extensions.
package nftables

import (
	"strings"

	"sluice/internal/backend/nftables"
	"sluice/internal/importer"
)

// Parse reads what "nft -n -j list ruleset" prints, or of one table, and "nft -t -a list
// ruleset" of the same moment.
func Parse(listing, text []byte) ([]*importer.Ruleset, error) {
	tables, err := nftables.ReadForeign(listing, text)
	if err != nil {
		return nil, err
	}
	var out []*importer.Ruleset
	for _, t := range tables {
		r := &importer.Ruleset{
			Tool: "nft", Family: t.Family, Table: t.Name, Program: t.Lifted.Program,
			Unlifted: t.Lifted.Unlifted, Rules: map[string]*importer.Rule{},
		}
		partly := map[string]map[int]bool{}
		for _, u := range r.Unlifted {
			if partly[u.Chain] == nil {
				partly[u.Chain] = map[int]bool{}
			}
			partly[u.Chain][u.Rule] = true
		}
		for _, k := range t.Rules {
			rule := &importer.Rule{Table: t.Name, Chain: k.Chain, Number: k.Number, Handle: k.Handle, Text: k.Text, Whole: !partly[k.Chain][k.Number]}
			if k.Count != nil {
				rule.Count = &importer.Count{Packets: k.Count.Packets, Bytes: k.Count.Bytes}
			}
			r.Rules[k.ID] = rule
		}
		for _, k := range t.Sets {
			r.Sets = append(r.Sets, importer.Set{Name: k.Name, Type: k.Type, Entries: k.Entries, Most: k.Size, Fills: k.Dynamic, Ranges: k.Interval && !strings.Contains(k.Type, " . "), Single: k.Single})
		}
		for _, h := range t.Lifted.Program.Hooks {
			r.Bases = append(r.Bases, importer.Base{Table: t.Name, Chain: h.Chain, Hook: h.Kind, Priority: t.Priorities[h.Chain]})
		}
		out = append(out, r)
	}
	return out, nil
}
