package optimize

import (
	"slices"
	"testing"

	"sluice/internal/base/addrset"
	"sluice/internal/program"
)

// TestOriginalPortKeepsItsProtocol: rules about a port before its rewriting are not merged
// into one that has the protocol in a set and asks for the port anyway.
func TestOriginalPortKeepsItsProtocol(t *testing.T) {
	p := &program.Program{
		Hooks:  []program.Hook{{Kind: program.Input, Phase: program.Filter, Default: program.Drop, Chain: "input"}},
		Chains: []program.Chain{{Name: "input"}},
	}
	for i := range uint64(12) {
		from, err := addrset.ParseRange([]string{"192.0.2.1", "192.0.2.9", "2001:db8::7"}[i%3])
		if err != nil {
			t.Fatal(err)
		}
		p.Chains[0].Rules = append(p.Chains[0].Rules, program.Rule{
			Match: []program.Condition{
				{Field: program.Protocol, Numbers: number([]uint64{6, 17}[i%2])},
				{Field: program.OriginalPort, Numbers: number(1000 + i/6)},
				{Field: program.Source, Addresses: []addrset.Range{from}},
			},
			Actions: []program.Action{program.Accept},
		})
	}
	proveRun(t, p, nil, map[string]int{})
	for _, c := range p.Chains {
		for _, r := range c.Rules {
			asks := func(f program.Field) bool {
				return slices.ContainsFunc(r.Match, func(c program.Condition) bool { return c.Field == f && c.Set == "" })
			}
			if asks(program.OriginalPort) && !asks(program.Protocol) {
				t.Errorf("a port without a protocol: %v", r.Match)
			}
		}
	}
}
