package compile

import (
	"net/netip"
	"testing"

	"sluice/internal/host"
	"sluice/internal/policy"
	"sluice/internal/resolve"
)

// TestExemptFromBansByLimits: who is logged in, routers and name servers are banned by
// no limit, in both families.
func TestExemptFromBansByLimits(t *testing.T) {
	p, err := policy.Parse("policy.yaml", []byte("version: 1\ninput: { default: drop, rules: [allow udp/53 limit 6/30s per source then ban 10m] }\n"))
	if err != nil {
		t.Fatal(err)
	}
	address := netip.MustParseAddr
	exempt := []netip.Addr{address("203.0.113.9"), address("2001:db8:9::9"), address("198.51.100.254"), address("2001:db8:100::fe"), address("192.0.2.53"), address("2001:db8::53")}
	facts := host.Facts{
		Known:    true,
		SSHPeers: []host.SSHPeer{{Remote: netip.AddrPortFrom(exempt[0], 40000)}, {Remote: netip.AddrPortFrom(exempt[1], 40000)}},
		Gateways: exempt[2:4], Resolvers: exempt[4:],
	}
	r := &resolve.Resolved{Policy: p, Facts: facts}
	c, err := Compile(r)
	if err != nil {
		t.Fatal(err)
	}
	never := c.Set(neverBanSet)
	if never == nil {
		t.Fatal("no limit has a set of what it never bans")
	}
	for _, a := range exempt {
		if !never.Addresses.Contains(a) {
			t.Errorf("%s can be banned by a limit", a)
		}
	}
	if a := address("203.0.113.10"); never.Addresses.Contains(a) {
		t.Errorf("%s cannot be banned", a)
	}
}
