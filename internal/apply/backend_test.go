package apply

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"slices"
	"sort"
	"strings"

	"sluice/internal/backend"
	"sluice/internal/kernel/nft"
	"sluice/internal/program"
)

// plain is a backend for tests of what this package does: it knows base chains
// with rules on protocol, port, state, interface and source sets, and loads
// them as nftables does: sets first, then one switch, then a sweep.
type plain struct{}

type plainArtifact struct {
	Chains map[string]plainChain
	Sets   map[string][]string // name to "from-to"
	Names  []program.Note
	Need   uint64
}

type plainChain struct {
	Hook, Default string
	Rules         []string
}

func (plain) Name() string { return "plain" }

func (plain) Lower(p *program.Program, _ backend.Capabilities) (backend.Artifact, error) {
	a := &plainArtifact{Chains: map[string]plainChain{}, Sets: map[string][]string{}, Names: p.Notes}
	names := map[string]string{}
	for _, s := range p.Sets {
		var elements []string
		for _, r := range s.Addresses {
			elements = append(elements, r.From.String()+"-"+r.To.String())
		}
		h := fnv.New64a()
		fmt.Fprint(h, elements)
		name := fmt.Sprintf("%s_%016x", s.ID, h.Sum64())
		a.Sets[name], names[s.ID] = elements, name
	}
	for _, h := range p.Hooks {
		c := plainChain{Hook: string(h.Kind), Default: string(h.Default)}
		for i, r := range p.Chain(h.Chain).Rules {
			c.Rules = append(c.Rules, plainRule(r, names)+fmt.Sprintf(` comment "%s rule %d"`, h.Chain, i))
		}
		a.Chains[h.Chain] = c
	}
	return a, nil
}

func plainRule(r program.Rule, names map[string]string) string {
	var words []string
	for _, m := range r.Match {
		word := map[program.Field]string{
			program.Protocol: "meta l4proto", program.Port: "th dport", program.SourcePort: "th sport", program.State: "ct state",
			program.InInterface: "iifname", program.Source: "ip saddr", program.ICMPType: "icmp type", program.ICMPv6Type: "icmpv6 type",
			program.HopLimit: "ip6 hoplimit", program.Family: "meta nfproto",
		}[m.Field]
		var values []string
		for _, n := range m.Names {
			values = append(values, n)
		}
		for _, n := range m.Numbers {
			if m.Field == program.Family {
				n.From = map[uint64]uint64{4: 2, 6: 10}[n.From]
			}
			values = append(values, fmt.Sprint(n.From))
		}
		if m.Set != "" {
			words = append(words, word+" @"+names[m.Set])
			continue
		}
		words = append(words, word+" { "+strings.Join(values, ", ")+" }")
	}
	for _, action := range r.Actions {
		words = append(words, fmt.Sprint(action))
	}
	return strings.Join(words, " ")
}

func (plain) Decode(data []byte) (backend.Artifact, error) {
	var a plainArtifact
	return &a, json.Unmarshal(data, &a)
}

func (a *plainArtifact) Backend() string         { return "plain" }
func (a *plainArtifact) Encode() ([]byte, error) { return json.Marshal(a) }
func (a *plainArtifact) Cost() backend.Cost      { return backend.Cost{Memory: a.Need, Sets: len(a.Sets)} }
func (a *plainArtifact) Notes() []program.Note   { return a.Names }
func (a *plainArtifact) Text() string            { return a.chains() }

func (a *plainArtifact) chains() string {
	var b strings.Builder
	for _, name := range slices.Sorted(func(yield func(string) bool) {
		for n := range a.Chains {
			if !yield(n) {
				return
			}
		}
	}) {
		c := a.Chains[name]
		fmt.Fprintf(&b, "add chain inet sluice %s { type filter hook %s priority 0; policy %s; }\n", name, c.Hook, c.Default)
		fmt.Fprintf(&b, "flush chain inet sluice %s\n", name)
		for _, r := range c.Rules {
			fmt.Fprintf(&b, "add rule inet sluice %s %s\n", name, r)
		}
	}
	return b.String()
}

// plainState is what the kernel has: set names with elements, chains with the
// comments of their rules.
type plainState struct {
	Table  bool
	Sets   map[string][]string
	Chains map[string][]string
}

func (s *plainState) Empty() bool                        { return !s.Table }
func (s *plainState) Counters() map[string]backend.Count { return nil }

