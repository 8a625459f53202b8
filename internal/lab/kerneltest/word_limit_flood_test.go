package kerneltest

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"sluice/internal/lab/testnet"
)

// floodEnv asks for more packets than go into an everyday run: 10000000 of the blind
// ones; of SYNs an eighth of it to each server.
const floodEnv = "SLUICE_TEST_FLOOD"

// floodOf is how many packets to send.
func floodOf(t *testing.T, everyday int) int {
	t.Helper()
	text := os.Getenv(floodEnv)
	if text == "" {
		return everyday
	}
	n, err := strconv.Atoi(text)
	if err != nil {
		t.Fatalf("%s: %v", floodEnv, err)
	}
	return n
}

// windowOfTracking is how far below the truth a blind acknowledgement may be for
// connection tracking to take it (MAXACKCONST, nf_conntrack_proto_tcp.c). So many
// apart, acknowledgements try out the whole of a server's numbers.
const windowOfTracking = 66000

// TestBlindFloodBansNobody: acknowledgements all over a server's numbers, in the name
// of a client that is logged in and of the gateway, take no place and ban nobody, nor
// do twelve SYNs of theirs. What lives goes on, and both still get in.
func TestBlindFloodBansNobody(t *testing.T) {
	packets := floodOf(t, 40_000)
	c := newTown(t)
	apply(t, c.host, forgedPolicy)
	// Of the answers the client's host takes in those that tell the server's number, and
	// ends nothing.
	c.outside.MustRun("nft", fmt.Sprintf(`table inet deaf {
		chain in { type filter hook prerouting priority -300; tcp dport %[1]d-%[2]d tcp flags != syn|ack drop; }
		chain out { type filter hook output priority 0; tcp sport %[1]d-%[2]d drop; }
	}`, forgedPort, forgedPort+forgedPorts-1))
	c.host.MustRun("nft", fmt.Sprintf(`table inet watch {
		counter blind {}
		counter established {}
		chain in { type filter hook prerouting priority -10; tcp sport %[1]d-%[2]d tcp flags ack counter name blind; tcp sport %[1]d-%[2]d ct state established counter name established; }
	}`, forgedPort, forgedPort+forgedPorts-1))
	begun, sent := time.Now(), 0
	for _, v6 := range []bool{false, true} {
		client, answers := at(place("stranger", v6), 0), c.outside.Delivered(unix.IPPROTO_TCP, v6)
		live := c.open(t, "stranger", "host", 22, v6, "before")
		gateway := map[bool]string{false: "198.51.100.254", true: "2001:db8:100::fe"}[v6]
		for _, from := range []netip.Addr{client.Addr(), netip.MustParseAddr(gateway)} {
			for i := range uint16(12) {
				mustSend(t, c.street, testnet.SYN(netip.AddrPortFrom(from, forgedPort+8+i), at(place("host", v6), 22), 1460))
			}
		}
		for i, p := range forgedPlaces {
			sent += blindACKs(t, c, answers, netip.AddrPortFrom(client.Addr(), forgedPort+uint16(i)), at(place(p.to, v6), p.port), packets/8)
		}
		for _, line := range limitElements(c.host, v6) {
			if strings.Contains(line, "banned") || strings.Contains(line, "over") {
				t.Errorf("IPv6 %t: blind packets set a limit off: %s", v6, line)
			}
		}
		if r := live.Exchange("after", enough); r.Outcome != testnet.Answered {
			t.Errorf("IPv6 %t: a live connection, after blind packets in its name: %v", v6, r)
		}
		for _, p := range forgedPlaces {
			if r := c.once(attempt{from: "stranger", to: p.to, proto: "tcp", port: p.port, v6: v6}, wanted(testnet.Answered)); r.Outcome != testnet.Answered {
				t.Errorf("IPv6 %t: to %s port %d, after blind packets in the client's name: %v", v6, p.to, p.port, r)
			}
		}
	}
	t.Logf("%d blind acknowledgements in %v", sent, time.Since(begun))
	for _, name := range []string{"blind", "established"} {
		n := counterOf(t, c.host, "inet watch", name)
		if n == 0 {
			t.Errorf("no packet was %s, so this test shows nothing", name)
		}
		t.Logf("%d packets were %s", n, name)
	}
}

