package nftables

import (
	"reflect"
	"testing"

	"sluice/internal/base/addrset"
	"sluice/internal/program"
)

// notes is a memory that counts.
type notes struct {
	kept       map[string][]byte
	asked, put int
}

func (n *notes) Get(key string) ([]byte, bool) {
	n.asked++
	data, ok := n.kept[key]
	return data, ok
}

func (n *notes) Put(key string, data []byte) {
	n.put++
	n.kept[key] = data
}

// TestLayoutsAreRemembered: what is remembered of a set makes the same artifact as what is
// searched, for every budget and number of rules.
func TestLayoutsAreRemembered(t *testing.T) {
	made := func(third byte, budget program.Layout, rules int) *program.Program {
		var b addrset.Builder
		for i := range uint32(20_000) {
			b.Add4(i<<17+uint32(third)<<8, i<<17+uint32(third)<<8+i%1000)
			b.Add6(0x2001<<48+uint64(i)<<30, 0, 0x2001<<48+uint64(i)<<30+uint64(i), 5)
		}
		p := &program.Program{
			Owner: "sluice", Layout: budget,
			Sets:   []program.Set{{ID: "large", Key: []program.Field{program.Source}, Life: program.Static, Addresses: b.Set()}},
			Hooks:  []program.Hook{{Kind: program.Input, Phase: program.Filter, Default: program.Accept, Chain: "input"}},
			Chains: []program.Chain{{Name: "input"}},
		}
		for i := range rules {
			p.Chains[0].Rules = append(p.Chains[0].Rules, program.Rule{
				Match: []program.Condition{
					{Field: program.Source, Set: "large"},
					{Field: program.Protocol, Numbers: []program.NumberRange{{From: 6, To: 6}}},
					{Field: program.Port, Numbers: []program.NumberRange{{From: uint64(80 + i), To: uint64(80 + i)}}},
				},
				Actions: []program.Action{program.Drop},
			})
		}
		return p
	}
	memory := &notes{kept: map[string][]byte{}}
	base := made(0, program.Layout{}, 1)
	laidOut := false
	for _, test := range []struct {
		name  string
		p     *program.Program
		known bool
	}{
		{"base", base, false},
		{"other set", made(1, program.Layout{}, 1), false},
		{"other budget", made(0, program.Layout{Memory: 8 << 20, Load: 100_000_000}, 1), true},
		{"more rules", made(0, program.Layout{}, 3), true},
	} {
		name, p := test.name, test.p
		searched, err := New().Lower(p, everything)
		if err != nil {
			t.Fatal(err)
		}
		for _, try := range []string{"searched", "remembered"} {
			put := memory.put
			a, err := New(Remember(memory)).Lower(p, everything)
			if err != nil {
				t.Fatal(err)
			}
			if a.Text() != searched.Text() {
				t.Errorf("%s: %s is another artifact", name, try)
			}
			if !reflect.DeepEqual(a.(*artifact).Layouts(), searched.(*artifact).Layouts()) {
				t.Errorf("%s: %s tells of other layouts", name, try)
			}
			if (memory.put > put) != (try == "searched" && !test.known) {
				t.Errorf("%s: %s, and %d kept", name, try, memory.put-put)
			}
		}
		for _, r := range searched.(*artifact).Layouts() {
			laidOut = laidOut || r.Chosen != r.Candidates[0].Name
		}
	}
	if !laidOut {
		t.Error("every set stayed one interval set: nothing was tried")
	}
	// What does not fit to the candidates is none.
	for key := range memory.kept {
		memory.kept[key] = []byte(`[{"name": "x"}]`)
	}
	put := memory.put
	if _, err := New(Remember(memory)).Lower(base, everything); err != nil || memory.put == put {
		t.Errorf("rubbish was taken: %v", err)
	}
}
