package apply

import (
	"net/netip"
	"slices"
	"testing"

	"sluice/internal/base/addrset"
	"sluice/internal/program"
	"sluice/internal/system/host"
)

// An address that the host gets and that the rules ban is told, and one that it had and
// lost, which is in none of their sets.
func TestHostGetsBannedAddress(t *testing.T) {
	p := &program.Program{
		Rests: []program.Rest{{Unbanned: true}},
		Sets:  []program.Set{{ID: "banned", Key: []program.Field{program.Source}, Life: program.Static, Addresses: addrset.FromPrefixes(netip.MustParsePrefix("192.0.2.0/24"))}},
		Chains: []program.Chain{{Rules: []program.Rule{{
			Stage: program.StageBanFlows, Match: []program.Condition{{Field: program.Source, Set: "banned"}}, Actions: []program.Action{program.Drop},
		}}}},
	}
	with := func(addresses ...string) *host.Facts {
		i := host.Interface{Name: "eth0"}
		for _, a := range addresses {
			i.Addresses = append(i.Addresses, netip.MustParsePrefix(a))
		}
		return &host.Facts{Known: true, Interfaces: []host.Interface{i}}
	}
	rest := program.Rest{Unbanned: true, Spared: ranges("192.0.2.1 192.0.2.7")}
	lost := changedRest(&rest, with("192.0.2.1/24", "192.0.2.7/24", "198.51.100.1/24"), with("192.0.2.1/24"), true)
	if want := []string{"the host lost the banned address 192.0.2.7"}; !slices.Equal(lost, want) {
		t.Errorf("%q, want %q", lost, want)
	}
	got := nowBanned(p, with("192.0.2.1/24"), with("192.0.2.1/24", "192.0.2.7/24", "198.51.100.1/24"))
	if want := []string{"the host got the banned address 192.0.2.7"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}
