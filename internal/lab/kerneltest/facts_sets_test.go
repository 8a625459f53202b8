package kerneltest

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"sluice/internal/lab/testnet"
)

// A full dynamic set takes no new source, and a rule that updates it then does
// not match: written as "allow within the limit", a full table locks everybody
// out who is not in it. So the sources that are not in the table share a bucket.
func TestFactFullTableOfSourcesMatchesNobodyElse(t *testing.T) {
	w := newWire(t)
	w.client.Own("198.51.100.0/24")
	w.host.Route("198.51.100.0/24", "192.0.2.2")
	w.host.ServeUDP("192.0.2.1:53")
	w.host.Nft(`table inet t {
		set sources { type ipv4_addr; flags dynamic,timeout; timeout 1m; size 2; }
		chain c {
			type filter hook input priority 0;
			udp dport 53 update @sources { ip saddr limit rate 100/second burst 100 packets } accept
			udp dport 53 drop
		}
	}`)
	for i, want := range []testnet.Outcome{testnet.Answered, testnet.Answered, testnet.Silent, testnet.Silent} {
		from := netip.AddrFrom4([4]byte{198, 51, 100, byte(i + 1)})
		if r := w.client.TryUDP(testnet.UDPTry{From: at(from, 0), To: at(wireEnds[0].host, 53), Patience: patience(want != testnet.Silent)}); r.Outcome != want {
			t.Errorf("source %d of a table of two: %v, it was %v", i+1, r, want)
		}
	}
	if r := w.client.TryUDP(testnet.UDPTry{From: netip.MustParseAddrPort("198.51.100.1:0"), To: at(wireEnds[0].host, 53), Patience: enough}); r.Outcome != testnet.Answered {
		t.Errorf("a source that is in the full table: %v", r)
	}
}

// skipFloods leaves a test that floods out of short runs: an emulated machine
// sends too few packets to lose any.
func skipFloods(t *testing.T) {
	t.Helper()
	if testing.Short() {
		t.Skip("a flood, left out of short runs")
	}
}

// intervals is a set of n small ranges that never touch each other, as nft
// reads it; it holds the client's network in the end.
func intervals(n int) string {
	var b strings.Builder
	for i := range n {
		// 10.0.0.0, 10.0.0.4, ...: two addresses of each four
		a := 10<<24 | i*4
		fmt.Fprintf(&b, "%d.%d.%d.%d/31,\n", a>>24, a>>16&255, a>>8&255, a&255)
	}
	return b.String() + "192.0.2.0/24"
}

// lossOf floods the host while reload runs, and says how many packets a flood
// of an address that old and new set both hold lost to the last rule, drop.
func lossOf(t *testing.T, w *wire, reload func()) (sent, lost uint64) {
	t.Helper()
	before := counter(t, w.host, "lost")
	stop := w.clientPort.Flood(testnet.UDP(at(wireEnds[0].client, 4000), at(wireEnds[0].host, 9)))
	reload()
	sent, err := stop()
	if err != nil {
		t.Fatal(err)
	}
	return sent, counter(t, w.host, "lost") - before
}

// A transaction that makes and fills a large set and switches the rules to it
// loses packets: the new rules are seen before the set's contents are. Filled
// and committed by a transaction of its own first, nothing is lost. So an apply
// fills all sets first, and then switches in a small transaction.
func TestFactNewSetAndItsUserInOneTransactionLosePackets(t *testing.T) {
	skipFloods(t)
	w := newWire(t)
	elements := intervals(30_000)
	set := func(round int) string {
		return fmt.Sprintf("add set inet t allowed%d { type ipv4_addr; flags interval; }\nadd element inet t allowed%d { %s }\n", round, round, elements)
	}
	rules := func(round int) string {
		return fmt.Sprintf("flush chain inet t c\nadd rule inet t c udp dport 9 ip saddr @allowed%d notrack accept\nadd rule inet t c udp dport 9 counter name lost drop\n", round)
	}
	sweep := func(round int) string { return fmt.Sprintf("delete set inet t allowed%d\n", round) }
	w.host.Nft("table inet t { counter lost {}; chain c { type filter hook prerouting priority raw; }; }\n")
	w.host.Nft(set(0))
	w.host.Nft(rules(0))

	round := 0
	const rounds = 12
	t.Run("filled first", func(t *testing.T) {
		for range 3 {
			sent, lost := lossOf(t, w, func() {
				w.host.Nft(set(round + 1))
				w.host.Nft(rules(round + 1))
				w.host.Nft(sweep(round))
				round++
			})
			if lost != 0 {
				t.Errorf("lost %d of %d packets", lost, sent)
			}
		}
	})
	t.Run("in one transaction", func(t *testing.T) {
		var sent, lost uint64
		for range rounds {
			s, l := lossOf(t, w, func() {
				w.host.Nft(set(round+1) + rules(round+1))
				w.host.Nft(sweep(round))
				round++
			})
			sent, lost = sent+s, lost+l
			if lost > 0 {
				t.Logf("lost %d of %d packets", lost, sent)
				return
			}
		}
		t.Errorf("no packet of %d lost in %d reloads: an apply may fill and switch at once", sent, rounds)
	})
}