func (plain) Read(ctx context.Context, _ bool) (backend.State, error) {
	s := &plainState{Sets: map[string][]string{}, Chains: map[string][]string{}}
	out, err := nft.List(ctx, "table", "inet", "sluice")
	if errors.Is(err, nft.ErrNotThere) {
		return s, nil
	}
	if err != nil {
		return nil, err
	}
	var listing struct {
		Nftables []struct {
			Set *struct {
				Name string
				Elem []any
			}
			Chain *struct{ Name string }
			Rule  *struct{ Chain, Comment string }
		}
	}
	if err := json.Unmarshal(out, &listing); err != nil {
		return nil, err
	}
	s.Table = true
	for _, e := range listing.Nftables {
		switch {
		case e.Set != nil:
			s.Sets[e.Set.Name] = plainElements(e.Set.Elem)
		case e.Chain != nil:
			s.Chains[e.Chain.Name] = append(s.Chains[e.Chain.Name], []string{}...)
		case e.Rule != nil:
			s.Chains[e.Rule.Chain] = append(s.Chains[e.Rule.Chain], e.Rule.Comment)
		}
	}
	return s, nil
}

func plainElements(list []any) []string {
	var out []string
	for _, e := range list {
		if object, is := e.(map[string]any); is {
			pair, _ := object["range"].([]any)
			if len(pair) == 2 {
				out = append(out, fmt.Sprintf("%v-%v", pair[0], pair[1]))
			}
			continue
		}
		out = append(out, fmt.Sprintf("%v-%v", e, e))
	}
	sort.Strings(out)
	return out
}

func (plain) Steps(want backend.Artifact, have backend.State) ([]backend.Step, error) {
	h := have.(*plainState)
	if want == nil {
		if !h.Table {
			return nil, nil
		}
		return []backend.Step{{Purpose: backend.Switch, Name: "table", Text: "delete table inet sluice\n"}}, nil
	}
	a := want.(*plainArtifact)
	var steps []backend.Step
	var sweep strings.Builder
	for name, elements := range a.Sets {
		if slices.Equal(sorted(elements), h.Sets[name]) {
			continue
		}
		text := fmt.Sprintf("add table inet sluice\nadd set inet sluice %s { type ipv4_addr; flags interval; }\nflush set inet sluice %s\nadd element inet sluice %s { %s }\n",
			name, name, name, strings.Join(elements, ", "))
		steps = append(steps, backend.Step{Purpose: backend.Fill, Name: "set " + name, Text: text})
	}
	for name := range h.Sets {
		if _, used := a.Sets[name]; !used {
			fmt.Fprintf(&sweep, "delete set inet sluice %s\n", name)
		}
	}
	steps = append(steps, backend.Step{Purpose: backend.Switch, Name: "chains", Text: "add table inet sluice\n" + a.chains() + h.unused(a)})
	if sweep.Len() > 0 {
		steps = append(steps, backend.Step{Purpose: backend.Sweep, Name: "sets", Text: sweep.String()})
	}
	return steps, nil
}

func (s *plainState) unused(a *plainArtifact) string {
	var b strings.Builder
	for name := range s.Chains {
		if _, used := a.Chains[name]; !used {
			fmt.Fprintf(&b, "flush chain inet sluice %s\ndelete chain inet sluice %s\n", name, name)
		}
	}
	return b.String()
}

func sorted(list []string) []string {
	out := slices.Clone(list)
	sort.Strings(out)
	return out
}

func (plain) Compare(want backend.Artifact, have backend.State) ([]backend.Difference, error) {
	a, h := want.(*plainArtifact), have.(*plainState)
	var diffs []backend.Difference
	for name, elements := range a.Sets {
		for _, e := range elements {
			if !slices.Contains(h.Sets[name], e) {
				diffs = append(diffs, backend.Difference{Kind: "element", Name: name, Want: e})
			}
		}
	}
	for name := range h.Sets {
		if _, meant := a.Sets[name]; !meant {
			diffs = append(diffs, backend.Difference{Kind: "set", Name: name, Have: name})
		}
	}
	for name, c := range a.Chains {
		var wantComments []string
		for _, r := range c.Rules {
			_, comment, _ := strings.Cut(r, `comment "`)
			wantComments = append(wantComments, strings.TrimSuffix(comment, `"`))
		}
		if !slices.Equal(wantComments, h.Chains[name]) {
			diffs = append(diffs, backend.Difference{Kind: "chain", Name: name, Want: strings.Join(wantComments, "; "), Have: strings.Join(h.Chains[name], "; ")})
		}
	}
	return diffs, nil
}
