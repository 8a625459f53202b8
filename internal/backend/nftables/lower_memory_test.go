package nftables

import (
	"bytes"
	"net/netip"
	"reflect"
	"testing"

	"sluice/internal/base/addrset"
	"sluice/internal/program"
)

// TestProgramsAreRemembered: what a program with a large set is lowered to is
// remembered for every contents of its living set, and is to the byte what is
// lowered anew; a range in that set, another rule or another large set is another
// program.
func TestProgramsAreRemembered(t *testing.T) {
	made := func(third uint32, verdict program.Verdict, dropped ...string) *program.Program {
		var b, few addrset.Builder
		for i := range uint32(20_000) {
			b.Add4(i<<17+third<<8, i<<17+third<<8+i%1000)
		}
		for _, text := range dropped {
			r, err := addrset.ParseRange(text)
			if err != nil {
				t.Fatal(err)
			}
			few.AddRange(r)
		}
		in := func(set string, action program.Action) program.Rule {
			return program.Rule{Match: []program.Condition{{Field: program.Source, Set: set}}, Actions: []program.Action{action}}
		}
		return &program.Program{
			Owner: "sluice",
			Sets: []program.Set{
				{ID: "large", Key: []program.Field{program.Source}, Life: program.Static, Addresses: b.Set()},
				{ID: "few", Key: []program.Field{program.Source}, Life: program.Living, Addresses: few.Set()},
			},
			Hooks:  []program.Hook{{Kind: program.Input, Phase: program.Filter, Default: program.Accept, Chain: "input"}},
			Chains: []program.Chain{{Name: "input", Rules: []program.Rule{in("few", program.Drop), in("large", verdict)}}},
		}
	}
	memory := &notes{kept: map[string][]byte{}}
	for _, test := range []struct {
		name  string
		p     *program.Program
		known bool
	}{
		{"the first", made(0, program.Drop, "192.0.2.1"), false},
		{"the same", made(0, program.Drop, "192.0.2.1"), true},
		{"others", made(0, program.Drop, "192.0.2.5", "192.0.2.9", "2001:db8::7"), true},
		{"side by side", made(0, program.Drop, "192.0.2.5", "192.0.2.6", "192.0.2.7"), true},
		{"none", made(0, program.Drop), true},
		{"a range", made(0, program.Drop, "192.0.2.0/25", "198.51.100.1"), false},
		{"a range and others", made(0, program.Drop, "192.0.2.0/25", "198.51.100.7"), true},
		{"another range", made(0, program.Drop, "192.0.2.0/24", "198.51.100.7"), false},
		{"another verdict", made(0, program.Accept, "192.0.2.1"), false},
		{"another large set", made(1, program.Drop, "192.0.2.1"), false},
	} {
		fresh, err := New().Lower(test.p, everything)
		if err != nil {
			t.Fatal(err)
		}
		put := memory.put
		a, err := New(Remember(memory)).Lower(test.p, everything)
		if err != nil {
			t.Fatal(err)
		}
		if (memory.put == put) != test.known {
			t.Errorf("%s: %d kept, known %v", test.name, memory.put-put, test.known)
		}
		want, err := fresh.Encode()
		if err != nil {
			t.Fatal(err)
		}
		have, err := a.Encode()
		if err != nil || !bytes.Equal(have, want) || a.Text() != fresh.Text() || !reflect.DeepEqual(a.Cost(), fresh.Cost()) {
			t.Errorf("%s: another artifact, %v", test.name, err)
		}
	}
	// What is damaged is none.
	for key, data := range memory.kept {
		memory.kept[key] = data[:len(data)/2]
	}
	if a, err := New(Remember(memory)).Lower(made(0, program.Drop, "192.0.2.1"), everything); err != nil || len(a.(*artifact).Tree.Sets) < 2 {
		t.Errorf("damaged: %v", err)
	}
}

// TestSingly: what stands side by side is an element each up to a bound.
func TestSingly(t *testing.T) {
	for text, want := range map[string][2]int{
		"192.0.2.1": {1, 0}, "192.0.2.0/28": {16, 0}, "192.0.2.0-192.0.2.16": {0, 1}, "255.255.255.248/29": {8, 0}, "2001:db8::/64": {0, 1}, "0.0.0.0/0": {0, 1},
	} {
		r, err := addrset.ParseRange(text)
		if err != nil {
			t.Fatal(err)
		}
		singles, wide := singly([]addrset.Range{r})
		if [2]int{len(singles), len(wide)} != want {
			t.Errorf("%s: %d singles, %d ranges, want %v", text, len(singles), len(wide), want)
		}
		if !addrset.Of(append(singles, wide...)...).Equal(addrset.Of(r)) {
			t.Errorf("%s: other addresses", text)
		}
	}
	if singles, _ := singly([]addrset.Range{{From: netip.MustParseAddr("192.0.2.3"), To: netip.MustParseAddr("192.0.2.4")}}); len(singles) != 2 || singles[0].From != netip.MustParseAddr("192.0.2.3") {
		t.Errorf("%v", singles)
	}
}
