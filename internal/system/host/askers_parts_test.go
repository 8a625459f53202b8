package host

import (
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"sluice/internal/system/kernel/socket"
	"sluice/internal/system/kernel/wireguard"
)

// What no socket tells is told by configurations and by WireGuard: ntpd waits at the
// port that it asks from, and a tunnel's socket is the kernel's.
func TestAskersByConfiguration(t *testing.T) {
	at := netip.MustParseAddrPort
	found := askers{
		sockets: []socket.Socket{
			{Protocol: "udp", State: socket.Close, Local: at("0.0.0.0:123"), Inode: 1},
			{Protocol: "udp", State: socket.Close, Local: at("[::]:123"), Inode: 2},
			{Protocol: "udp", State: socket.Close, Local: at("0.0.0.0:443")},
			{Protocol: "udp", State: socket.Close, Local: at("0.0.0.0:51820")},
			{Protocol: "udp", State: socket.Close, Local: at("0.0.0.0:53"), Inode: 3},
		},
		guards: []wireguard.Device{
			{Name: "wg0", Port: 51820, Peers: []wireguard.Peer{{Endpoint: at("203.0.113.9:40000")}, {}}},
			{Name: "wg1", Port: 443, Peers: []wireguard.Peer{{Endpoint: at("[2001:db8:7::9]:443")}}},
			{Name: "wg2"},
		},
		servers: parseNTP("server 192.0.2.123\nserver -6 2001:db8::123\npool ntp.example.net\n"),
		names: func(inode uint32) string {
			return map[uint32]string{1: "ntpd", 2: "ntpd", 3: "named"}[inode]
		},
	}
	want := []Asker{
		{"ntpd", "udp", 123, []netip.AddrPort{at("192.0.2.123:123"), at("[2001:db8::123]:123")}},
		{"WireGuard (wg1)", "udp", 443, []netip.AddrPort{at("[2001:db8:7::9]:443")}},
		{"WireGuard (wg0)", "udp", 51820, []netip.AddrPort{at("203.0.113.9:40000")}},
	}
	if diff := cmp.Diff(want, found.all(), cmpopts.EquateComparable(netip.AddrPort{})); diff != "" {
		t.Errorf("askers (-want +got):\n%s", diff)
	}
}
