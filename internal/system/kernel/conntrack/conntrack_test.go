package conntrack_test

import (
	"net/netip"
	"testing"

	"sluice/internal/lab/testnet"
	"sluice/internal/system/kernel/conntrack"
)

// TestTable: connections of both families are listed, counted and deleted.
func TestTable(t *testing.T) {
	testnet.Require(t, testnet.Nftables)
	n := testnet.New(t)
	host, client := n.Unnamed("host"), n.Unnamed("client")
	n.Join(testnet.End{In: host, Device: "h0", Addresses: []string{"192.0.2.1/24", "2001:db8::1/64"}},
		testnet.End{In: client, Device: "c0", Addresses: []string{"192.0.2.2/24", "2001:db8::2/64"}})
	host.Nft("table inet t { chain c { type filter hook input priority 0; ct state new accept; }\n }")
	host.ServeTCP("192.0.2.1:80", "[2001:db8::1]:80")
	for _, to := range []string{"192.0.2.1:80", "[2001:db8::1]:80"} {
		r, conn := client.OpenTCP(testnet.TCPTry{To: netip.MustParseAddrPort(to), Message: "x"})
		if r.Outcome != testnet.Answered {
			t.Fatalf("%s: %s", to, r)
		}
		defer conn.Close()
	}
	found := func() (four, six int, count uint64) {
		err := host.Do(func() error {
			entries, err := conntrack.List()
			if err != nil {
				return err
			}
			for _, e := range entries {
				if e.Protocol != 6 || e.Original.DestinationPort != 80 || e.Reply.SourcePort != 80 || e.Original.Source != e.Reply.Destination {
					t.Errorf("an entry of something else: %+v", e)
				}
				if e.Family == 4 && e.Original.Destination == netip.MustParseAddr("192.0.2.1") {
					four++
				}
				if e.Family == 6 && e.Original.Destination == netip.MustParseAddr("2001:db8::1") {
					six++
				}
			}
			count, err = conntrack.Count()
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		return four, six, count
	}
	if four, six, count := found(); four != 1 || six != 1 || count < 2 {
		t.Errorf("found %d and %d of %d", four, six, count)
	}
	err := host.Do(func() error {
		deleted, err := conntrack.Delete(func(e conntrack.Entry) bool { return e.Family == 6 })
		if deleted != 1 {
			t.Errorf("%d were deleted", deleted)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if four, six, _ := found(); four != 1 || six != 0 {
		t.Errorf("%d and %d are left", four, six)
	}
}

// TestDelete: of many entries those are deleted that are meant, of each zone its own.
func TestDelete(t *testing.T) {
	testnet.Require(t, testnet.Nftables)
	n := testnet.New(t)
	host, client := n.Unnamed("host"), n.Unnamed("client")
	n.Join(testnet.End{In: host, Device: "h0", Addresses: []string{"192.0.2.1/24"}},
		testnet.End{In: client, Device: "c0", Addresses: []string{"192.0.2.2/24"}})
	host.Nft("table inet t { chain c { type filter hook prerouting priority raw; udp dport 7 ct zone set 5; }\n chain d { type filter hook input priority 0; ct state new accept; }\n }")
	a, b := netip.MustParseAddr("192.0.2.8"), netip.MustParseAddr("192.0.2.9")
	var flows []conntrack.Flow
	for i := range 1000 {
		flows = append(flows, conntrack.Flow{Protocol: 17, Original: conntrack.Tuple{Source: a, Destination: b, SourcePort: uint16(1000 + i), DestinationPort: 53}})
	}
	host.ServeUDP("192.0.2.1:7")
	if r := client.TryUDP(testnet.UDPTry{To: netip.MustParseAddrPort("192.0.2.1:7")}); r.Outcome != testnet.Answered {
		t.Fatal(r)
	}
	err := host.Do(func() error {
		if err := conntrack.CreateAll(flows); err != nil {
			return err
		}
		zoned := 0
		if err := conntrack.Walk(func(e *conntrack.Entry) error {
			if e.Zone == 5 {
				zoned++
			}
			return nil
		}); err != nil || zoned != 1 {
			t.Errorf("%d entries of zone 5, %v", zoned, err)
		}
		for _, test := range []struct {
			want  int
			match func(conntrack.Entry) bool
		}{
			{500, func(e conntrack.Entry) bool { return e.Original.DestinationPort == 53 && e.Original.SourcePort%2 == 0 }},
			{0, func(e conntrack.Entry) bool { return e.Original.DestinationPort == 53 && e.Original.SourcePort%2 == 0 }},
			{1, func(e conntrack.Entry) bool { return e.Zone == 5 }},
			{500, func(e conntrack.Entry) bool { return e.Original.DestinationPort == 53 }},
		} {
			if got, err := conntrack.Delete(test.match); got != test.want || err != nil {
				t.Errorf("%d were deleted, want %d: %v", got, test.want, err)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}
