package kerneltest

import (
	"errors"
	"net/netip"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"sluice/internal/lab/testnet"
)

// What always holds, without being written: with everything closed, the
// packets that IP cannot work without still pass.

const closed = `
input: { default: drop }
output: { default: drop }
forward: { default: drop }
`

func TestAlwaysLoopback(t *testing.T) {
	c := newTown(t)
	apply(t, c.host, closed)
	c.try(t, `
		host > host tcp/80     = answered
		host > host udp/53     = answered
		host > host ping       = answered
		host > second tcp/80   = answered
		gateway > host tcp/80  = answered
		stranger > host tcp/80 = silent
		host > stranger tcp/80 = silent
	`, false)
	for _, a := range []string{"127.0.0.1:80", "127.1.2.3:80", "[::1]:80"} {
		if r := c.host.TryTCP(testnet.TCPTry{To: netip.MustParseAddrPort(a), Message: "x", Patience: enough}); r.Outcome != testnet.Answered {
			t.Errorf("%s: %v", a, r)
		}
	}
	for _, e := range entries(t, c.host) {
		if mentions(e, netip.MustParseAddr("127.0.0.1")) || mentions(e, netip.IPv6Loopback()) {
			t.Errorf("loopback is tracked: %+v", e)
		}
	}
}

// A packet that says it is from loopback and comes from outside is not
// loopback.
func TestAlwaysLoopbackIsAnInterface(t *testing.T) {
	c := newTown(t)
	c.host.Sysctl("net.ipv4.conf.wan0.route_localnet", "1")
	apply(t, c.host, closed)
	delivered := c.host.Delivered(17, false)
	mustSend(t, c.street, testnet.UDP(netip.MustParseAddrPort("127.0.0.9:5000"), at(place("host", false), 53)))
	if _, seen := delivered.Wait(short, testnet.From(netip.MustParseAddr("127.0.0.9"))); seen {
		t.Error("a packet from outside with a source of loopback was taken in")
	}
}

func TestAlwaysForeignNATKeepsLoopbackTracked(t *testing.T) {
	c := newTown(t)
	c.host.Sysctl("net.ipv4.conf.all.route_localnet", "1")
	c.host.Nft(`table ip engine {
		chain out { type nat hook output priority -100; ip daddr 127.0.0.0/8 tcp dport 8081 dnat to 10.20.0.5:80; }
		chain post { type nat hook postrouting priority 100; ip saddr 127.0.0.0/8 oif lan0 masquerade; }
	}`)
	apply(t, c.host, "input: { default: drop }\n")
	if r := c.host.TryTCP(testnet.TCPTry{To: netip.MustParseAddrPort("127.0.0.1:8081"), Message: "x", Patience: enough}); r.Outcome != testnet.Answered {
		t.Errorf("a port that another tool publishes on loopback: %v", r)
	}
}

// Errors of ICMP pass where they are about a connection that the host knows, or about
// what keeps no state; of the others none reaches a machine behind the host, unless
// the policy lets all pass. Path MTU discovery needs no more.
func TestAlwaysICMPErrors(t *testing.T) {
	const sections = "input: { default: drop, rules: [allow http] }\noutput: { default: drop }\n" +
		"zones: { lan: { interfaces: [lan0] } }\nforward: { default: drop, rules: [allow udp/53 in lan] }\n"
	for _, c := range []struct {
		name, policy                                    string
		known, unasked, bypassed, mapped, said, through bool
	}{
		{name: "nothing bypasses", policy: sections, known: true},
		{name: "a bypass", policy: "tracking: { bypass: [http] }\n" + sections, known: true, unasked: true, bypassed: true, said: true},
		{name: "a bypass of another address", policy: "tracking: { bypass: [\"http to [gateway4, gateway6]\"] }\n" + sections, known: true, said: true},
		{name: "a bypass of this address", policy: "tracking: { bypass: [\"http to [host4, host6]\"] }\n" + sections, known: true, unasked: true, bypassed: true, said: true},
		{name: "a map without state", policy: sections + "nat: [map outer4 to inner4 stateless, \"map outer6 to inner6 stateless\"]\n", known: true, mapped: true, said: true},
		{name: "all", policy: "tracking: { icmp-errors: all }\n" + sections, known: true, unasked: true, bypassed: true, said: true, through: true},
		{name: "invalid goes to the rules", policy: "tracking: { invalid: allow }\n" + sections, known: true},
	} {
		t.Run(c.name, func(t *testing.T) {
			n := newTown(t)
			apply(t, n.host, strings.NewReplacer(
				"gateway4", "10.20.0.1", "gateway6", "2001:db8:20::1", "host4", "198.51.100.1", "host6", "2001:db8:100::1",
				"outer4", "198.51.100.32/28", "inner4", "10.20.0.0/28", "outer6", "2001:db8:100:f::/64", "inner6", "2001:db8:20::/64",
			).Replace(c.policy))
			for _, v6 := range []bool{false, true} {
				n.icmpErrors(t, v6, map[string]bool{
					"about a forwarded connection": c.known, "about http": c.bypassed, "about no connection": c.unasked,
					"to a mapped machine": c.mapped, "of the host": c.said, "to an inner machine": c.through,
				})
			}
		})
	}
}

