// Package loaded gives what other tools have loaded in a network namespace, as
// importer.Ruleset. doctor and engine call it. It changes nothing, and loads no kernel module.
package loaded

import (
	"context"
	"fmt"
	"slices"

	"sluice/internal/importer"
	"sluice/internal/importer/ipset"
	"sluice/internal/importer/nftables"
	"sluice/internal/importer/xtables"
	"sluice/internal/system/kernel/ruleset"
)

// Read gives all rulesets of the calling thread's network namespace: of each tool that
// has one, and of each family; but the tables of nftables of the names own. An error names
// what is missing among them.
func Read(ctx context.Context, own ...string) (rulesets []*importer.Ruleset, errs []error) {
	return parse(ruleset.Texts(ctx, own...))
}

// Xtables is Read for iptables alone, legacy and over nftables.
func Xtables(ctx context.Context) (rulesets []*importer.Ruleset, errs []error) {
	return parse(ruleset.Xtables(ctx))
}

func parse(texts []ruleset.Text, errs []error) ([]*importer.Ruleset, []error) {
	var rulesets []*importer.Ruleset
	var sets map[string]*ipset.Set
	for _, t := range texts {
		var err error
		switch t.Tool {
		case "ipset":
			sets, err = ipset.Parse(string(t.Text)) // which come first
		case "nft":
			var of []*importer.Ruleset
			of, err = nftables.Parse(t.JSON, t.Text)
			for _, r := range of {
				if t.Shared {
					leaveBuiltin(r)
				}
			}
			rulesets = append(rulesets, of...)
		default:
			var r *importer.Ruleset
			if r, err = xtables.Parse(string(t.Text), t.Tool, t.Family, sets); err == nil {
				rulesets = append(rulesets, r)
			}
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("read the output of %s: %w", t.Tool, err))
		}
	}
	return rulesets, errs
}

// leaveBuiltin takes those base chains out of a table that iptables over nftables has
// printed.
func leaveBuiltin(r *importer.Ruleset) {
	for i := len(r.Bases) - 1; i >= 0; i-- {
		if ruleset.Builtin(r.Table, r.Bases[i].Chain, r.Bases[i].Priority) {
			r.Bases = slices.Delete(r.Bases, i, i+1)
			r.Program.Hooks = slices.Delete(r.Program.Hooks, i, i+1)
		}
	}
}
