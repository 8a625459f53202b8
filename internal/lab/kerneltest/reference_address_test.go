package kerneltest

import (
	"fmt"
	"testing"

	"sluice/internal/base/packet"
	"sluice/internal/lab/testnet"
	"sluice/internal/prove/reference"
)

// Of several addresses of an interface the reference takes the one that the
// kernel takes: for masquerade, and for what is redirected to the host itself.
func TestReferenceKnowsTheAddressOfAnInterface(t *testing.T) {
	c := newTown(t)
	// The second address becomes the first that the kernel lists.
	c.host.MustRun("ip", "addr", "flush", "dev", "wan0", "scope", "global")
	for _, a := range []string{"198.51.100.9/24", "198.51.100.1/24", "2001:db8:100::1/64", "2001:db8:100::9/64"} {
		c.host.Address("wan0", a)
	}
	c.host.Route("default4", "198.51.100.254")
	c.host.Route("default6", "2001:db8:100::fe")
	file := policyFile(t, sides+"nat:\n  - masquerade from lan out wan\n  - redirect udp/2222 in wan to :53\n")
	applyFile(t, c.host, file)
	c.try(t, `
		inside > stranger tcp/80 = answered as second
		inside > stranger udp/53 = answered as second
	`, false)

	c.host.Nft(`table inet t {
		counter v4 {}
		counter v6 {}
		chain in {
			type filter hook input priority 10
			ip daddr 198.51.100.9 udp sport 7000 udp dport 53 counter name v4
			ip6 daddr 2001:db8:100::9 udp sport 7000 udp dport 53 counter name v6
		}
	}`)

	r, err := resolveFile(file, factsOf(t, c.host))
	if err != nil {
		t.Fatal(err)
	}
	for _, v6 := range []bool{false, true} {
		out := packet.Packet{
			In: "lan0", Source: place("inside", v6), Destination: place("stranger", v6), Protocol: packet.TCP, SourcePort: 40000, Port: 80, Flags: packet.SYN, Owner: -1,
		}
		if got := reference.Follow(r, out, packet.Through).Packet.Source; got != place("second", v6) {
			t.Errorf("masquerade gives %s, the kernel %s", got, place("second", v6))
		}
		in := packet.Packet{
			In: "wan0", Source: place("stranger", v6), Destination: place("host", v6), Protocol: packet.UDP, SourcePort: 7000, Port: 2222, Owner: -1,
		}
		if got := reference.Follow(r, in, packet.In).Packet; got.Destination != place("second", v6) || got.Port != 53 {
			t.Errorf("a redirect to the host leads to %s, in the reference", at(got.Destination, got.Port))
		}
		name := map[bool]string{false: "v4", true: "v6"}[v6]
		mustSend(t, c.street, testnet.UDP(at(in.Source, in.SourcePort), at(in.Destination, in.Port), 'x'))
		err := eventually(func() error {
			if n := counter(t, c.host, name); n != 1 {
				return fmt.Errorf("a redirect to the host led %d packets to %s, in the kernel", n, place("second", v6))
			}
			return nil
		})
		if err != nil {
			t.Error(err)
		}
	}
}
