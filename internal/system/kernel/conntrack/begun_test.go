package conntrack_test

import (
	"net"
	"net/netip"
	"testing"

	"sluice/internal/lab/testnet"
	"sluice/internal/system/kernel/conntrack"
)

// TestBegun counts each connection once, be they few, or more than the socket has room for.
func TestBegun(t *testing.T) {
	t.Parallel()
	testnet.Require(t, testnet.Nftables)
	n := testnet.New(t)
	host, other := n.Unnamed("host"), n.Unnamed("other")
	rules := "table inet t { chain c { type filter hook output priority 0; udp dport 9 ct state new accept; udp dport 10 ct state new drop; }\n }"
	host.Nft(rules)
	other.Nft(rules)
	var b *conntrack.Begun
	if err := host.Do(func() (err error) { b, err = conntrack.CountBegun(); return err }); err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	last := netip.MustParseAddr("127.0.1.0")
	send := func(in *testnet.Namespace, port uint16, many int) {
		t.Helper()
		err := in.Do(func() error {
			for range many {
				last = last.Next()
				c, err := net.DialUDP("udp", nil, net.UDPAddrFromAddrPort(netip.AddrPortFrom(last, port)))
				if err != nil {
					return err
				}
				for range 2 { // one connection; nobody is there, which the second may be told
					_, _ = c.Write([]byte("x"))
				}
				_ = c.Close()
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	have := uint64(0)
	for _, more := range []int{0, 1, 2, 3000} {
		send(host, 9, more)
		send(host, 10, 2) // dropped: no connection
		send(other, 9, 3)
		now, err := b.Read()
		if err != nil {
			t.Fatal(err)
		}
		if now != have+uint64(more) {
			t.Errorf("%d began, counted %d", more, now-have)
		}
		have = now
	}
	host.Sysctl("net.netfilter.nf_conntrack_events", "0")
	if err := host.Do(func() error { _, err := conntrack.CountBegun(); return err }); err != conntrack.ErrNoEvents { //nolint:errorlint // itself
		t.Errorf("without events: %v", err)
	}
}