// blindACKs begins a connection in a client's name and acknowledges n numbers of the
// server, the first as good as a guess can be, the rest all over its numbers.
func blindACKs(t *testing.T, c *town, answers *testnet.Listener, from, to netip.AddrPort, n int) int {
	t.Helper()
	mustSend(t, c.street, testnet.Segment(from, to, "S", 1000, 0))
	seen, ok := answers.Wait(enough, func(s testnet.Seen) bool {
		return s.From().Addr() == to.Addr() && s.From().Port() == to.Port() && s.To().Port() == from.Port() && s.Flags == "SA"
	})
	if !ok {
		t.Fatalf("%s does not answer %s", to, from)
	}
	segment := seen.Raw // of IPv6 alone
	if to.Addr().Is4() {
		segment = segment[int(segment[0]&15)*4:]
	}
	number := binary.BigEndian.Uint32(segment[4:]) - 500
	packet := testnet.Segment(from, to, "PA", 1001, number, []byte("hello")...)
	for range n {
		mustSend(t, c.street, packet)
		number += windowOfTracking - 1
		acknowledge(packet, number)
	}
	return n
}

// acknowledge changes the number that a segment acknowledges.
func acknowledge(packet []byte, number uint32) {
	at := transport(packet)
	change(packet, at+8, binary.BigEndian.AppendUint32(nil, number), at+16)
}

// transport is where the header behind that of IP begins.
func transport(packet []byte) int {
	if packet[0]>>4 == 4 {
		return int(packet[0]&15) * 4
	}
	return 40
}

// change writes an even number of bytes at an even place of a packet, and fixes the
// checksums that cover them (RFC 1624).
func change(packet []byte, at int, bytes []byte, checksums ...int) {
	var difference uint32
	for i := 0; i < len(bytes); i += 2 {
		difference += uint32(^binary.BigEndian.Uint16(packet[at+i:])) + uint32(binary.BigEndian.Uint16(bytes[i:]))
	}
	copy(packet[at:], bytes)
	for _, c := range checksums {
		sum := difference + uint32(^binary.BigEndian.Uint16(packet[c:]))
		for sum > 0xffff {
			sum = sum&0xffff + sum>>16
		}
		binary.BigEndian.PutUint16(packet[c:], ^uint16(sum)) //nolint:gosec // folded
	}
}

// limitElements is the lines of the tables of limits that have elements, of a family.
func limitElements(host *testnet.Namespace, v6 bool) (out []string) {
	family := map[bool]string{false: "_v4_", true: "_v6_"}[v6]
	for _, set := range strings.Split(host.MustRun("nft", "list", "table", "inet", "sluice"), "\tset ")[1:] {
		name, body, _ := strings.Cut(set, " ")
		if strings.HasPrefix(name, "limit.") && strings.Contains(name, family) && strings.Contains(body, "elements = {") {
			out = append(out, name+strings.Join(strings.Fields(body), " "))
		}
	}
	return out
}