// icmpErrors sends an error of each kind, and checks whether it arrives.
func (c *town) icmpErrors(t *testing.T, v6 bool, want map[string]bool) {
	t.Helper()
	proto, kind := uint8(1), uint8(3)
	if v6 {
		proto, kind = 58, 2
	}
	router, host, inside, stranger := place("outside", v6), place("host", v6), place("inside", v6), place("stranger", v6)
	hold := func(name string, w waiter, from netip.Addr, send func() error) {
		t.Helper()
		if err := send(); err != nil {
			t.Fatal(err)
		}
		_, got := w.Wait(patience(want[name]), func(s testnet.Seen) bool { return s.ICMPType == kind && s.Source == from })
		if got != want[name] {
			t.Errorf("IPv6 %t: an error %s passed: %t, want %t", v6, name, got, want[name])
		}
	}
	about := func(from, to netip.AddrPort, target netip.Addr) func() error {
		quoted := testnet.TCP(from, to, "A", make([]byte, 600)...)
		return func() error { return c.street.Send(testnet.TooBig(router, target, 1280, quoted)) }
	}
	hold("about http", c.host.Delivered(proto, v6), router, about(at(host, 80), at(stranger, 40000), host))
	hold("about no connection", c.host.Delivered(proto, v6), router, about(at(host, 22), at(stranger, 40001), host))
	hold("to an inner machine", c.yard.Capture(), router, about(at(inside, 80), at(stranger, 40002), inside))

	asked := testnet.UDP(at(inside, 4000), at(stranger, 53), make([]byte, 600)...)
	left := c.street.Capture()
	mustSend(t, c.yard, asked)
	if _, seen := left.Wait(enough, func(s testnet.Seen) bool { return s.Protocol == unix.IPPROTO_UDP && s.To() == at(stranger, 53) }); !seen {
		t.Fatalf("IPv6 %t: the question did not leave", v6)
	}
	// What is mapped without state leaves by another address, and has no connection.
	if mapped := place("mapped", v6); want["to a mapped machine"] {
		hold("to a mapped machine", c.yard.Capture(), router, about(at(mapped, 80), at(stranger, 40003), mapped))
	} else {
		hold("about a forwarded connection", c.yard.Capture(), router, func() error { return c.street.Send(testnet.TooBig(router, inside, 1280, asked)) })
	}
	raw := testnet.TooBig(host, stranger, 1280, testnet.TCP(at(stranger, 40004), at(host, 80), "A", make([]byte, 600)...))
	hold("of the host", c.street.Capture(), host, func() error { return sendRaw(c.host, raw) })
}

// sendRaw sends a packet that a program of the host has made, header and all.
func sendRaw(s *testnet.Namespace, b []byte) error {
	family, to := unix.AF_INET, unix.Sockaddr(&unix.SockaddrInet4{Addr: [4]byte(b[16:20])})
	if b[0]>>4 == 6 {
		family, to = unix.AF_INET6, &unix.SockaddrInet6{Addr: [16]byte(b[24:40])}
	}
	return s.Do(func() error {
		fd, err := unix.Socket(family, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.IPPROTO_RAW)
		if err != nil {
			return err
		}
		defer func() { _ = unix.Close(fd) }()
		if err := unix.Sendto(fd, b, 0, to); !errors.Is(err, unix.EPERM) { // which says that output refused it
			return err
		}
		return nil
	})
}

// waiter is what sees packets.
type waiter interface {
	Wait(time.Duration, func(testnet.Seen) bool) (testnet.Seen, bool)
}

// Neighbours find each other, and multicast listeners report, with input and
// output closed.
func TestAlwaysNeighbourDiscoveryAndMLD(t *testing.T) {
	c := newTown(t)
	apply(t, c.host, closed)
	seen := c.street.Capture()
	group := []byte{0x33, 0x33, 0xff, 0, 0, 1}
	if err := c.street.SendTo(group, testnet.NeighborSolicitation(place("outside", true), place("host", true), c.street.MAC)); err != nil {
		t.Fatal(err)
	}
	if _, ok := seen.Wait(enough, func(s testnet.Seen) bool { return !s.Outgoing && s.ICMPType == 136 }); !ok {
		t.Error("the host does not answer a neighbour solicitation")
	}
	// The host asks for a neighbour itself.
	_ = c.host.TryUDP(testnet.UDPTry{To: netip.MustParseAddrPort("[2001:db8:100::dead]:53"), Patience: short})
	local, err := c.street.LinkLocal()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.street.SendTo([]byte{0x33, 0x33, 0, 0, 0, 1}, testnet.MLDQuery(local)); err != nil {
		t.Fatal(err)
	}
	if _, ok := seen.Wait(enough, func(s testnet.Seen) bool { return !s.Outgoing && (s.ICMPType == 131 || s.ICMPType == 143) }); !ok {
		t.Error("the host does not report its groups to a multicast listener query")
	}
	delivered := c.host.Delivered(58, true)
	// Neighbour discovery from farther than the link is no neighbour discovery.
	mustSend(t, c.street, testnet.ICMP(place("stranger", true), place("host", true), 136, 0, make([]byte, 20)...))
	if _, ok := delivered.Wait(short, testnet.From(place("stranger", true))); ok {
		t.Error("a neighbour advertisement with hop limit 64 passed")
	}
}

