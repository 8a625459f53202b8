package host_test

import (
	"net"
	"net/netip"
	"slices"
	"testing"

	"sluice/internal/lab/testnet"
	"sluice/internal/system/host"
)

// Who asks from a port of its own is found by its sockets, in both families; who asks
// from a port that the kernel gave, and who was asked, is not.
func TestAskers(t *testing.T) {
	n := testnet.New(t)
	h, peer := n.Namespace("askers"), n.Namespace("asked")
	n.Join(testnet.End{In: h, Device: "wan0", Addresses: []string{"192.0.2.2/24", "2001:db8::2/64"}},
		testnet.End{In: peer, Device: "up0", Addresses: []string{"192.0.2.1/24", "2001:db8::1/64"}})
	keep := func(c interface{ Close() error }, err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
	}
	in := func(s *testnet.Namespace, do func()) {
		t.Helper()
		if err := s.Do(func() error { do(); return nil }); err != nil {
			t.Fatal(err)
		}
	}
	in(peer, func() { keep(net.Listen("tcp", ":2049")) })
	in(h, func() {
		for _, remote := range []string{"192.0.2.1:123", "[2001:db8::1]:123"} {
			to := net.UDPAddrFromAddrPort(netip.MustParseAddrPort(remote))
			local := "192.0.2.2"
			if to.IP.To4() == nil {
				local = "2001:db8::2"
			}
			keep(net.DialUDP("udp", &net.UDPAddr{IP: net.ParseIP(local), Port: 123}, to))
		}
		keep(net.ListenPacket("udp", ":500"))
		keep(net.ListenPacket("udp", ":5353"))
		keep(net.Dial("udp", "192.0.2.1:53"))
		keep(net.Dial("udp", "127.0.0.1:123"))
		keep(net.Listen("tcp", ":800"))
		keep(net.DialTCP("tcp", &net.TCPAddr{IP: net.ParseIP("192.0.2.2"), Port: 801}, &net.TCPAddr{IP: net.ParseIP("192.0.2.1"), Port: 2049}))
	})
	in(peer, func() { keep(net.Dial("tcp", "192.0.2.2:800")) })
	var got []host.Asker
	for _, a := range describe(t, h).Askers {
		if a.Name == "" {
			t.Errorf("%+v has no name", a)
		}
		a.Name = ""
		got = append(got, a)
	}
	to := func(texts ...string) (out []netip.AddrPort) {
		for _, text := range texts {
			out = append(out, netip.MustParseAddrPort(text))
		}
		return out
	}
	want := []host.Asker{
		{Protocol: "tcp", Port: 801, Peers: to("192.0.2.1:2049")},
		{Protocol: "udp", Port: 123, Peers: to("192.0.2.1:123", "[2001:db8::1]:123")},
		{Protocol: "udp", Port: 500},
	}
	if !slices.EqualFunc(want, got, func(a, b host.Asker) bool {
		return a.Protocol == b.Protocol && a.Port == b.Port && slices.Equal(a.Peers, b.Peers)
	}) {
		t.Errorf("got %+v\nwant %+v", got, want)
	}
}
