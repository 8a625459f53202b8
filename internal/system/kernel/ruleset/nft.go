package ruleset

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"sluice/internal/base/tool"
	kernel "sluice/internal/system/kernel/nft"
)

// object is one entry of the array that nft -j prints (libnftables-json(5)).
type object struct {
	Table *struct{ Family, Name string }
	Chain *struct {
		Family, Table, Name string
		Type, Hook, Policy  string
		Prio                int
	}
	Rule *struct {
		Family, Table, Chain string
		// Expr stays as it is until the rule turns out to be of another tool:
		// the own ones may be thousands.
		Expr json.RawMessage
	}
	Set *namedSet
	Map *namedSet
}

type namedSet struct{ Elem []any }

// nft runs nft -j and decodes what it prints.
func nft(ctx context.Context, args ...string) ([]object, error) {
	cmd := tool.Command(ctx, "nft", append([]string{"-j"}, args...)...)
	var out, problems bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &problems
	if err := tool.Run(cmd); err != nil {
		if ctx.Err() != nil {
			err = ctx.Err()
		}
		first, _, _ := strings.Cut(strings.TrimSpace(problems.String()), "\n")
		if first != "" {
			return nil, fmt.Errorf("nft %s: %w: %s", strings.Join(args, " "), err, first)
		}
		return nil, fmt.Errorf("nft %s: %w", strings.Join(args, " "), err)
	}
	return decode(out.Bytes())
}

func decode(text []byte) ([]object, error) {
	var whole struct{ Nftables []object }
	if len(bytes.TrimSpace(text)) == 0 {
		return nil, nil
	}
	if err := json.Unmarshal(text, &whole); err != nil {
		return nil, fmt.Errorf("read what nft printed: %w", err)
	}
	return whole.Nftables, nil
}

// NFTables returns the tables of nftables but those of the names own. Where there
// are no others, nft is not run at all. One terse listing gives them all: it is the only
// one for which nft 1.0.6 leaves the elements of sets in the kernel, while "list tables"
// and "list table" read those of every set there is, a second for a set of a hundred
// thousand. Contents of other tools' sets are asked for only where a rule takes verdicts,
// ports or NAT from them.
func NFTables(ctx context.Context, own ...string) ([]Table, error) {
	all, err := kernel.Tables()
	foreign := func(name string) bool { return !slices.Contains(own, name) }
	if err == nil && !slices.ContainsFunc(all, func(t kernel.Named) bool { return foreign(t.Name) }) {
		return nil, nil
	}
	objects, err := nft(ctx, "-t", "list", "ruleset")
	if err != nil {
		return nil, err
	}
	var tables []Table
	for _, o := range objects {
		if o.Table == nil || !foreign(o.Table.Name) {
			continue
		}
		t, err := fromJSON(o.Table.Family, o.Table.Name, objects, setsOf(ctx, o.Table.Family, o.Table.Name))
		if err != nil {
			return nil, err
		}
		if t.needsExtensions() {
			if err := t.readExtensions(ctx); err != nil {
				return nil, err
			}
		}
		tables = append(tables, t)
	}
	return tables, nil
}

// setsOf asks for the elements of a table's sets, of each once.
func setsOf(ctx context.Context, family, table string) func(kind, set string) []any {
	known := map[string][]any{}
	return func(kind, set string) []any {
		if e, ok := known[set]; ok {
			return e
		}
		known[set] = nil
		found, err := nft(ctx, "list", kind, family, table, set)
		if err != nil {
			return nil // gone meanwhile, or unreadable: the condition is left out
		}
		for _, o := range found {
			for _, s := range []*namedSet{o.Set, o.Map} {
				if s != nil {
					known[set] = s.Elem
				}
			}
		}
		return known[set]
	}
}

// fromJSON makes a table of what nft listed of the ruleset.
func fromJSON(family, name string, objects []object, elements func(kind, set string) []any) (Table, error) {
	t := Table{Family: family, Name: name}
	chains := map[string]*Chain{}
	for _, o := range objects {
		if o.Chain == nil || o.Chain.Family != family || o.Chain.Table != name || chains[o.Chain.Name] != nil {
			continue
		}
		c := &Chain{Name: o.Chain.Name, Type: o.Chain.Type, Hook: o.Chain.Hook, Priority: o.Chain.Prio, Policy: o.Chain.Policy}
		chains[c.Name] = c
		t.Chains = append(t.Chains, c)
	}
	for _, o := range objects {
		if o.Rule == nil || o.Rule.Family != family || o.Rule.Table != name || chains[o.Rule.Chain] == nil {
			continue
		}
		c := chains[o.Rule.Chain]
		var statements []map[string]any
		if err := json.Unmarshal(o.Rule.Expr, &statements); err != nil {
			return t, fmt.Errorf("read what nft printed of a rule in %s %s: %w", family, name, err)
		}
		c.Rules = append(c.Rules, ruleOf(family, statements, elements))
	}
	return t, nil
}
