package ruleset

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"strings"
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
		Expr                 []map[string]any
	}
	Set *namedSet
	Map *namedSet
}

type namedSet struct{ Elem []any }

// nft runs nft -j and decodes what it prints.
func nft(ctx context.Context, args ...string) ([]object, error) {
	cmd := exec.CommandContext(ctx, "nft", append([]string{"-j"}, args...)...)
	var out, problems bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &problems
	if err := cmd.Run(); err != nil {
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

// NFTables returns the tables of nftables but those of the name own, which are
// not even asked for: their sets may be large. Contents of other tools' sets
// are asked for only where a rule takes verdicts, ports or NAT from them.
func NFTables(ctx context.Context, own string) ([]Table, error) {
	listed, err := nft(ctx, "list", "tables")
	if err != nil {
		return nil, err
	}
	var tables []Table
	for _, o := range listed {
		if o.Table == nil || o.Table.Name == own {
			continue
		}
		t, err := nftTable(ctx, o.Table.Family, o.Table.Name)
		if gone := (*exec.ExitError)(nil); errors.As(err, &gone) && strings.Contains(err.Error(), "No such file") {
			continue
		} else if err != nil {
			return nil, err
		}
		tables = append(tables, t)
	}
	return tables, nil
}

func nftTable(ctx context.Context, family, name string) (Table, error) {
	objects, err := nft(ctx, "-t", "list", "table", family, name)
	if err != nil {
		return Table{}, err
	}
	known := map[string][]any{}
	elements := func(kind, set string) []any {
		if e, ok := known[set]; ok {
			return e
		}
		known[set] = nil
		found, err := nft(ctx, "list", kind, family, name, set)
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
	t := fromJSON(family, name, objects, elements)
	if t.needsExtensions() {
		if err := t.readExtensions(ctx); err != nil {
			return t, err
		}
	}
	return t, nil
}

// fromJSON makes a table of what nft listed of it.
func fromJSON(family, name string, objects []object, elements func(kind, set string) []any) Table {
	t := Table{Family: family, Name: name}
	chains := map[string]*Chain{}
	for _, o := range objects {
		if o.Chain == nil || chains[o.Chain.Name] != nil {
			continue
		}
		c := &Chain{Name: o.Chain.Name, Type: o.Chain.Type, Hook: o.Chain.Hook, Priority: o.Chain.Prio, Policy: o.Chain.Policy}
		chains[c.Name] = c
		t.Chains = append(t.Chains, c)
	}
	for _, o := range objects {
		if o.Rule == nil || chains[o.Rule.Chain] == nil {
			continue
		}
		c := chains[o.Rule.Chain]
		c.Rules = append(c.Rules, ruleOf(o.Rule.Expr, elements))
	}
	return t
}
