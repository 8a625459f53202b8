package kerneltest

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"testing"

	"sluice/internal/lab/testnet"
)

// forgedPolicy limits servers on the host and behind it, so tightly that one forged
// packet that counted would be seen.
const forgedPolicy = `
input:
  default: drop
  rules:
    - allow ssh limit 2/hour per source then ban 10m
    - allow http limit 2/hour per source
forward:
  default: drop
  rules:
    - allow tcp/5432 limit 2/hour per source then ban 10m
    - allow tcp/8080 limit 2/hour per source
`

// forgedPlaces are where forgedPolicy limits.
var forgedPlaces = []struct {
	to   string
	port uint16
}{{"host", 80}, {"inside", 8080}, {"inside", 5432}, {"host", 22}}

// Ports from which tests forge: those that no socket of theirs takes by itself.
const forgedPort, forgedPorts = 20000, 32

// deafen has the outside answer nothing at the ports that tests forge: the real owner of
// the address would end what is forged in its name.
func (c *town) deafen() {
	c.outside.MustRun("nft", fmt.Sprintf(`table inet deaf { chain c { type filter hook prerouting priority -300; tcp dport %d-%d drop; }; }`, forgedPort, forgedPort+forgedPorts-1))
}

// TestForgedHandshakesCountNothing: whoever cannot see the answers takes no place and
// bans nobody, whatever is sent in a client's name: SYNs, ACKs within the window of
// connection tracking and outside of it, data, resets. The client itself still has
// all of its own, and a connection of its from before lives.
func TestForgedHandshakesCountNothing(t *testing.T) {
	c := newTown(t)
	apply(t, c.host, forgedPolicy)
	c.deafen()
	c.host.MustRun("nft", fmt.Sprintf(`table inet watch {
		counter established {}
		counter answered {}
		chain in { type filter hook input priority -10; tcp sport %[1]d-%[2]d ct state established counter name established; }
		chain on { type filter hook forward priority -10; tcp sport %[1]d-%[2]d ct state established counter name established; tcp dport %[1]d-%[2]d counter name answered; }
	}`, forgedPort, forgedPort+forgedPorts-1))
	answers := c.street.Capture()
	for _, v6 := range []bool{false, true} {
		live := c.open(t, "stranger", "host", 22, v6, "before")
		for i := range uint16(forgedPorts) {
			for _, p := range forgedPlaces {
				forge(t, c, answers, at(place("stranger", v6), forgedPort+i), at(place(p.to, v6), p.port), int(i))
			}
		}
		if r := live.Exchange("after", enough); r.Outcome != testnet.Answered {
			t.Errorf("IPv6 %t: a live connection, after packets were forged in its name: %v", v6, r)
		}
		for _, p := range forgedPlaces {
			expected := []testnet.Outcome{testnet.Answered, testnet.Answered}
			if p.to == "host" && p.port == 22 {
				expected = expected[:1] // the other one is live
			}
			for n, want := range expected {
				if r := c.once(attempt{from: "stranger", to: p.to, proto: "tcp", port: p.port, v6: v6}, wanted(want)); r.Outcome != want {
					t.Errorf("IPv6 %t: connection %d to %s port %d, after packets were forged in the client's name: %v", v6, n+1, p.to, p.port, r)
				}
			}
		}
		for _, p := range forgedPlaces { // those that ban last
			if r := c.once(attempt{from: "stranger", to: p.to, proto: "tcp", port: p.port, v6: v6}, wanted(testnet.Silent)); r.Outcome == testnet.Answered {
				t.Errorf("IPv6 %t: one connection too many to %s port %d: the limit counts nothing", v6, p.to, p.port)
			}
		}
	}
	for _, name := range []string{"established", "answered"} {
		if counterOf(t, c.host, "inet watch", name) == 0 {
			t.Errorf("nothing that was forged was %s, so this test shows nothing", name)
		}
	}
}

func wanted(o testnet.Outcome) want { return want{outcome: o} }

// forge sends in the name of a client what somebody may send who does not see the
// answers. Of the server's number this test knows more than such a one, so that each
// packet is as good as the best guess.
func forge(t *testing.T, c *town, answers *testnet.Capture, from, to netip.AddrPort, n int) {
	t.Helper()
	send, number := c.begin(t, answers, from, to)
	switch n % 4 {
	case 0: // within the window, which connection tracking takes for a handshake
		send("A", forgedSequence+1, number-500)
		send("PA", forgedSequence+1, number-500, []byte("hello")...)
	case 1: // outside the window of the server's
		send("A", forgedSequence+1, number+1_000_000)
		send("A", forgedSequence+200_000, number+1)
	case 2: // a SYN again, which is answered again
		send("S", forgedSequence, 0)
		send("A", forgedSequence+1, number-500)
		send("S", forgedSequence, 0)
	case 3:
		send("A", forgedSequence+1, number-300)
		send("R", forgedSequence+1, 0)
		send("FA", forgedSequence+1, number-500)
	}
}

// forgedSequence is the number of a forged SYN.
const forgedSequence = 1000

// begin sends a SYN in a client's name and waits for the answer, whose number it
// gives, with what sends more.
func (c *town) begin(t *testing.T, answers *testnet.Capture, from, to netip.AddrPort) (send func(flags string, sequence, ack uint32, payload ...byte), number uint32) {
	t.Helper()
	send = func(flags string, sequence, ack uint32, payload ...byte) {
		t.Helper()
		mustSend(t, c.street, testnet.Segment(from, to, flags, sequence, ack, payload...))
	}
	send("S", forgedSequence, 0)
	seen, ok := answers.Wait(enough, func(s testnet.Seen) bool { return s.From() == to && s.To() == from && s.Flags == "SA" })
	if !ok {
		t.Fatalf("%s does not answer %s", to, from)
	}
	return send, sequenceOf(seen.Raw)
}

// sequenceOf reads the number of a segment.
func sequenceOf(packet []byte) uint32 { return binary.BigEndian.Uint32(packet[transport(packet)+4:]) }
