package nftables

import (
	"fmt"
	"net/netip"
	"testing"
	"time"

	"sluice/internal/base/addrset"
	"sluice/internal/lab/testnet"
	"sluice/internal/program"
)

// The sources and the host of these tests. Rates are so slow that no bucket
// refills while a test runs: what counts is the burst, and no clock.
var (
	host4 = netip.MustParseAddrPort("192.0.2.1:53")
	host6 = netip.MustParseAddrPort("[2001:db8::1]:53")
)

const hour = 3_600_000 // milliseconds

func hourly(burst uint64) program.Rate { return program.Rate{Packets: 1, Per: hour, Burst: burst} }

// gateTest is a host whose rule for UDP counts what it lets pass, and what went
// on to the next rule.
type gateTest struct {
	kernel
	from     *testnet.Port // the client's port
	gathered map[string]uint64
}

func newGateTest(t *testing.T, device string, sets []program.Set, rules ...program.Rule) *gateTest {
	t.Helper()
	requireNftables(t)
	n := testnet.New(t)
	host, client := n.Unnamed("host"), n.Unnamed("client")
	_, from := n.Join(
		testnet.End{In: host, Device: device, Addresses: []string{"192.0.2.1/24", "2001:db8::1/64"}},
		testnet.End{In: client, Device: "c0", Addresses: []string{"192.0.2.2/24", "2001:db8::2/64"}},
	)
	rules = append(rules, program.Rule{Match: conditions{protocolIs(17)}, Actions: actions{program.Count{Counter: "rest"}, program.Drop}})
	g := &gateTest{kernel: kernel{host}, from: from}
	g.load(t, New(), mustLower(t, &program.Program{
		Owner:    "sluice",
		Hooks:    []program.Hook{{Kind: program.Input, Phase: program.Filter, Default: program.Accept, Chain: "input"}},
		Chains:   []program.Chain{{Name: "input", Rules: rules}},
		Counters: []program.Counter{{Name: "pass"}, {Name: "rest"}, {Name: "full"}},
		Sets:     sets,
	}))
	return g
}

// send sends packets and waits until the counters have seen all that were sent.
func (g *gateTest) send(t *testing.T, packets ...[]byte) {
	t.Helper()
	if err := g.from.Send(packets...); err != nil {
		t.Fatal(err)
	}
	want := g.gathered["pass"] + g.gathered["rest"] + uint64(len(packets))
	for range 12000 {
		if g.gathered = g.counts(t); g.gathered["pass"]+g.gathered["rest"] >= want {
			return
		}
		time.Sleep(5 * time.Millisecond)
	}
	t.Fatalf("of %d packets the counters saw %v", want, g.gathered)
}

func (g *gateTest) counts(t *testing.T) map[string]uint64 {
	t.Helper()
	out := map[string]uint64{}
	for name, c := range g.read(t, false).Counters() {
		out[name] = c.Packets
	}
	return out
}

func (g *gateTest) want(t *testing.T, what string, pass, rest, full uint64) {
	t.Helper()
	if c := g.counts(t); c["pass"] != pass || c["rest"] != rest || c["full"] != full {
		t.Errorf("%s: %d passed, %d went on, %d found the table full; want %d, %d, %d", what, c["pass"], c["rest"], c["full"], pass, rest, full)
	}
}

// from4 and from6 are n packets of one source; ports say of how many flows.
func from4(last byte, n int) [][]byte {
	return packetsFrom(netip.AddrFrom4([4]byte{192, 0, 2, last}), host4, n)
}

func from6(text string, n int) [][]byte { return packetsFrom(netip.MustParseAddr(text), host6, n) }

func packetsFrom(source netip.Addr, to netip.AddrPort, n int) [][]byte {
	var out [][]byte
	for i := range n {
		out = append(out, testnet.UDP(netip.AddrPortFrom(source, uint16(4000+i)), to, 'x'))
	}
	return out
}

var udpOnly = protocolIs(17)

func passing(gates ...program.Action) []program.Action {
	return append(gates, program.Count{Counter: "pass"}, program.Accept)
}

func sourceTable(size int) program.Set {
	return program.Set{ID: "table", Key: []program.Field{program.Source}, Life: program.Dynamic, Size: size, Timeout: hour}
}

