package conntrack_test

import (
	"errors"
	"net/netip"
	"os"
	"testing"

	"sluice/internal/lab/testnet"
	"sluice/internal/system/kernel/conntrack"
)

func TestCreate(t *testing.T) {
	testnet.Require(t, testnet.Nftables)
	h := testnet.New(t).Unnamed("host")
	h.Nft("table inet t { chain c { type filter hook input priority 0; ct state new accept; }; }") // tracking begins
	a, b := netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("192.0.2.2")
	a6, b6 := netip.MustParseAddr("2001:db8::1"), netip.MustParseAddr("2001:db8::2")
	flows := []conntrack.Flow{
		{Protocol: 17, Original: conntrack.Tuple{Source: a, Destination: b, SourcePort: 1, DestinationPort: 2}},
		{Protocol: 17, Original: conntrack.Tuple{Source: a6, Destination: b6, SourcePort: 1, DestinationPort: 2}, Answered: true, Mark: 7},
		{Protocol: 6, Original: conntrack.Tuple{Source: a, Destination: b, SourcePort: 1, DestinationPort: 2}, Answered: true},
		{Protocol: 1, Original: conntrack.Tuple{Source: a, Destination: b}, ICMPType: 8, ICMPID: 5, Answered: true},
		{Protocol: 58, Original: conntrack.Tuple{Source: a6, Destination: b6}, ICMPType: 128, ICMPID: 5},
	}
	related := conntrack.Flow{
		Protocol: 17, Original: conntrack.Tuple{Source: b, Destination: a, SourcePort: 7, DestinationPort: 8}, Master: &flows[0],
	}
	err := h.Do(func() error {
		for _, f := range append(flows, related, flows[2]) { // one of them twice
			if err := conntrack.Create(f); err != nil {
				t.Errorf("%+v: %v", f, err)
			}
		}
		turned := flows[0]
		turned.Original = conntrack.Tuple{Source: b, Destination: a, SourcePort: 2, DestinationPort: 1}
		other := turned
		other.Original.SourcePort = 3
		for _, c := range []struct {
			flow conntrack.Flow
			want bool
		}{{flows[0], true}, {flows[1], true}, {turned, true}, {other, false}} {
			if known, err := conntrack.Known(c.flow); err != nil || known != c.want {
				t.Errorf("%+v is known: %v, %v", c.flow, known, err)
			}
		}
		missing := related
		missing.Original.SourcePort, missing.Master = 9, &conntrack.Flow{Protocol: 17, Original: conntrack.Tuple{Source: b, Destination: a, SourcePort: 9, DestinationPort: 9}}
		if err := conntrack.Create(missing); err == nil {
			t.Error("a flow that belongs to none was made")
		}
		entries, err := conntrack.List()
		if err != nil {
			return err
		}
		for _, f := range append(flows, related) {
			found := false
			for _, e := range entries {
				found = found || e.Protocol == f.Protocol && e.Mark == f.Mark && e.Original == f.Original && e.Reply.Source == f.Original.Destination
			}
			if !found {
				t.Errorf("%+v is not in the table: %+v", f, entries)
			}
		}
		text, err := os.ReadFile("/proc/thread-self/net/nf_conntrack")
		if err == nil && len(entries) != 6 {
			t.Errorf("the table holds:\n%s", text)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// Many flows are made by few messages; one that cannot be made is told of, also in
// the midst of them.
func TestCreateAll(t *testing.T) {
	testnet.Require(t, testnet.Nftables)
	h := testnet.New(t).Unnamed("host")
	h.Nft("table inet t { chain c { type filter hook input priority 0; ct state new accept; }; }")
	a, b := netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("192.0.2.2")
	var flows []conntrack.Flow
	for i := range 150 {
		flows = append(flows, conntrack.Flow{Protocol: 6, Answered: true, Original: conntrack.Tuple{Source: a, Destination: b, SourcePort: uint16(1000 + i), DestinationPort: 80}})
	}
	err := h.Do(func() error {
		if err := conntrack.CreateAll(flows); err != nil {
			return err
		}
		entries, err := conntrack.List()
		if err != nil {
			return err
		}
		if len(entries) != len(flows) {
			t.Errorf("%d entries, want %d", len(entries), len(flows))
		}
		flows[70].Master = &conntrack.Flow{Protocol: 6, Original: conntrack.Tuple{Source: b, Destination: a, SourcePort: 1, DestinationPort: 2}}
		flows[70].Original.SourcePort = 5000
		if err := conntrack.CreateAll(flows); err == nil {
			t.Error("a flow that belongs to none was made")
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// TestAdopt: connections that run get entries, those that are there stay as they are,
// and the table is not filled beyond what it may have.
func TestAdopt(t *testing.T) {
	testnet.Require(t, testnet.Nftables)
	for _, family := range []string{"IPv4", "IPv6"} {
		t.Run(family, func(t *testing.T) {
			a, b, published := netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("198.51.100.2"), netip.MustParseAddr("203.0.113.5")
			if family == "IPv6" {
				a, b, published = netip.MustParseAddr("2001:db8::1"), netip.MustParseAddr("2001:db8:1::2"), netip.MustParseAddr("2001:db8:2::5")
			}
			flow := func(port int) conntrack.Flow {
				return conntrack.Flow{Protocol: 6, Answered: true, Seconds: 1000, Original: conntrack.Tuple{Source: a, Destination: b, SourcePort: uint16(port), DestinationPort: 80}} //nolint:gosec // a port
			}
			h := testnet.New(t).Unnamed("host")
			err := h.Do(func() error {
				known := flow(1000)
				known.Mark = 7
				turned := conntrack.Flow{Protocol: 6, Answered: true, Mark: 8, Original: flow(1001).Original.Turned()}
				// b came to a by an address that somebody else rewrote.
				behind := conntrack.Flow{
					Protocol: 6, Answered: true, Mark: 9,
					Original: conntrack.Tuple{Source: b, Destination: published, SourcePort: 80, DestinationPort: 8080}, Reply: flow(1002).Original,
				}
				if err := conntrack.CreateAll([]conntrack.Flow{known, turned, behind}); err != nil {
					return err
				}
				var flows []conntrack.Flow
				for i := range 150 {
					flows = append(flows, flow(1000+i))
				}
				flows[149].Closing = true
				for _, want := range []int{147, 0} {
					if made, err := conntrack.Adopt(flows); err != nil || made != want {
						t.Errorf("%d entries were made, want %d: %v", made, want, err)
					}
				}
				entries, err := conntrack.List()
				if err != nil {
					return err
				}
				marks := map[uint32]conntrack.Tuple{}
				for _, e := range entries {
					if e.Mark != 0 {
						marks[e.Mark] = e.Original
					} else if e.Timeout < 900 || e.Timeout > 1000 {
						t.Errorf("an entry lives for %d s, want 1000", e.Timeout)
					}
				}
				if len(entries) != 150 || marks[7] != known.Original || marks[8] != turned.Original || marks[9] != behind.Original {
					t.Errorf("%d entries; those that were there became %v", len(entries), marks)
				}
				more := []conntrack.Flow{flow(2000), flow(1000), flow(2001), flow(2002)}
				if made, err := conntrack.AdoptWithin(more, 2); made != 2 || !errors.Is(err, conntrack.ErrNoRoom) {
					t.Errorf("with room for two: %d made, %v", made, err)
				}
				if n, err := conntrack.Count(); err != nil || n != 152 {
					t.Errorf("the table has %d entries, want 152: %v", n, err)
				}
				return nil
			})
			if err != nil {
				t.Fatal(err)
			}
		})
	}
}