func TestAlwaysDHCPAnswers(t *testing.T) {
	c := newTown(t)
	apply(t, c.host, closed)
	v4, v6 := c.host.Delivered(17, false), c.host.Delivered(17, true)
	server, err := c.street.LinkLocal()
	if err != nil {
		t.Fatal(err)
	}
	client, err := c.wan.LinkLocal()
	if err != nil {
		t.Fatal(err)
	}
	far := place("stranger", true)
	mustSend(t, c.street,
		testnet.DHCPAnswer(place("outside", false), place("host", false), c.wan.MAC),
		testnet.DHCPv6Answer(server, client),
		testnet.DHCPv6Answer(far, client),
		testnet.UDP(at(place("stranger", false), 5000), at(place("host", false), 68)),
	)
	if _, ok := v4.Wait(enough, func(s testnet.Seen) bool { return s.SourcePort == 67 && s.DestinationPort == 68 }); !ok {
		t.Error("the answer of a DHCP server was dropped")
	}
	if _, ok := v6.Wait(enough, func(s testnet.Seen) bool { return s.SourcePort == 547 && s.Source == server }); !ok {
		t.Error("the answer of a DHCPv6 server was dropped")
	}
	if _, ok := v6.Wait(short, testnet.From(far)); ok {
		t.Error("a DHCPv6 answer from beyond the link passed")
	}
	if _, ok := v4.Wait(short, testnet.From(place("stranger", false))); ok {
		t.Error("a packet to port 68 that is not a DHCP answer passed")
	}
}

// Replies are decided before any set or rule.
func TestAlwaysRepliesFirst(t *testing.T) {
	c := newTown(t)
	apply(t, c.host, office+`
input:
  default: drop
  rules:
    - drop any from not office
    - allow http
output:
  default: drop
  rules: [allow http, allow dns, allow ping]
`)
	c.try(t, `
		host > stranger tcp/80 = answered
		host > stranger udp/53 = answered
		host > stranger ping   = answered
		office > host tcp/80   = answered
		stranger > host tcp/80 = silent
	`, false)
}

// Fragments are judged as the packet that they make, tracked or not.
func TestAlwaysFragments(t *testing.T) {
	for name, policy := range map[string]string{
		"tracked":  "input: { default: drop, rules: [allow udp/53] }\n",
		"bypassed": "tracking: { bypass: [udp/53] }\ninput: { default: drop, rules: [allow udp/53] }\n",
	} {
		t.Run(name, func(t *testing.T) {
			c := newTown(t)
			apply(t, c.host, policy)
			for _, v6 := range []bool{false, true} {
				delivered := c.host.Delivered(17, v6)
				for port, want := range map[uint16]bool{53: true, 54: false} {
					from := at(place("stranger", v6), 5000+port)
					packet := testnet.UDP(from, at(place("host", v6), port), make([]byte, 3000)...)
					mustSend(t, c.street, testnet.Fragments(packet, uint32(port), 1200)...)
					if _, seen := delivered.Wait(patience(want), func(s testnet.Seen) bool { return s.SourcePort == from.Port() }); seen != want {
						t.Errorf("IPv6 %t, port %d: delivered %t", v6, port, seen)
					}
				}
			}
		})
	}
}

// Protocols without ports go by their number.
func TestWordProtocol(t *testing.T) {
	c := newTown(t)
	apply(t, c.host, office+`
services: { heartbeat: proto/200 }
input:
  default: drop
  rules:
    - allow vrrp from office
    - allow heartbeat
`)
	for _, v6 := range []bool{false, true} {
		for _, try := range []struct {
			proto uint8
			from  string
			want  bool
		}{{112, "office", true}, {112, "stranger", false}, {200, "stranger", true}, {201, "stranger", false}} {
			delivered := c.host.Delivered(try.proto, v6)
			mustSend(t, c.street, testnet.Protocol(place(try.from, v6), place("host", v6), try.proto, 1, 2, 3, 4))
			if _, seen := delivered.Wait(patience(try.want), testnet.From(place(try.from, v6))); seen != try.want {
				t.Errorf("IPv6 %t: protocol %d from %s delivered %t", v6, try.proto, try.from, seen)
			}
		}
	}
}
