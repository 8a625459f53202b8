package nftables

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"sluice/internal/backend"
	"sluice/internal/base/addrset"
	"sluice/internal/program"
)

// TestReloadSendsWhatChanged: of three sets one changes, and it alone is filled,
// beside the old one, which goes in the end; a living set is edited by element.
func TestReloadSendsWhatChanged(t *testing.T) {
	host := kernelHost(t)
	policy := func(served, banned addrset.Set) *artifact {
		return mustLower(t, &program.Program{
			Owner: "sluice",
			Hooks: []program.Hook{{Kind: program.Input, Phase: program.Filter, Default: program.Drop, Chain: "input"}},
			Chains: []program.Chain{{Name: "input", Rules: []program.Rule{
				{Match: conditions{setOn(program.Source, "banned")}, Actions: actions{program.Drop}},
				{Match: conditions{setOn(program.Source, "served")}, Actions: actions{program.Accept}},
				{Match: conditions{setOn(program.Source, "office")}, Actions: actions{program.Accept}},
			}}},
			Sets: []program.Set{
				{ID: "banned", Key: []program.Field{program.Source}, Life: program.Living, Counters: true, Addresses: banned},
				{ID: "served", Key: []program.Field{program.Source}, Life: program.Static, Addresses: served},
				{ID: "office", Key: []program.Field{program.Source}, Life: program.Static, Addresses: addrset.MustParse("203.0.113.0/24", "2001:db8:77::/48")},
			},
		})
	}
	large := addrset.MustParse(manyPrefixes(1000)...)
	one := policy(large, addrset.MustParse("192.0.2.1", "192.0.2.3"))
	other := policy(large.Union(addrset.MustParse("198.51.100.0/24")), addrset.MustParse("192.0.2.3", "192.0.2.5"))
	host.load(t, New(), one)
	host.Nft("delete element inet sluice banned_v4_counted { 192.0.2.3 }\nadd element inet sluice banned_v4_counted { 192.0.2.3 counter packets 3 bytes 300 }\n")
	for _, contents := range []bool{false, true} {
		var said []string
		for _, s := range stepsTo(t, other, host.read(t, contents)) {
			said = append(said, string(s.Purpose)+": "+s.Text())
		}
		text := strings.Join(said, "\n")
		if sent := strings.Count(text, "add element"); sent != 2 || strings.Contains(text, "office4") && strings.Contains(text, "add set inet sluice office4") {
			t.Errorf("contents %v: %d sets are sent:\n%s", contents, sent, head(text, 2000))
		}
		if !strings.Contains(text, "delete element inet sluice banned_v4_counted {\n\t192.0.2.1\n}\n") || !strings.Contains(text, "add element inet sluice banned_v4_counted {\n\t192.0.2.5\n}\n") {
			t.Errorf("contents %v: the living set is not edited by element:\n%s", contents, head(text, 2000))
		}
	}
	host.load(t, New(), other)
	s := host.read(t, true)
	if d := compare(other.Tree, s, nil); len(d) > 0 {
		t.Error(differences(d))
	}
	if got := s.Elements()["banned_v4_counted"]["192.0.2.3"]; got != (backend.Count{Packets: 3, Bytes: 300}) {
		t.Errorf("the element that stays counts %v", got)
	}
	if served := slices.DeleteFunc(slices.Clone(s.Tree.Sets), func(k *Set) bool { return !strings.HasPrefix(k.Name, "served4") }); len(served) != 1 {
		t.Errorf("%d sets of served", len(served))
	}
}

func manyPrefixes(n int) []string {
	out := make([]string, n)
	for i := range out {
		out[i] = fmt.Sprintf("10.%d.%d.0/25", i>>8, i&0xff)
	}
	return out
}
