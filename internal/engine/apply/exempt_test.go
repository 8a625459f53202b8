package apply

import (
	"net/netip"
	"slices"
	"testing"

	"sluice/internal/backend"
	"sluice/internal/program"
	"sluice/internal/system/host"
)

// TestExemptIsWhatServesTheHost: what is compared with names routers and name servers
// that are missing, in both families, and leaves alone who is in the set already: who is
// logged in may have gone.
func TestExemptIsWhatServesTheHost(t *testing.T) {
	address := netip.MustParseAddr
	of := backend.FollowedSet{ID: program.ExemptSet, Sets: []backend.FamilySet{{Name: "host.exempt_v4", Family: 4}, {Name: "host.exempt_v6", Family: 6}}}
	gone := address("203.0.113.9")
	last := map[string]program.Held{program.ExemptSet: {Addresses: []netip.Addr{address("192.0.2.53"), gone}}}
	f := &host.Facts{
		Gateways:  []netip.Addr{address("198.51.100.254"), address("fe80::1")},
		Resolvers: []netip.Addr{address("127.0.0.53"), address("192.0.2.53"), address("2001:db8::53")},
	}
	got := heldNow(f, []backend.FollowedSet{of}, last)[program.ExemptSet].Addresses
	want := []netip.Addr{address("192.0.2.53"), address("198.51.100.254"), gone, address("2001:db8::53")}
	if !slices.Equal(got, want) {
		t.Errorf("to be compared with: %v, want %v", got, want)
	}
	got = heldNow(f, []backend.FollowedSet{of}, nil)[program.ExemptSet].Addresses
	if want = slices.DeleteFunc(want, func(a netip.Addr) bool { return a == gone }); !slices.Equal(got, want) {
		t.Errorf("to be loaded: %v, want %v", got, want)
	}
}
