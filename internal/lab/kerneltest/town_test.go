package kerneltest

import (
	"net/netip"
	"testing"

	"sluice/internal/lab/testnet"
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
	wan, lan              *testnet.Port                 // of the host
	street, yard          *testnet.Port                 // their other ends
	homes                 map[string]*testnet.Namespace // of places beyond those
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
	case !ok, v6 && p.v6 == "", !v6 && p.v4 == "":
		return netip.Addr{}
	case v6:
		return netip.MustParseAddr(p.v6)
	}
	return netip.MustParseAddr(p.v4)
}

// places of single examples
func init() {
	for name, addresses := range map[string]struct{ v4, v6 string }{
		"partner":    {"198.51.100.3", "2001:db8:100::3"},
		"dmz":        {"10.20.1.5", "2001:db8:20:1::5"},
		"dmz-db":     {"10.20.1.6", "2001:db8:20:1::6"},
		"dmz-outer":  {"198.51.100.21", ""},
		"db-outer":   {"198.51.100.22", ""},
		"web-vm":     {"10.30.0.11", "2001:db8:30::11"},
		"db-vm":      {"10.30.0.12", "2001:db8:30::12"},
		"other-vm":   {"10.30.0.13", "2001:db8:30::13"},
		"vm-gateway": {"10.30.0.1", "2001:db8:30::1"},
		"web-outer":  {"198.51.100.11", ""},
		"container":  {"172.17.0.2", "2001:db8:17::2"},
		"neighbour":  {"172.17.0.3", "2001:db8:17::3"},
		"engine":     {"172.17.0.1", "2001:db8:17::1"},
	} {
		places[name] = addresses
	}
}

// openPorts are served by echo servers on the host, outside and inside, over
// TCP and UDP, both families.
var openPorts = []string{"22", "25", "53", "80", "443", "5432", "8080", "9000"}

func newTown(t *testing.T) *town {
	t.Helper()
	testnet.Require(t, testnet.Namespaces, testnet.Nftables, testnet.NftNAT)
	n := testnet.New(t)
	c := &town{net: n, homes: map[string]*testnet.Namespace{}, host: n.Namespace("host"), outside: n.Unnamed("outside"), inside: n.Unnamed("inside")}
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
		serve(s, openPorts...)
	}
	return c
}

func serve(s *testnet.Namespace, ports ...string) {
	for _, port := range ports {
		s.ServeTCP("0.0.0.0:"+port, "[::]:"+port)
		s.ServeUDP("0.0.0.0:"+port, "[::]:"+port)
	}
}

// machine adds a host behind a device of c.host, with point-to-point addresses
// as virtual machines have them; "" leaves a family out.
func (c *town) machine(label, device, own4, gateway4, own6, gateway6 string) *testnet.Namespace {
	s := c.net.Unnamed(label)
	c.net.Join(
		testnet.End{In: c.host, Device: device, Addresses: []string{gateway4 + "/32", gateway6 + "/128"}},
		testnet.End{In: s, Device: "eth0", Addresses: []string{own4 + "/32", own6 + "/128"}},
	)
	c.host.Route(own4+"/32", "dev "+device)
	c.host.Route(own6+"/128", "dev "+device)
	s.Route(gateway4+"/32", "dev eth0")
	s.Route(gateway6+"/128", "dev eth0")
	s.Route("default4", gateway4)
	s.Route("default6", gateway6)
	serve(s, openPorts...)
	return s
}

// home is the namespace where somebody lives.
func (c *town) home(name string) *testnet.Namespace {
	if s := c.homes[name]; s != nil {
		return s
	}
	switch name {
	case "host", "second", "gateway":
		return c.host
	case "inside", "inside2", "elsewhere":
		return c.inside
	}
	return c.outside
}
