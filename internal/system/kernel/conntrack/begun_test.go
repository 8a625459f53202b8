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
	if err := host.Do(func() (err error) { b, err = conntrack.CountBegunUpTo(1e9); return err }); err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	send := flows(t)
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

// flows sends connections of two packets each, each of them to another address of loopback.
func flows(t *testing.T) (send func(in *testnet.Namespace, port uint16, many int)) {
	last := netip.MustParseAddr("127.0.1.0")
	return func(in *testnet.Namespace, port uint16, many int) {
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
}

// TestBegunOfMany: of many connections a part alone is told of, and all are reckoned.
func TestBegunOfMany(t *testing.T) {
	t.Parallel()
	testnet.Require(t, testnet.Nftables)
	host := testnet.New(t).Unnamed("host")
	host.Nft("table inet t { chain c { type filter hook output priority 0; udp dport 9 ct state new accept; }\n }")
	var b *conntrack.Begun
	if err := host.Do(func() (err error) { b, err = conntrack.CountBegunUpTo(200); return err }); err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	const many = 20_000
	flows(t)(host, 9, many)
	now, err := b.Read()
	if err != nil {
		t.Fatal(err)
	}
	if told := b.Told(); told == 0 || told > many/2 || now < many/4 || now > 4*many {
		t.Errorf("%d began, reckoned %d by %d messages", many, now, told)
	}
}
