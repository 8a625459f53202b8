package kerneltest

import (
	"net/netip"
	"testing"

	"sluice/internal/testnet"
)

// town is the network that the words of the language are tried in:
//
//	outside ── wan0 host lan0 ── inside
//
// The host routes. Outside is the whole internet: it owns the networks of the
// office, of strangers and of a few others, and has servers. Inside is a small
// network behind the host.
type town struct {
	net                   *testnet.Net
	host, outside, inside *testnet.Namespace
	wan, lan              *testnet.Port // of the host
	street, yard          *testnet.Port // their other ends
}

// places are the addresses that the tables name.
var places = map[string]struct{ v4, v6 string }{
	"host":      {"198.51.100.1", "2001:db8:100::1"},    // the host on wan0
	"second":    {"198.51.100.9", "2001:db8:100::9"},    // its second address there
	"gateway":   {"10.20.0.1", "2001:db8:20::1"},        // the host on lan0
	"outside":   {"198.51.100.254", "2001:db8:100::fe"}, // the provider's router
	"office":    {"203.0.113.7", "2001:db8:77::7"},
	"office2":   {"203.0.113.8", "2001:db8:77:1::8"}, // in another /64 than office
	"stranger":  {"192.0.2.7", "2001:db8:99::7"},
	"villain":   {"192.0.2.66", "2001:db8:bad::66"},
	"inside":    {"10.20.0.5", "2001:db8:20::5"},
	"inside2":   {"10.20.0.6", "2001:db8:20::6"},
	"elsewhere": {"10.99.0.5", "2001:db8:aaaa::5"}, // inside, of a network that is not the lan's
	"mapped":    {"198.51.100.37", "2001:db8:100:f::5"},
}

func place(name string, v6 bool) netip.Addr {
	p, ok := places[name]
	switch {
	case !ok:
		return netip.Addr{}
	case v6:
		return netip.MustParseAddr(p.v6)
	}
	return netip.MustParseAddr(p.v4)
}

// openPorts are served by echo servers on the host, outside and inside, over
// TCP and UDP, both families.
var openPorts = []string{"22", "25", "53", "80", "443", "5432", "8080", "9000"}

func newTown(t *testing.T) *town {
	t.Helper()
	testnet.Require(t, testnet.Namespaces, testnet.Nftables, testnet.NftNAT)
	n := testnet.New(t)
	c := &town{net: n, host: n.Namespace("host"), outside: n.Unnamed("outside"), inside: n.Unnamed("inside")}
	c.host.Forward()
	c.wan, c.street = n.Join(
		testnet.End{In: c.host, Device: "wan0", Addresses: []string{"198.51.100.1/24", "198.51.100.9/24", "2001:db8:100::9/64", "2001:db8:100::1/64"}},
		testnet.End{In: c.outside, Device: "eth0", Addresses: []string{"198.51.100.254/24", "2001:db8:100::fe/64"}},
	)
	c.lan, c.yard = n.Join(
		testnet.End{In: c.host, Device: "lan0", Addresses: []string{"10.20.0.1/24", "2001:db8:20::1/64"}},
		testnet.End{In: c.inside, Device: "eth0", Addresses: []string{"10.20.0.5/24", "10.20.0.6/24", "2001:db8:20::5/64", "2001:db8:20::6/64"}},
	)
	c.host.Route("default4", "198.51.100.254")
	c.host.Route("default6", "2001:db8:100::fe")
	c.inside.Route("default4", "10.20.0.1")
	c.inside.Route("default6", "2001:db8:20::1")

	c.outside.Own("203.0.113.0/24", "192.0.2.0/24", "2001:db8:77::/48", "2001:db8:99::/48", "2001:db8:bad::/48")
	c.outside.Route("10.0.0.0/8", "198.51.100.1")
	c.outside.Route("198.51.100.32/28", "198.51.100.1")
	c.outside.Route("2001:db8:100:f::/64", "2001:db8:100::1")
	c.outside.Route("2001:db8:20::/64", "2001:db8:100::1")
	c.outside.Route("2001:db8:aaaa::/64", "2001:db8:100::1")

	c.inside.Own("10.99.0.0/24", "2001:db8:aaaa::/64")
	c.host.Route("10.99.0.0/24", "10.20.0.5")
	c.host.Route("2001:db8:aaaa::/64", "2001:db8:20::5")

	for _, s := range []*testnet.Namespace{c.host, c.outside, c.inside} {
		for _, port := range openPorts {
			s.ServeTCP("0.0.0.0:"+port, "[::]:"+port)
			s.ServeUDP("0.0.0.0:"+port, "[::]:"+port)
		}
	}
	return c
}

// home is the namespace where somebody lives.
func (c *town) home(name string) *testnet.Namespace {
	switch name {
	case "host", "second", "gateway":
		return c.host
	case "inside", "inside2", "elsewhere":
		return c.inside
	}
	return c.outside
}
