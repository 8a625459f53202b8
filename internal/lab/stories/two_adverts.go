package stories

import (
	"context"
	"encoding/binary"
	"fmt"
	"net/netip"

	"sluice/internal/lab/figures"
	"sluice/internal/lab/stats"
	"sluice/internal/lab/testnet"
)

const (
	// floodedSYNs is how many SYNs come while adverts do: after each burst of them one of VRRP.
	floodedSYNs, burstSYNs = 200_000, 64
	vrrp                   = 112
)

// vrrpGroup is where adverts of VRRP go (RFC 5798, 5.1.1.2).
var vrrpGroup = netip.AddrFrom4([4]byte{224, 0, 0, 18})

// adverts sends the partner's adverts of VRRP in the middle of the flood, by the same
// device: what the load balancer's input lets through of them reaches a socket.
func (s *Stage) adverts(ctx context.Context, answer string) error {
	host, outside := s.Net.Namespace("elected"), s.Net.Namespace("outside")
	in, out := s.Net.Join(
		testnet.End{In: host, Device: "eth0", Addresses: []string{"198.51.100.1/24"}},
		testnet.End{In: outside, Device: "eth0", Addresses: []string{partnerAddress.String() + "/24"}},
	)
	for j := 0; j < storyServices; j += servicePorts {
		in.Address(netip.PrefixFrom(serviceAddress(j).Addr(), 32).String())
	}
	in.Neighbor(partnerAddress.String(), out.MAC)
	host.Route("0.0.0.0/0", partnerAddress.String())
	host.MustRun("ip", "address", "add", vrrpGroup.String()+"/32", "dev", "eth0", "autojoin")
	heard := host.Delivered(vrrp, false)
	if _, err := s.Apply(ctx, host, answer); err != nil {
		return err
	}
	before, err := testnet.Overflowed()
	if err != nil {
		return err
	}
	s.Say("a flood of %d SYNs with adverts of VRRP in it", floodedSYNs)
	sent := 0
	for i := 0; i < floodedSYNs; i += burstSYNs {
		burst := make([][]byte, 0, burstSYNs+1)
		for j := i; j < i+burstSYNs; j++ {
			from := netip.AddrFrom4([4]byte{10, byte(j >> 16), byte(j >> 8), byte(j)})
			if j%2 == 1 {
				from = bannedAddress(j % storyBans)
			}
			burst = append(burst, testnet.SYN(netip.AddrPortFrom(from, 40000), serviceAddress(j%storyServices), 1460))
		}
		if err := out.Send(append(burst, testnet.Protocol(partnerAddress, vrrpGroup, vrrp, binary.BigEndian.AppendUint32(nil, uint32(sent))...))...); err != nil { //nolint:gosec // some thousands
			return err
		}
		sent++
	}
	lost := float64(sent)
	come := map[uint32]bool{}
	heard.Wait(0, func(p testnet.Seen) bool {
		if len(p.Payload) >= 4 {
			come[binary.BigEndian.Uint32(p.Payload)] = true
		}
		return len(come) == sent
	})
	lost -= float64(len(come))
	after, err := testnet.Overflowed()
	if err != nil {
		return err
	}
	section := s.Section("adverts", "Adverts of VRRP in the flood", fmt.Sprintf(
		"%d SYNs to the services, half of them from banned addresses, and behind every %d one advert of the partner, by the same device. This machine dropped %d packets in front of its stack meanwhile.",
		floodedSYNs, burstSYNs, after-before))
	n := stats.Series{lost}
	section.Add(figures.Figure{Case: fmt.Sprintf("%d adverts in the flood", sent), Subject: sluiceSubject, Quantity: "lost", Unit: "adverts", Samples: n})
	s.Goal(figures.AtMost("adverts of VRRP that are lost in the flood", "", 0, n, nil))
	return nil
}
