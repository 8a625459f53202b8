package kerneltest

import (
	"net/netip"
	"testing"

	"sluice/internal/testnet"
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
	for _, e := range conntrack(t, c.host) {
		if e.mentions(netip.MustParseAddr("127.0.0.1")) || e.mentions(netip.IPv6Loopback()) {
			t.Errorf("loopback is tracked: %s", e)
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
	if err := c.street.Send(testnet.UDP(netip.MustParseAddrPort("127.0.0.9:5000"), at(place("host", false), 53))); err != nil {
		t.Fatal(err)
	}
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

// Path MTU discovery and the like work for tracked and for bypassed services,
// to the host and through it.
func TestAlwaysICMPErrors(t *testing.T) {
	c := newTown(t)
	apply(t, c.host, `
tracking: { bypass: [http] }
input: { default: drop, rules: [allow http] }
forward: { default: drop }
`)
	for _, v6 := range []bool{false, true} {
		proto, kind := uint8(1), uint8(3)
		if v6 {
			proto, kind = 58, 2
		}
		router := place("outside", v6)
		for _, port := range []uint16{80, 22} {
			delivered := c.host.Delivered(proto, v6)
			quoted := testnet.TCP(at(place("host", v6), port), at(place("stranger", v6), 40000), "A", make([]byte, 600)...)
			if err := c.street.Send(testnet.TooBig(router, place("host", v6), 1280, quoted)); err != nil {
				t.Fatal(err)
			}
			if _, seen := delivered.Wait(enough, func(s testnet.Seen) bool { return s.ICMPType == kind && s.Source == router }); !seen {
				t.Errorf("IPv6 %t: an error about port %d was dropped", v6, port)
			}
		}
		through := c.yard.Capture()
		quoted := testnet.TCP(at(place("inside", v6), 80), at(place("stranger", v6), 40000), "A", make([]byte, 600)...)
		if err := c.street.Send(testnet.TooBig(router, place("inside", v6), 1280, quoted)); err != nil {
			t.Fatal(err)
		}
		if _, seen := through.Wait(enough, func(s testnet.Seen) bool { return s.ICMPType == kind && s.Source == router }); !seen {
			t.Errorf("IPv6 %t: an error about forwarded traffic was dropped", v6)
		}
	}
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
	if err := c.street.Send(testnet.ICMP(place("stranger", true), place("host", true), 136, 0, make([]byte, 20)...)); err != nil {
		t.Fatal(err)
	}
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
	if err := c.street.Send(
		testnet.DHCPAnswer(place("outside", false), place("host", false), c.wan.MAC),
		testnet.DHCPv6Answer(server, client),
		testnet.DHCPv6Answer(far, client),
		testnet.UDP(at(place("stranger", false), 5000), at(place("host", false), 68)),
	); err != nil {
		t.Fatal(err)
	}
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
		t.Error("a packet to port 68 that is no DHCP answer passed")
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
					if err := c.street.Send(testnet.Fragments(packet, uint32(port), 1200)...); err != nil {
						t.Fatal(err)
					}
					patience := enough
					if !want {
						patience = short
					}
					if _, seen := delivered.Wait(patience, func(s testnet.Seen) bool { return s.SourcePort == from.Port() }); seen != want {
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
			if err := c.street.Send(testnet.Protocol(place(try.from, v6), place("host", v6), try.proto, 1, 2, 3, 4)); err != nil {
				t.Fatal(err)
			}
			patience := enough
			if !try.want {
				patience = short
			}
			if _, seen := delivered.Wait(patience, testnet.From(place(try.from, v6))); seen != try.want {
				t.Errorf("IPv6 %t: protocol %d from %s delivered %t", v6, try.proto, try.from, seen)
			}
		}
	}
}
