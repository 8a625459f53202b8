package wire_test

import (
	"errors"
	"net/netip"
	"testing"

	"sluice/internal/lab/testnet"
	"sluice/internal/system/kernel/wire"
)

// A packet that is sent by a device is seen at its other end, and counted there as one that
// arrived; one of a local socket is seen as it leaves.
func TestSendAndTap(t *testing.T) {
	net := testnet.New(t)
	a, b := net.Unnamed("a"), net.Unnamed("b")
	pa, pb := net.Join(testnet.End{In: a, Device: "eth0", Addresses: []string{"192.0.2.1/24"}}, testnet.End{In: b, Device: "eth0", Addresses: []string{"192.0.2.2/24"}})
	from, to := netip.MustParseAddrPort("192.0.2.1:1000"), netip.MustParseAddrPort("192.0.2.2:2000")
	echo := testnet.Echo(from.Addr(), to.Addr(), 7, 1)
	err := b.Do(func() error {
		before, err := wire.Counters()
		if err != nil {
			return err
		}
		err = a.Do(func() error {
			if err := wire.Pin(); err != nil {
				return err
			}
			port, err := wire.OpenPort("eth0")
			if err != nil {
				return err
			}
			defer port.Close()
			return port.Send(pa.MAC, pb.MAC, echo)
		})
		if err != nil {
			return err
		}
		for {
			now, err := wire.Counters()
			if err != nil {
				return err
			}
			if now["Icmp.InEchos"] > before["Icmp.InEchos"] {
				return nil
			}
			if t.Context().Err() != nil {
				return t.Context().Err()
			}
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	err = a.Do(func() error {
		tap, err := wire.OpenTap()
		if err != nil {
			return err
		}
		defer tap.Close()
		a.MustRun("ip", "neigh", "replace", "192.0.2.2", "lladdr", pb.MAC.String(), "dev", "eth0")
		if err := wire.SendLocal(testnet.UDP(from, to, 1, 2, 3), to.Addr(), "", 0); err != nil {
			return err
		}
		left, err := tap.Take()
		if err != nil {
			return err
		}
		found := false
		for _, l := range left {
			p, err := testnet.Parse(l.Packet)
			found = found || err == nil && p.To() == to && p.From() == from
		}
		if !found {
			t.Errorf("what left: %+v", left)
		}
		if err := wire.SendLocal(testnet.UDP(from, netip.MustParseAddrPort("203.0.113.1:5")), netip.MustParseAddr("203.0.113.1"), "", 0); !errors.Is(err, wire.ErrNoRoute) {
			t.Errorf("without a route: %v", err)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}