// TestLimitPerSource: every source has a bucket; IPv6 sources of one /64 share
// one; asking whether a source is in the table takes nothing from its bucket.
func TestLimitPerSource(t *testing.T) {
	limit := program.Limit{Name: "lim", Rate: hourly(3), Per: program.PerSource, Table: "table", FullCounter: "full"}
	g := newGateTest(t, "h0", []program.Set{sourceTable(64)}, program.Rule{ID: "r", Match: conditions{udpOnly}, Actions: passing(limit)})
	g.send(t, from4(10, 5)...)
	g.want(t, "one source", 3, 2, 0)
	g.send(t, from4(11, 5)...)
	g.want(t, "another source", 6, 4, 0)
	g.send(t, from6("2001:db8::10", 2)...)
	g.send(t, from6("2001:db8::11", 3)...)
	g.want(t, "two sources of one /64", 9, 6, 0)
	g.send(t, from6("2001:db8:0:1::10", 3)...)
	g.want(t, "another /64", 12, 6, 0)
}

// TestLimitTableFull: sources that find no room share one bucket, and are not
// locked out; those in the table keep their own.
func TestLimitTableFull(t *testing.T) {
	limit := program.Limit{Name: "lim", Rate: hourly(3), Per: program.PerSource, Table: "table", FullCounter: "full"}
	g := newGateTest(t, "h0", []program.Set{sourceTable(4)}, program.Rule{ID: "r", Match: conditions{udpOnly}, Actions: passing(limit)})
	for source := byte(10); source < 14; source++ {
		g.send(t, from4(source, 1)...)
	}
	g.want(t, "the table fills", 4, 0, 0)
	for source := byte(20); source < 25; source++ {
		g.send(t, from4(source, 1)...)
	}
	g.want(t, "sources without room", 7, 2, 5)
	g.send(t, from4(10, 3)...)
	g.want(t, "a source with a bucket", 9, 3, 5)
}

// TestLimitThenBan: a source over its limit is banned, by its /64 in IPv6, but
// one that is never banned is not; its packet goes on to the next rule.
func TestLimitThenBan(t *testing.T) {
	limit := program.Limit{
		Name: "lim", Rate: hourly(2), Per: program.PerSource, Table: "table", FullCounter: "full",
		Ban: "bans", BanTimeout: 600_000, NeverBan: "office",
	}
	source := []program.Field{program.Source}
	sets := []program.Set{
		sourceTable(64),
		{ID: "bans", Key: source, Life: program.Dynamic, Size: 64, Timeout: 600_000},
		{ID: "office", Key: source, Life: program.Static, Addresses: addrset.MustParse("192.0.2.64/26", "2001:db8:77::/48")},
	}
	g := newGateTest(t, "h0", sets,
		program.Rule{Match: conditions{setOn(program.Source, "bans")}, Actions: actions{program.Count{Counter: "full"}, program.Count{Counter: "rest"}, program.Drop}},
		program.Rule{ID: "r", Match: conditions{udpOnly}, Actions: passing(limit)},
	)
	g.send(t, from4(10, 2)...)
	g.want(t, "within the limit", 2, 0, 0)
	if err := g.from.Send(from4(10, 1)...); err != nil { // dropped without a counter
		t.Fatal(err)
	}
	g.send(t, from4(10, 3)...)
	g.want(t, "a banned source", 2, 3, 3)
	g.send(t, from4(70, 5)...)
	g.want(t, "a source that is never banned", 4, 6, 3)
	g.send(t, from6("2001:db8:5::1", 2)...)
	if err := g.from.Send(from6("2001:db8:5::1", 1)...); err != nil {
		t.Fatal(err)
	}
	g.send(t, from6("2001:db8:5::2", 2)...)
	g.want(t, "a neighbour in the banned /64", 6, 8, 5)
}

// TestConnectionsPerSource: the third connection of a source does not pass;
// packets of the first still do.
func TestConnectionsPerSource(t *testing.T) {
	limit := program.ConnectionLimit{Name: "con", Max: 2, Per: program.PerSource, Table: "table", FullCounter: "full"}
	table := sourceTable(2)
	table.Timeout = 0
	g := newGateTest(t, "h0", []program.Set{table}, program.Rule{ID: "r", Match: conditions{udpOnly}, Actions: passing(limit)})
	g.send(t, from4(10, 4)...)
	g.want(t, "four connections of one source", 2, 2, 0)
	g.send(t, from4(11, 3)...)
	g.want(t, "of another", 4, 3, 0)
	g.send(t, from4(12, 1)...)
	g.send(t, from4(13, 1)...)
	g.want(t, "of two that find the table full", 6, 3, 2)
	g.send(t, from4(14, 1)...)
	g.want(t, "of a third", 6, 4, 3)
}

