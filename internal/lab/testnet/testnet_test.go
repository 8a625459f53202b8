package testnet

import (
	"net/netip"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// twoHosts is a client and a server on one wire, both families.
func twoHosts(t *testing.T) (client, server *Namespace, c, s *Port) {
	t.Helper()
	n := New(t)
	client, server = n.Namespace("client"), n.Unnamed("server")
	c, s = n.Join(
		End{client, "eth0", []string{"192.0.2.2/24", "2001:db8:2::2/64"}},
		End{server, "eth0", []string{"192.0.2.1/24", "2001:db8:2::1/64"}},
	)
	return client, server, c, s
}

var families = []struct {
	name           string
	client, server netip.Addr
	v6             bool
}{
	{"ipv4", netip.MustParseAddr("192.0.2.2"), netip.MustParseAddr("192.0.2.1"), false},
	{"ipv6", netip.MustParseAddr("2001:db8:2::2"), netip.MustParseAddr("2001:db8:2::1"), true},
}

// enough is the patience where an answer is expected: a busy machine may take
// its time.
const enough = time.Minute

func at(a netip.Addr, port uint16) netip.AddrPort { return netip.AddrPortFrom(a, port) }

func TestTries(t *testing.T) {
	client, server, _, _ := twoHosts(t)
	server.ServeTCP("0.0.0.0:80", "[::]:80")
	server.ServeUDP("0.0.0.0:53", "[::]:53")
	server.Nft(`table inet t {
		chain c {
			type filter hook input priority 0;
			tcp dport 81 drop
			tcp dport 82 reject with icmpx port-unreachable
			tcp dport 83 reject with tcp reset
			udp dport 54 drop
			udp dport 55 reject with icmpx admin-prohibited
			icmp type echo-request ip saddr 192.0.2.77 drop
			icmpv6 type echo-request ip6 saddr 2001:db8:2::77 drop
		}
	}`)
	for _, f := range families {
		t.Run(f.name, func(t *testing.T) {
			patience := func(port uint16) time.Duration {
				if port == 81 || port == 54 {
					return Moment
				}
				return enough
			}
			tcp := func(port uint16) Result {
				return client.TryTCP(TCPTry{To: at(f.server, port), Message: "hello", Patience: patience(port)})
			}
			udp := func(port uint16) Result {
				return client.TryUDP(UDPTry{To: at(f.server, port), Message: "hello", Patience: patience(port)})
			}
			unreachable, prohibited := uint8(3), uint8(13)
			if f.v6 {
				unreachable, prohibited = 1, 1
			}
			portUnreachable := uint8(3)
			if f.v6 {
				portUnreachable = 4
			}
			for _, c := range []struct {
				name string
				got  Result
				want Result
			}{
				{"tcp open", tcp(80), Result{Outcome: Answered}},
				{"tcp nobody listens", tcp(84), Result{Outcome: Reset}},
				{"tcp dropped", tcp(81), Result{Outcome: Silent}},
				{"tcp rejected by ICMP", tcp(82), Result{Outcome: Unreachable, ICMPType: unreachable, ICMPCode: portUnreachable}},
				{"tcp rejected by reset", tcp(83), Result{Outcome: Reset}},
				{"udp open", udp(53), Result{Outcome: Answered}},
				{"udp nobody listens", udp(56), Result{Outcome: Unreachable, ICMPType: unreachable, ICMPCode: portUnreachable}},
				{"udp dropped", udp(54), Result{Outcome: Silent}},
				{"udp rejected", udp(55), Result{Outcome: Unreachable, ICMPType: unreachable, ICMPCode: prohibited}},
				{"echo", client.TryEcho(EchoTry{To: f.server, Patience: enough}), Result{Outcome: Answered}},
			} {
				if c.got.Outcome != c.want.Outcome || c.got.ICMPType != c.want.ICMPType || c.got.ICMPCode != c.want.ICMPCode {
					t.Errorf("%s: got %v, want %v", c.name, c.got, c.want)
				}
				if c.want.Outcome == Unreachable && c.got.ICMPFrom != f.server {
					t.Errorf("%s: ICMP error from %v, want %v", c.name, c.got.ICMPFrom, f.server)
				}
				if c.want.Outcome == Answered && !strings.HasPrefix(c.name, "echo") {
					if string(c.got.Reply) != "hello" || c.got.Peer != c.got.Local {
						t.Errorf("%s: reply %q, seen as %v, sent from %v", c.name, c.got.Reply, c.got.Peer, c.got.Local)
					}
				}
			}
		})
	}
}

func TestOwnAddressesAreSources(t *testing.T) {
	client, server, _, _ := twoHosts(t)
	client.Own("198.51.100.0/24", "2001:db8:51::/48")
	server.Route("198.51.100.0/24", "192.0.2.2")
	server.Route("2001:db8:51::/48", "2001:db8:2::2")
	server.ServeTCP("0.0.0.0:80", "[::]:80")
	server.ServeUDP("0.0.0.0:53", "[::]:53")
	for _, c := range []struct{ from, to string }{
		{"198.51.100.77", "192.0.2.1"},
		{"2001:db8:51::77", "2001:db8:2::1"},
	} {
		from, to := netip.MustParseAddr(c.from), netip.MustParseAddr(c.to)
		if r := client.TryTCP(TCPTry{From: at(from, 0), To: at(to, 80), Message: "x", Patience: enough}); r.Outcome != Answered || r.Peer.Addr() != from {
			t.Errorf("tcp from %s: %v, seen as %v", from, r, r.Peer)
		}
		if r := client.TryUDP(UDPTry{From: at(from, 4000), To: at(to, 53), Patience: enough}); r.Outcome != Answered || r.Peer != at(from, 4000) {
			t.Errorf("udp from %s: %v, seen as %v", from, r, r.Peer)
		}
		if r := client.TryEcho(EchoTry{From: from, To: to, Patience: enough}); r.Outcome != Answered {
			t.Errorf("echo from %s: %v", from, r)
		}
	}
}

func TestOpenConnection(t *testing.T) {
	client, server, _, _ := twoHosts(t)
	server.ServeTCP("0.0.0.0:80")
	r, conn := client.OpenTCP(TCPTry{To: at(families[0].server, 80), Patience: enough})
	if conn == nil {
		t.Fatal(r)
	}
	defer conn.Close()
	if r := conn.Exchange("one", enough); r.Outcome != Answered || string(r.Reply) != "one" {
		t.Errorf("first exchange: %v %q", r, r.Reply)
	}
	server.Nft("table inet t { chain c { type filter hook input priority 0; tcp dport 80 drop; }; }")
	if r := conn.Exchange("two", Moment); r.Outcome != Silent {
		t.Errorf("exchange after the port was closed: %v", r)
	}
}

func TestHandmadePackets(t *testing.T) {
	_, server, c, s := twoHosts(t)
	for _, f := range families {
		t.Run(f.name, func(t *testing.T) {
			icmp, errorKind := uint8(unix.IPPROTO_ICMP), uint8(3)
			if f.v6 {
				icmp, errorKind = unix.IPPROTO_ICMPV6, 2
			}
			listeners := map[uint8]*Listener{}
			for _, proto := range []uint8{unix.IPPROTO_TCP, unix.IPPROTO_UDP, 112, icmp} {
				listeners[proto] = server.Delivered(proto, f.v6)
			}
			capture := s.Capture()
			from, to := at(f.client, 4000), at(f.server, 80)
			big := UDP(from, to, make([]byte, 3000)...)
			quoted := TCP(to, from, "A")
			for _, p := range []struct {
				name    string
				packets [][]byte
				match   func(Seen) bool
			}{
				{"syn", [][]byte{SYN(from, to, 1300)}, func(s Seen) bool { return s.Flags == "S" && s.MSS == 1300 }},
				{"ack", [][]byte{TCP(from, to, "A", 'x')}, func(s Seen) bool { return s.Flags == "A" && string(s.Payload) == "x" }},
				{"reset", [][]byte{TCP(from, to, "RA")}, func(s Seen) bool { return s.Flags == "AR" }},
				{"udp", [][]byte{UDP(from, to, 'y')}, func(s Seen) bool { return s.Protocol == 17 && string(s.Payload) == "y" }},
				{"protocol 112", [][]byte{Protocol(f.client, f.server, 112, 1, 2, 3, 4)}, func(s Seen) bool { return s.Protocol == 112 && len(s.Payload) >= 4 }},
				{"echo", [][]byte{Echo(f.client, f.server, 9, 9)}, func(s Seen) bool { return s.Protocol == icmp && (s.ICMPType == 8 || s.ICMPType == 128) }},
				{"too big", [][]byte{TooBig(f.client, f.server, 1280, quoted)}, func(s Seen) bool { return s.Protocol == icmp && s.ICMPType == errorKind }},
			} {
				if err := c.Send(p.packets...); err != nil {
					t.Fatal(err)
				}
				if _, ok := capture.Wait(enough, p.match); !ok {
					t.Errorf("%s: not on the wire", p.name)
				}
				found := false
				for until := time.Now().Add(enough); !found && time.Now().Before(until); {
					for _, l := range listeners {
						if _, ok := l.Wait(20*time.Millisecond, p.match); ok {
							found = true
						}
					}
				}
				if !found {
					t.Errorf("%s: not delivered (bad checksum?)", p.name)
				}
			}
			if err := c.Send(Fragments(big, 7, 1200)...); err != nil {
				t.Fatal(err)
			}
			if _, ok := capture.Wait(enough, func(s Seen) bool { return s.Fragment }); !ok {
				t.Error("no fragment on the wire")
			}
			if _, ok := listeners[17].Wait(enough, func(s Seen) bool { return len(s.Payload) == 3000 }); !ok {
				t.Error("fragments were not put together")
			}
		})
	}
}

// What the kernel itself sends after a packet of ours shows that the packet was
// taken for what it is meant to be.
func TestKernelUnderstandsHandmadeICMPv6(t *testing.T) {
	_, server, c, s := twoHosts(t)
	capture := c.Capture()
	if err := c.SendTo([]byte{0x33, 0x33, 0xff, 0, 0, 1}, NeighborSolicitation(families[1].client, families[1].server, c.MAC)); err != nil {
		t.Fatal(err)
	}
	if _, ok := capture.Wait(enough, func(p Seen) bool { return !p.Outgoing && p.ICMPType == 136 }); !ok {
		t.Error("no neighbour advertisement in answer to a solicitation")
	}
	local, err := c.LinkLocal()
	if err != nil {
		t.Fatal(err)
	}
	delivered := server.Delivered(unix.IPPROTO_ICMPV6, true)
	all := []byte{0x33, 0x33, 0, 0, 0, 1}
	if err := c.SendTo(all, MLDQuery(local)); err != nil {
		t.Fatal(err)
	}
	if _, ok := capture.Wait(enough, func(p Seen) bool { return !p.Outgoing && p.ICMPType == 131 }); !ok {
		t.Error("no report of listeners in answer to a query")
	}
	if _, ok := delivered.Wait(enough, func(p Seen) bool { return p.ICMPType == 130 }); !ok {
		t.Error("the query was not delivered")
	}
	clientUDP := server.Delivered(unix.IPPROTO_UDP, false)
	if err := c.Send(DHCPAnswer(families[0].client, families[0].server, s.MAC)); err != nil {
		t.Fatal(err)
	}
	if _, ok := clientUDP.Wait(enough, func(p Seen) bool { return p.SourcePort == 67 && p.DestinationPort == 68 }); !ok {
		t.Error("DHCP answer was not delivered")
	}
	clientUDP6 := server.Delivered(unix.IPPROTO_UDP, true)
	server6, err := s.LinkLocal()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Send(DHCPv6Answer(local, server6)); err != nil {
		t.Fatal(err)
	}
	if _, ok := clientUDP6.Wait(enough, func(p Seen) bool { return p.SourcePort == 547 && p.DestinationPort == 546 }); !ok {
		t.Error("DHCPv6 answer was not delivered")
	}
}

func TestRouterAndBridge(t *testing.T) {
	n := New(t)
	router, outside, a, b := n.Unnamed("router"), n.Unnamed("outside"), n.Unnamed("a"), n.Unnamed("b")
	router.Forward()
	n.Join(End{router, "wan0", []string{"203.0.113.1/24", "2001:db8:1::1/64"}}, End{outside, "eth0", []string{"203.0.113.2/24", "2001:db8:1::2/64"}})
	pa, _ := n.Join(End{router, "port-a", nil}, End{a, "eth0", []string{"10.20.0.2/24", "fd00:20::2/64"}})
	pb, _ := n.Join(End{router, "port-b", nil}, End{b, "eth0", []string{"10.20.0.3/24", "fd00:20::3/64"}})
	router.Bridge("br0", []string{"10.20.0.1/24", "fd00:20::1/64"}, pa, pb)
	for _, s := range []*Namespace{a, b} {
		s.Route("default4", "10.20.0.1")
		s.Route("default6", "fd00:20::1")
	}
	outside.Route("10.20.0.0/16", "203.0.113.1")
	outside.Route("fd00:20::/64", "2001:db8:1::1")
	b.ServeTCP("10.20.0.3:80", "[fd00:20::3]:80")
	for from, s := range map[string]*Namespace{"neighbour on the bridge": a, "outside": outside} {
		for _, to := range []string{"10.20.0.3:80", "[fd00:20::3]:80"} {
			if r := s.TryTCP(TCPTry{To: netip.MustParseAddrPort(to), Message: "x", Patience: enough}); r.Outcome != Answered {
				t.Errorf("%s to %s: %v", from, to, r)
			}
		}
	}
}

func TestParseRefusesRubbish(t *testing.T) {
	for _, b := range [][]byte{nil, {0}, {0x45}, {0x60, 1}, []byte("this is not a packet at all")} {
		if p, err := Parse(b); err == nil {
			t.Errorf("%v was read as %v", b, p)
		}
	}
}

func FuzzParse(f *testing.F) {
	v4, v6 := families[0], families[1]
	f.Add(SYN(at(v4.client, 1), at(v4.server, 2), 1460))
	f.Add(UDP(at(v6.client, 1), at(v6.server, 2), 'x'))
	f.Add(MLDQuery(v6.client))
	f.Add(Fragments(UDP(at(v6.client, 1), at(v6.server, 2), make([]byte, 100)...), 1, 48)[1])
	f.Fuzz(func(t *testing.T, b []byte) {
		if p, err := Parse(b); err == nil && !p.Source.IsValid() {
			t.Errorf("no source in %v", p)
		}
	})
}
