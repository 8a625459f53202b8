package conntrack_test

import (
	"net/netip"
	"os"
	"testing"

	"sluice/internal/kernel/conntrack"
	"sluice/internal/testnet"
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