// TestSharedGates: rules for two families have one bucket, and one count of
// connections, between them.
func TestSharedGates(t *testing.T) {
	everyone := []program.Set{{ID: "any", Key: []program.Field{program.Source}, Life: program.Static, Addresses: addrset.MustParse("192.0.2.0/24", "2001:db8::/32")}}
	for name, gate := range map[string]program.Action{
		"limit":       program.Limit{Name: "lim", Rate: hourly(3)},
		"connections": program.ConnectionLimit{Name: "con", Max: 3},
	} {
		g := newGateTest(t, "h0", everyone, program.Rule{ID: "r", Match: conditions{udpOnly, setOn(program.Source, "any")}, Actions: passing(gate)})
		g.send(t, from4(10, 2)...)
		g.send(t, from6("2001:db8::10", 3)...)
		g.want(t, name, 3, 2, 0)
	}
}

// TestLogGatesNothing: the log's own rate holds back no packet, whatever is
// before and behind it.
func TestLogGatesNothing(t *testing.T) {
	log := program.Log{Prefix: "x", Rate: hourly(1)}
	for name, does := range map[string][]program.Action{
		"first":         passing(log),
		"behind count":  {program.Count{Counter: "pass"}, log, program.Accept},
		"behind a gate": append([]program.Action{program.Limit{Name: "lim", Rate: hourly(4)}}, passing(log)...),
	} {
		g := newGateTest(t, "h0", nil, program.Rule{ID: "r", Match: conditions{udpOnly}, Actions: does})
		g.send(t, from4(10, 4)...)
		g.want(t, name, 4, 0, 0)
	}
}

// TestInterfaceWildcards: a wildcard matches in a list as it does alone.
func TestInterfaceWildcards(t *testing.T) {
	for _, c := range []struct {
		device string
		names  program.Condition
		passes bool
	}{
		{"wg7", namesOf(program.InInterface, "wg*"), true},
		{"wg7", namesOf(program.InInterface, "wg*", "eth0", "eth9"), true},
		{"wg", namesOf(program.InInterface, "wg*", "eth0"), true},
		{"w7", namesOf(program.InInterface, "wg*", "eth0"), false},
		{"eth0", namesOf(program.InInterface, "wg*", "eth0", "eth9"), true},
		{"eth01", namesOf(program.InInterface, "wg*", "eth0"), false},
		{"wg7", not(namesOf(program.InInterface, "wg*", "eth0")), false},
		{"eth1", not(namesOf(program.InInterface, "wg*", "eth0")), true},
	} {
		g := newGateTest(t, c.device, nil, program.Rule{ID: "r", Match: conditions{c.names}, Actions: passing()})
		g.send(t, from4(10, 1)...)
		pass, rest := uint64(0), uint64(1)
		if c.passes {
			pass, rest = 1, 0
		}
		g.want(t, fmt.Sprintf("%s in %v (not: %v)", c.device, c.names.Names, c.names.Not), pass, rest, 0)
	}
}

// TestReject: TCP gets a reset, the rest port unreachable, whether the rule
// knows the protocol or not.
func TestReject(t *testing.T) {
	for name, match := range map[string][]program.Condition{
		"any": nil, "tcp and udp": {protocolIs(6, 17)},
	} {
		g := newGateTest(t, "h0", nil, program.Rule{ID: "r", Match: append(conditions{not(protocolIs(1, 58))}, match...), Actions: actions{program.Reject}})
		client := g.from.Namespace
		for _, to := range []netip.AddrPort{host4, host6} {
			if r := client.TryTCP(testnet.TCPTry{To: to}); r.Outcome != testnet.Reset {
				t.Errorf("%s: TCP to %s: %s, want a reset", name, to, r)
			}
			kind, code := uint8(3), uint8(3)
			if to.Addr().Is6() {
				kind, code = 1, 4
			}
			if r := client.TryUDP(testnet.UDPTry{To: to}); r.Outcome != testnet.Unreachable || r.ICMPType != kind || r.ICMPCode != code {
				t.Errorf("%s: UDP to %s: %s, want port unreachable", name, to, r)
			}
		}
	}
}
