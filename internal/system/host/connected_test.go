package host_test

import (
	"net/netip"
	"testing"

	"sluice/internal/lab/testnet"
	"sluice/internal/system/host"
)

// What is remembered hides nobody who connects later, and nobody by a port that began to
// be an ssh server's later.
func TestConnectedSeesWhoComes(t *testing.T) {
	t.Setenv("SSH_CONNECTION", "")
	n := testnet.New(t)
	h, peer := n.Namespace("facts"), n.Namespace("peer")
	n.Join(testnet.End{In: h, Device: "wan0", Addresses: []string{"192.0.2.2/24", "2001:db8::2/64"}},
		testnet.End{In: peer, Device: "up0", Addresses: []string{"192.0.2.1/24", "192.0.2.9/24", "2001:db8::1/64"}})
	h.ServeTCP("0.0.0.0:80")
	var c host.Connected
	seen := func(from string, want int) {
		t.Helper()
		err := h.Do(func() error {
			got, err := c.SSHClientsOf(func(a netip.Addr) bool { return a == netip.MustParseAddr(from) })
			if err == nil && len(got) != want {
				t.Errorf("%s: %v, want %d", from, got, want)
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	// Before the server has accepted it, nobody is logged in on it: an answer says that it has.
	connect := func(from, to string) {
		t.Helper()
		r, conn := peer.OpenTCP(testnet.TCPTry{From: netip.AddrPortFrom(netip.MustParseAddr(from), 0), To: netip.MustParseAddrPort(to), Message: "accepted"})
		if conn == nil {
			t.Fatal(r)
		}
		t.Cleanup(func() { conn.Close() })
	}
	for range 2 {
		seen("192.0.2.1", 0)
	}
	connect("192.0.2.1", "192.0.2.2:80")
	for range 2 {
		seen("192.0.2.1", 0)
	}
	h.ServeTCP("0.0.0.0:22", "[::]:22")
	for range 2 {
		seen("192.0.2.9", 0)
	}
	connect("192.0.2.9", "192.0.2.2:22")
	for range 2 {
		seen("192.0.2.9", 1)
		seen("192.0.2.1", 0)
		seen("2001:db8::1", 0)
	}
	connect("2001:db8::1", "[2001:db8::2]:22")
	for range 2 {
		seen("192.0.2.9", 1)
		seen("192.0.2.1", 0)
		seen("2001:db8::1", 1)
	}
	connect("192.0.2.1", "192.0.2.2:22")
	seen("192.0.2.1", 1)
}
