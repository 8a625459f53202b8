package conntrack_test

import (
	"context"
	"encoding/hex"
	"net/netip"
	"slices"
	"testing"

	"sluice/internal/lab/testnet"
	"sluice/internal/system/kernel/conntrack"
)

// opened listens in a namespace of its own that tracks connections.
func opened(t *testing.T, kinds ...conntrack.Event) (*testnet.Namespace, *conntrack.Events) {
	t.Helper()
	testnet.Require(t, testnet.Nftables)
	h := testnet.New(t).Unnamed("host")
	h.Nft("table inet t { chain c { type filter hook input priority 0; ct state new accept; }; }") // tracking begins
	var e *conntrack.Events
	if err := h.Do(func() (err error) {
		e, err = conntrack.OpenEvents(kinds...)
		return err
	}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = e.Close() })
	return h, e
}

// An entry that comes and goes is told of once each, with what it is; kinds that nobody asked
// for are not told.
func TestEvents(t *testing.T) {
	t.Parallel()
	flow := conntrack.Flow{
		Protocol: 6, Answered: true, Seconds: 77, Mark: 7,
		Original: conntrack.Tuple{Source: netip.MustParseAddr("2001:db8::1"), Destination: netip.MustParseAddr("2001:db8::2"), SourcePort: 1, DestinationPort: 2},
	}
	for _, kinds := range [][]conntrack.Event{{conntrack.Made, conntrack.Updated, conntrack.Destroyed}, {conntrack.Destroyed}} {
		h, events := opened(t, kinds...)
		if err := h.Do(func() error {
			if err := conntrack.Create(flow); err != nil {
				return err
			}
			n, err := conntrack.Delete(func(conntrack.Entry) bool { return true })
			if n != 1 {
				t.Errorf("%d deleted", n)
			}
			return err
		}); err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithCancel(t.Context())
		var told []conntrack.Event
		err := events.Read(ctx, func(what conntrack.Event, e *conntrack.Entry) error {
			if e.Original != flow.Original || e.Reply != flow.Original.Turned() || e.Protocol != 6 || e.Mark != 7 || e.Family != 6 {
				t.Errorf("%v of %+v", what, *e)
			}
			if told = append(told, what); what == conntrack.Destroyed {
				stop()
			}
			return nil
		}, func(n uint32) { t.Errorf("%d missed", n) })
		if err != nil || len(kinds) == 1 && len(told) != 1 || len(kinds) == 3 && !slices.Contains(told, conntrack.Made) {
			t.Errorf("asked for %v: %v, %v", kinds, told, err)
		}
	}
}

// What the kernel throws away, since nobody reads it, is counted: each event is either told or
// missed.
func TestMissedEvents(t *testing.T) {
	t.Parallel()
	h, events := opened(t, conntrack.Made)
	if err := events.Shrink(); err != nil {
		t.Fatal(err)
	}
	const flows = 300
	create := func(from int) {
		t.Helper()
		var all []conntrack.Flow
		for i := range flows {
			all = append(all, conntrack.Flow{Protocol: 17, Original: conntrack.Tuple{
				Source: netip.MustParseAddr("192.0.2.1"), Destination: netip.MustParseAddr("192.0.2.2"), SourcePort: uint16(from + i), DestinationPort: 53,
			}})
		}
		if err := h.Do(func() error { return conntrack.CreateAll(all) }); err != nil {
			t.Fatal(err)
		}
	}
	for round, from := range []int{1000, 2000} {
		create(from)
		ctx, stop := context.WithCancel(t.Context())
		seen, missed := 0, 0
		over := func() {
			if seen+missed >= flows {
				stop()
			}
		}
		err := events.Read(ctx, func(conntrack.Event, *conntrack.Entry) error { seen++; over(); return nil }, func(n uint32) { missed += int(n); over() })
		if err != nil || seen == 0 || missed == 0 || seen+missed != flows {
			t.Errorf("%d told and %d missed of %d: %v", seen, missed, flows, err)
		}
		if round == 0 {
			if err := events.Again(); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// eventText is an event of a new connection of TCP, as kernel 6.18 gives it, in 64 bits and
// little endian.
const eventText = "180100000001000600000000ba3b98aa0a0000004c0001802c0001801400030020010db80000000000000000000000011400040020010db800000000" +
	"00000000000000021c0002800500010006000000060002000001000006000300000200004c0002802c0001801400030020010db80000000000000000" +
	"000000021400040020010db80000000000000000000000011c00028005000100060000000600020000020000060003000001000008000c00ed6b8ab5" +
	"080003000000000e080007000000004d300004802c000180050001000300000005000200000000000500030000000000060004000800000006000500" +
	"080000001c0018800800010000000000080002000000000008000300000000000800080000000007"

// FuzzParseEvents: whatever bytes come, it ends, and reports no more events than messages.
func FuzzParseEvents(f *testing.F) {
	whole, err := hex.DecodeString(eventText)
	if err != nil {
		f.Fatal(err)
	}
	seen := 0
	if err := conntrack.ParseEvents(whole, new(conntrack.Entry), func(what conntrack.Event, e *conntrack.Entry) error {
		seen++
		if what != conntrack.Made || e.Original.Source != netip.MustParseAddr("2001:db8::1") || e.State.String() != "established" {
			f.Errorf("%v of %+v", what, *e)
		}
		return nil
	}); err != nil || seen != 1 {
		f.Fatalf("%d events, %v", seen, err)
	}
	f.Add(whole)
	f.Add(whole[:len(whole)-3])
	f.Fuzz(func(t *testing.T, data []byte) {
		n := 0
		_ = conntrack.ParseEvents(data, new(conntrack.Entry), func(conntrack.Event, *conntrack.Entry) error { n++; return nil })
		if n > len(data)/16 {
			t.Errorf("%d events of %d bytes", n, len(data))
		}
	})
}