// TestFreshClientUnderSYNFlood: while SYNs are forged in ever other names, a client
// that was never seen gets in by its third SYN, on the host and behind it. What lets
// it in is SYN cookies of the server's kernel (net.ipv4.tcp_syncookies, 1 where nobody
// changed it; it holds for IPv6 too), and that connection tracking, when its table is
// full, gives up entries of which no answer was seen.
func TestFreshClientUnderSYNFlood(t *testing.T) {
	packets := floodOf(t, 240_000)
	c := newTown(t)
	apply(t, c.host, forgedPolicy)
	for _, s := range []*testnet.Namespace{c.host, c.inside} {
		s.MustRun("sysctl", "-qw", "net.ipv4.tcp_syncookies=1")
	}
	c.host.MustRun("nft", fmt.Sprintf(`table inet watch {
		counter syns {}
		chain in { type filter hook prerouting priority -400; ip saddr %s tcp flags & (syn|ack) == syn counter name syns; ip6 saddr %s tcp flags & (syn|ack) == syn counter name syns; }
	}`, place("stranger", false), place("stranger", true)))
	for _, v6 := range []bool{false, true} {
		for _, p := range forgedPlaces {
			to := at(place(p.to, v6), p.port)
			f := startFlood(c.street, to)
			f.wait(packets / 8)
			r := c.once(attempt{from: "stranger", to: p.to, proto: "tcp", port: p.port, v6: v6}, wanted(testnet.Answered))
			sent, rate := f.stop(t)
			var syns int
			if _, out, _ := strings.Cut(c.host.MustRun("nft", "reset", "counter", "inet", "watch", "syns"), "packets "); true {
				if _, err := fmt.Sscan(out, &syns); err != nil {
					t.Fatal(err)
				}
			}
			if r.Outcome != testnet.Answered || syns > 3 {
				t.Errorf("IPv6 %t: to %s port %d, by SYN %d under %.0f forged SYNs a second: %v", v6, p.to, p.port, syns, rate, r)
			}
			t.Logf("IPv6 %t, to %s port %d: in by SYN %d under %d forged SYNs, %.0f a second", v6, p.to, p.port, syns, sent, rate)
		}
		for _, line := range limitElements(c.host, v6) {
			if strings.Contains(line, "banned") {
				t.Errorf("IPv6 %t: forged SYNs ban: %s", v6, line)
			}
		}
	}
}

// flood sends SYNs of ever other sources, 200,000 a second where the machine can.
type flood struct {
	sent, failed atomic.Int64
	begun        time.Time
	end          func() ([]uint64, error)
}

func startFlood(street *testnet.Port, to netip.AddrPort) *flood {
	f := &flood{begun: time.Now()}
	random := rand.New(rand.NewPCG(1, 2)) //nolint:gosec // not a secret
	first := map[bool]string{false: "198.18.0.1", true: "2001:db8:f000::1"}[to.Addr().Is6()]
	packet := testnet.SYN(at(netip.MustParseAddr(first), forgedPort), to, 1460)
	f.end = testnet.Flood(200, time.Millisecond, func() error {
		rename(packet, random)
		if err := street.Send(packet); err != nil {
			f.failed.Add(1)
			return err
		}
		f.sent.Add(1)
		return nil
	})
	return f
}

// rename gives a SYN another source: of 198.18.0.0/16, or of its own /64 of
// 2001:db8:f000::/48, and another port.
func rename(packet []byte, random *rand.Rand) {
	at := transport(packet)
	port := binary.BigEndian.AppendUint16(nil, uint16(1024+random.IntN(60000))) //nolint:gosec // a port
	address := binary.BigEndian.AppendUint16(nil, uint16(1+random.IntN(65534))) //nolint:gosec // 16 bits
	if packet[0]>>4 == 4 {
		change(packet, 14, address, at+16, 10)
	} else {
		change(packet, 14, address, at+16)
	}
	change(packet, at, port, at+16)
}

// wait is until so many packets were sent, or none are any more.
func (f *flood) wait(packets int) {
	for f.sent.Load() < int64(packets) && f.failed.Load() == 0 {
		time.Sleep(10 * time.Millisecond)
	}
}

// stop ends it and gives how many packets it sent, in all and a second.
func (f *flood) stop(t *testing.T) (int64, float64) {
	t.Helper()
	if _, err := f.end(); err != nil {
		t.Fatal(err)
	}
	sent := f.sent.Load()
	return sent, float64(sent) / time.Since(f.begun).Seconds()
}
