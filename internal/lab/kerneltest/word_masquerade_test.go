package kerneltest

import (
	"net/netip"
	"testing"

	"golang.org/x/sys/unix"

	"sluice/internal/lab/testnet"
)

// An inner client that uses a port of the host's own which bypasses tracking gets its
// answers: masquerade gives the connection another port, and leaves every other as it is,
// also where two clients use the same one.
func TestWordMasqueradeKeepsOutOfBypassedPorts(t *testing.T) {
	for _, as := range []string{"", "as"} {
		t.Run("masquerade "+as, func(t *testing.T) {
			c := newTown(t)
			lines := "nat: [masquerade from lan out wan]\n"
			if as != "" {
				lines = "nat: [masquerade from lan out wan as 198.51.100.1, \"masquerade from lan out wan as 2001:db8:100::1\"]\n"
			}
			apply(t, c.host, `
zones: { wan: { interfaces: [wan0] }, lan: { interfaces: [lan0] } }
tracking: { bypass: [udp/123, udp/500, tcp/8000-8010] }
input: { default: drop, rules: [allow udp/123, allow udp/500, allow tcp/8000-8010] }
forward: { default: drop, rules: [allow any from lan to wan] }
`+lines)
			for _, v6 := range []bool{false, true} {
				inside, inside2, stranger := place("inside", v6), place("inside2", v6), place("stranger", v6)
				for _, try := range []struct {
					from netip.AddrPort
					tcp  bool
					kept bool
				}{
					{at(inside, 123), false, false},
					{at(inside, 500), false, false},
					{at(inside, 122), false, true},
					{at(inside, 124), false, true},
					{at(inside, 499), false, true},
					{at(inside, 501), false, true},
					{at(inside, 8000), false, true}, // of TCP alone
					{at(inside, 8000), true, false},
					{at(inside, 8010), true, false},
					{at(inside, 123), true, true}, // of UDP alone
					{at(inside, 7999), true, true},
					{at(inside, 8011), true, true},
					{at(inside, 8020), false, true},
					{at(inside2, 8020), false, false}, // taken by the one before
				} {
					c.masqueraded(t, try.from, at(stranger, 53), try.tcp, try.kept)
				}
			}
		})
	}
}

// masqueraded sends a packet out and its answer back, which has to arrive.
func (c *town) masqueraded(t *testing.T, from, to netip.AddrPort, tcp, kept bool) {
	t.Helper()
	question, answer := testnet.UDP(from, to, 1, 2, 3), func(back netip.AddrPort) []byte { return testnet.UDP(to, back, 4, 5) }
	proto, asks, answers := uint8(unix.IPPROTO_UDP), "", ""
	if tcp {
		question, answer = testnet.TCP(from, to, "S"), func(back netip.AddrPort) []byte { return testnet.TCP(to, back, "SA") }
		proto, asks, answers = unix.IPPROTO_TCP, "S", "SA"
	}
	left, arrived := c.street.Capture(), c.yard.Capture()
	mustSend(t, c.yard, question)
	// The inner client refuses the answer to an earlier question, by ICMP or a reset: that leaves too, and late.
	out, seen := left.Wait(enough, func(s testnet.Seen) bool { return s.Protocol == proto && s.To() == to && s.Flags == asks })
	if !seen {
		t.Fatalf("what %s asks did not leave", from)
	}
	if got := out.SourcePort; (got == from.Port()) != kept {
		t.Errorf("from %s, TCP %t: it left from port %d; kept should be %t", from, tcp, got, kept)
	}
	mustSend(t, c.street, answer(netip.AddrPortFrom(out.Source, out.SourcePort)))
	if _, seen := arrived.Wait(enough, func(s testnet.Seen) bool {
		return s.Protocol == proto && s.From() == to && s.To() == from && s.Flags == answers
	}); !seen {
		t.Errorf("the answer to %s, TCP %t, which left from port %d, did not arrive", from, tcp, out.SourcePort)
	}
}
