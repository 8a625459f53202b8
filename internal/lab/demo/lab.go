package demo

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"sluice/internal/lab/testnet"
	"sluice/internal/language/geo"
)

// Addresses of the host that Sluice protects.
var (
	host4 = netip.MustParseAddr("198.51.100.10")
	host6 = netip.MustParseAddr("2001:db8:100::10")
)

// The office that the example names, with a machine in it.
var (
	office4 = netip.MustParsePrefix("203.0.113.7/24")
	office6 = netip.MustParsePrefix("2001:db8:77::7/64")
)

// resolver4 is a resolver that many hosts use and that lies outside of Europe.
var resolver4 = netip.MustParseAddr("8.8.8.8")

// client is a machine somewhere on the internet.
type client struct {
	space   *testnet.Namespace
	name    string // of its country, or "the office"
	v4, v6  netip.Addr
	allowed bool // by its country
	office  bool // by its address
	// pictured says that its rows are in the picture.
	pictured bool
}

// lab is the small internet of the demo: everybody is connected to one router.
//
//	host ── router ── client of Germany, of Norway, ...
//	          └────── resolver 8.8.8.8
type lab struct {
	net      *testnet.Net
	router   *testnet.Namespace
	host     *testnet.Namespace
	resolver *testnet.Namespace
	clients  []*client
	links    int
}

// build is a set-up function for testnet.Net.Try.
func (l *lab) build(db *geo.Database, allowed, refused []string) error {
	l.router = l.net.Namespace("router")
	l.router.Forward()
	l.host = l.attach("host", netip.PrefixFrom(host4, 24), netip.PrefixFrom(host6, 64))
	l.resolver = l.attach("resolver", netip.PrefixFrom(resolver4, 24))
	for i, code := range slices.Concat(allowed, refused) {
		v4, v6, err := addressesIn(db, code)
		if err != nil {
			return err
		}
		c := &client{name: geo.CountryOf(code).Name, v4: v4.Addr(), v6: v6.Addr(), allowed: i < len(allowed), pictured: i == 0 || i == len(allowed)}
		c.space = l.attach("client-"+strings.ToLower(code), v4, v6)
		l.clients = append(l.clients, c)
	}
	l.clients = append(l.clients, &client{
		space: l.attach("office", office4, office6), name: "the office",
		v4: office4.Addr(), v6: office6.Addr(), office: true,
	})
	return nil
}

func (l *lab) client(name string) *client {
	i := slices.IndexFunc(l.clients, func(c *client) bool { return c.name == name })
	return l.clients[i]
}

// attach makes a namespace with one device, wan, on a network of its own; the
// first address of each network is the router's.
func (l *lab) attach(label string, addresses ...netip.Prefix) *testnet.Namespace {
	return l.attached(label, addresses...).Namespace
}

// attached is attach, and returns the device.
func (l *lab) attached(label string, addresses ...netip.Prefix) *testnet.Port {
	s := l.net.Namespace(label)
	l.links++
	near := testnet.End{In: s, Device: "wan"}
	far := testnet.End{In: l.router, Device: fmt.Sprintf("link%d", l.links)}
	for _, p := range addresses {
		gateway := netip.PrefixFrom(p.Masked().Addr().Next(), p.Bits())
		near.Addresses = append(near.Addresses, p.String())
		far.Addresses = append(far.Addresses, gateway.String())
	}
	wan, _ := l.net.Join(near, far)
	for _, p := range addresses {
		family := "default4"
		if p.Addr().Is6() {
			family = "default6"
		}
		s.Route(family, p.Masked().Addr().Next().String())
	}
	return wan
}

// addressesIn picks an address of each family that the data say is of the
// country: the tenth of its largest network.
func addressesIn(db *geo.Database, code string) (v4, v6 netip.Prefix, err error) {
	set, err := db.Countries(code)
	if err != nil {
		return v4, v6, err
	}
	for p := range set.EachPrefix() {
		largest := &v6
		if p.Addr().Is4() {
			largest = &v4
		}
		if !largest.IsValid() || p.Bits() < largest.Bits() {
			*largest = p
		}
	}
	if !v4.IsValid() || !v6.IsValid() || v4.Bits() > 24 || v6.Bits() > 64 {
		return v4, v6, fmt.Errorf("the country data have no network of %s that is large enough", code)
	}
	return tenth(v4, 24), tenth(v6, 64), nil
}

func tenth(p netip.Prefix, bits int) netip.Prefix {
	a := p.Addr()
	for range 10 {
		a = a.Next()
	}
	return netip.PrefixFrom(a, bits)
}
