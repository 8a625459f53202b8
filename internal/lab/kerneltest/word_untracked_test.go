package kerneltest

import (
	"testing"

	"sluice/internal/lab/testnet"
)

// A rule with ports on untracked traffic is mirrored: what the service sends
// back passes too, for TCP without a bare SYN. Nothing else does.
func TestUntrackedRulesAreMirrored(t *testing.T) {
	c := newTown(t)
	apply(t, c.host, sides+`
forward:
  default: drop
  rules:
    - allow tcp/80 to [10.20.0.5, 2001:db8:20::5]
    - allow udp/53 to [10.20.0.5, 2001:db8:20::5]
nat:
  - map 198.51.100.32/28 to 10.20.0.0/28 stateless
  - map 2001:db8:100:f::/64 to 2001:db8:20::/64 stateless
`)
	for _, v6 := range []bool{false, true} {
		inside, stranger, mapped := place("inside", v6), place("stranger", v6), place("mapped", v6)
		out, in := c.street.Capture(), c.yard.Capture()
		for _, try := range []struct {
			name   string
			from   *testnet.Port
			packet []byte
			on     *testnet.Capture
			passes bool
		}{
			{"SYN to the service", c.street, testnet.TCP(at(stranger, 6001), at(mapped, 80), "S"), in, true},
			{"SYN+ACK back", c.yard, testnet.TCP(at(inside, 80), at(stranger, 6002), "SA"), out, true},
			{"data back", c.yard, testnet.TCP(at(inside, 80), at(stranger, 6003), "A", 'x'), out, true},
			{"reset back", c.yard, testnet.TCP(at(inside, 80), at(stranger, 6004), "R"), out, true},
			{"bare SYN from the service's port", c.yard, testnet.TCP(at(inside, 80), at(stranger, 6005), "S"), out, false},
			{"data from another port", c.yard, testnet.TCP(at(inside, 81), at(stranger, 6006), "A", 'x'), out, false},
			{"SYN to another port", c.street, testnet.TCP(at(stranger, 6007), at(mapped, 81), "S"), in, false},
			{"datagram to the service", c.street, testnet.UDP(at(stranger, 6008), at(mapped, 53)), in, true},
			{"datagram back", c.yard, testnet.UDP(at(inside, 53), at(stranger, 6009)), out, true},
			{"datagram from another port", c.yard, testnet.UDP(at(inside, 54), at(stranger, 6010)), out, false},
		} {
			mustSend(t, try.from, try.packet)
			sent, err := testnet.Parse(try.packet)
			if err != nil {
				t.Fatal(err)
			}
			_, seen := try.on.Wait(patience(try.passes), func(s testnet.Seen) bool {
				return !s.Outgoing && s.SourcePort == sent.SourcePort && s.DestinationPort == sent.DestinationPort
			})
			if seen != try.passes {
				t.Errorf("IPv6 %t: %s: passed %t", v6, try.name, seen)
			}
		}
	}
}

// The packets of a bypassed service are decided by its own rules in both
// directions, whoever makes them up.
func TestBypassedPacketsNeedTheirRule(t *testing.T) {
	c := newTown(t)
	apply(t, c.host, office+`
tracking: { bypass: [http] }
input:
  default: drop
  rules: [allow http from office]
output: { default: drop }
`)
	for _, v6 := range []bool{false, true} {
		delivered := c.host.Delivered(6, v6)
		for i, try := range []struct {
			from, flags string
			port        uint16
			passes      bool
		}{
			{"office", "S", 80, true},
			{"office", "A", 80, true},
			{"office", "R", 80, true},
			{"stranger", "S", 80, false},
			{"stranger", "A", 80, false},
			{"stranger", "SA", 80, false},
			{"office", "A", 81, false},
		} {
			from := at(place(try.from, v6), 7000+uint16(i))
			mustSend(t, c.street, testnet.TCP(from, at(place("host", v6), try.port), try.flags))
			if _, seen := delivered.Wait(patience(try.passes), func(s testnet.Seen) bool { return s.SourcePort == from.Port() }); seen != try.passes {
				t.Errorf("IPv6 %t: %s from %s to port %d: delivered %t", v6, try.flags, try.from, try.port, seen)
			}
		}
		// A connection that the host opens from the service's port is none of
		// the service.
		r := c.host.TryTCP(testnet.TCPTry{From: at(place("second", v6), 80), To: at(place("stranger", v6), 443), Patience: short})
		if r.Outcome == testnet.Answered {
			t.Errorf("IPv6 %t: output is closed, and a connection from port 80 left", v6)
		}
	}
}

// A change of tracking cuts no connection that both policies allow, nor does
// the way back, as after an apply that nobody confirmed: an entry that missed a
// part of its connection would call the rest invalid, so apply deletes it.
func TestChangeOfTrackingKeepsConnections(t *testing.T) {
	const (
		tracked  = "version: 1\ninput: { default: drop, rules: [allow http] }\n"
		bypassed = tracked + "tracking: { bypass: [http] }\n"
	)
	for _, change := range []struct{ name, before, after string }{
		{"tracked to bypassed", tracked, bypassed},
		{"bypassed to tracked", bypassed, tracked},
		{"all allowed to bypassed", "version: 1\ninput: { default: allow }\n", bypassed},
		{"tracked to tracked", tracked, tracked + "forward: { default: drop }\n"},
	} {
		t.Run(change.name, func(t *testing.T) {
			e := newBinary(t)
			before, after := e.write(t, "before", change.before), e.write(t, "after", change.after)
			e.run(t, "apply", before)
			conns := []*testnet.Conn{e.open(t, "stranger", "host", 80, false, "one"), e.open(t, "stranger", "host", 80, true, "one")}
			exchange := func(message string) {
				t.Helper()
				for i, conn := range conns {
					if r := conn.Exchange(message, enough); r.Outcome != testnet.Answered || string(r.Reply) != message {
						t.Errorf("%s, IPv%d: %v %q", message, 4+2*i, r, r.Reply)
					}
				}
			}
			e.run(t, "apply", after)
			exchange("two")
			exchange("three")
			e.run(t, "apply", before)
			exchange("back")
			exchange("and on")
		})
	}
}