// Editing a hash set in place, as bans are, loses nothing of its other elements.
func TestFactEditingAHashSetLosesNothing(t *testing.T) {
	skipFloods(t)
	w := newWire(t)
	w.host.Nft(`table inet t {
		counter lost {}
		set living { type ipv4_addr; size 65536; elements = { 192.0.2.2 }; }
		chain c { type filter hook prerouting priority raw; udp dport 9 ip saddr @living notrack accept; udp dport 9 counter name lost drop; }
	}`)
	var some strings.Builder
	for i := range 2000 {
		fmt.Fprintf(&some, "10.0.%d.%d,", i/250, i%250)
	}
	sent, lost := lossOf(t, w, func() {
		for range 20 {
			w.host.Nft("add element inet t living { " + some.String() + " }")
			w.host.Nft("delete element inet t living { " + some.String() + " }")
		}
	})
	if sent == 0 || lost != 0 {
		t.Errorf("lost %d of %d packets", lost, sent)
	}
}

// The number of entries that conntrack allows is one number for the machine,
// held against the table of each namespace: a flood fills a namespace's table
// without a word, and entries are then evicted early or refused. So "doctor"
// and "status" look, and a bypassed service does not need an entry.
func TestFactFloodFillsANamespacesTable(t *testing.T) {
	skipFloods(t)
	w := newWire(t)
	limit := sysctlNumber(t, w.host, "net.netfilter.nf_conntrack_max")
	if limit > 300_000 {
		testnet.Lacks(t, "a connection table that a test can fill", fmt.Errorf("net.netfilter.nf_conntrack_max is %d", limit))
	}
	w.host.Nft("table inet t { chain c { type filter hook input priority 0; ct state new accept; }; }")
	sources := make([][]byte, 0, 4096)
	for i := 0; sysctlNumber(t, w.host, "net.netfilter.nf_conntrack_count") < limit; i++ {
		if i > 4*limit/4096 {
			t.Fatalf("the table holds %d of %d entries after %d flows", sysctlNumber(t, w.host, "net.netfilter.nf_conntrack_count"), limit, i*4096)
		}
		sources = sources[:0]
		for port := range 4096 {
			n := i*4096 + port
			from := netip.AddrFrom4([4]byte{10, byte(n >> 22), byte(n >> 14), byte(n >> 6)})
			sources = append(sources, testnet.UDP(at(from, uint16(1024+n&63)), at(wireEnds[0].host, 9)))
		}
		mustSend(t, w.clientPort, sources...)
	}
	// The machine's own table is another one: it has as many entries as before,
	// which only an equal number there could hide.
	if n := sysctlNumber(t, w.client, "net.netfilter.nf_conntrack_count"); n >= limit {
		t.Errorf("the other namespace has %d entries too", n)
	}
}

func sysctlNumber(t *testing.T, s *testnet.Namespace, name string) int {
	t.Helper()
	text, err := s.GetSysctl(name)
	if err != nil {
		t.Fatal(err)
	}
	var n int
	if _, err := fmt.Sscan(text, &n); err != nil {
		t.Fatal(err)
	}
	return n
}
