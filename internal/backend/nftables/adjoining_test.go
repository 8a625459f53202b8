package nftables

import (
	"net/netip"
	"testing"

	"sluice/internal/lab/testnet"
	"sluice/internal/program"
)

// TestNotSideBySide: of two fields that lie side by side each has to be another one,
// though nft compares them at once.
func TestNotSideBySide(t *testing.T) {
	// The hosts' own packets, as those that look for neighbours, are of other sources.
	mine := addressesOf(program.Source, "192.0.2.10", "2001:db8::10")
	v4 := [2]netip.Addr{netip.MustParseAddr("192.0.2.10"), host4.Addr()}
	v6 := [2]netip.Addr{netip.MustParseAddr("2001:db8::10"), host6.Addr()}
	udp := func(ends [2]netip.Addr) func(first, second uint16) []byte {
		return func(first, second uint16) []byte {
			return testnet.UDP(netip.AddrPortFrom(ends[0], first), netip.AddrPortFrom(ends[1], second), 'x')
		}
	}
	icmp := func(ends [2]netip.Addr) func(first, second uint16) []byte {
		return func(first, second uint16) []byte {
			return testnet.ICMP(ends[0], ends[1], uint8(first), uint8(second), 0, 0, 0, 0)
		}
	}
	for _, c := range []struct {
		name          string
		protocol      uint64
		first, second program.Field
		of            [2]uint16 // the values that are not let through
		packet        func(first, second uint16) []byte
	}{
		{"ports, IPv4", 17, program.SourcePort, program.Port, [2]uint16{4000, 53}, udp(v4)},
		{"ports, IPv6", 17, program.SourcePort, program.Port, [2]uint16{4000, 53}, udp(v6)},
		{"ICMP", 1, program.ICMPType, program.ICMPCode, [2]uint16{13, 3}, icmp(v4)},
		{"ICMPv6", 58, program.ICMPv6Type, program.ICMPv6Code, [2]uint16{139, 3}, icmp(v6)},
	} {
		t.Run(c.name, func(t *testing.T) {
			m := conditions{protocolIs(c.protocol), mine, not(numbersOf(c.first, exactly(uint64(c.of[0])))), not(numbersOf(c.second, exactly(uint64(c.of[1]))))}
			g := newGateTest(t, "h0", nil, program.Rule{ID: "r", Match: m, Actions: passing()},
				program.Rule{Match: conditions{protocolIs(c.protocol), mine}, Actions: actions{program.Count{Counter: "rest"}, program.Drop}})
			for i, p := range [][2]uint16{{0, 0}, {0, 1}, {1, 0}, {1, 1}} {
				before := g.gathered["pass"]
				g.send(t, c.packet(c.of[0]+p[0], c.of[1]+p[1]))
				if got, want := g.gathered["pass"] > before, i == 3; got != want {
					t.Errorf("%d and %d: passes %t, want %t", c.of[0]+p[0], c.of[1]+p[1], got, want)
				}
			}
		})
	}
}
