package kerneltest

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"sluice/internal/lab/testnet"
)

// enough is the patience where an answer is expected, short where none is.
const (
	enough = time.Minute
	short  = 250 * time.Millisecond
)

// wire is a client and a host on one veth pair, both families.
type wire struct {
	client, host         *testnet.Namespace
	clientPort, hostPort *testnet.Port
}

// ends are the addresses of a wire.
type ends struct {
	family       string
	client, host netip.Addr
	v6           bool
}

var wireEnds = []ends{
	{"ipv4", netip.MustParseAddr("192.0.2.2"), netip.MustParseAddr("192.0.2.1"), false},
	{"ipv6", netip.MustParseAddr("2001:db8:2::2"), netip.MustParseAddr("2001:db8:2::1"), true},
}

func newWire(t *testing.T) *wire {
	t.Helper()
	testnet.Require(t, testnet.Namespaces, testnet.Nftables)
	n := testnet.New(t)
	w := &wire{client: n.Unnamed("client"), host: n.Unnamed("host")}
	w.clientPort, w.hostPort = n.Join(
		testnet.End{In: w.client, Device: "eth0", Addresses: []string{"192.0.2.2/24", "2001:db8:2::2/64"}},
		testnet.End{In: w.host, Device: "eth0", Addresses: []string{"192.0.2.1/24", "2001:db8:2::1/64"}},
	)
	return w
}

func at(a netip.Addr, port uint16) netip.AddrPort { return netip.AddrPortFrom(a, port) }

// patience is how long an answer is waited for, or its absence.
func patience(answer bool) time.Duration {
	if answer {
		return enough
	}
	return short
}

// mustSend puts packets on a port's wire.
func mustSend(t *testing.T, by *testnet.Port, packets ...[]byte) {
	t.Helper()
	if err := by.Send(packets...); err != nil {
		t.Fatal(err)
	}
}

// eventually asks again for a while until there is no error.
func eventually(ask func() error) error {
	for deadline := time.Now().Add(enough); ; time.Sleep(20 * time.Millisecond) {
		err := ask()
		if err == nil || time.Now().After(deadline) {
			return err
		}
	}
}

// counter reads a named counter of table inet t.
func counter(t *testing.T, s *testnet.Namespace, name string) uint64 {
	t.Helper()
	return counterOf(t, s, "inet t", name)
}

// counterOf reads a named counter of a table.
func counterOf(t *testing.T, s *testnet.Namespace, table, name string) uint64 {
	t.Helper()
	all, err := s.Counters(table)
	if err != nil {
		t.Fatal(err)
	}
	n, there := all[name]
	if !there {
		t.Fatalf("no counter %s in table %s", name, table)
	}
	return n
}

// wantCounts waits until counters of table inet t have the numbers.
func wantCounts(t *testing.T, s *testnet.Namespace, what string, want map[string]uint64) {
	t.Helper()
	if err := eventually(func() error {
		for name, n := range want {
			if got := counter(t, s, name); got != n {
				return fmt.Errorf("counter %s: %d packets, want %d", name, got, n)
			}
		}
		return nil
	}); err != nil {
		t.Errorf("%s: %v", what, err)
	}
}

// An accept ends its base chain, not the packet's way: the next base chain of
// the hook still decides. This is why story 3 happened, why Sluice decides all
// in one chain, and why "plan" looks for foreign base chains that drop.
func TestFactAcceptEndsOnlyItsBaseChain(t *testing.T) {
	w := newWire(t)
	w.host.ServeUDP("192.0.2.1:53")
	w.host.Nft(`table inet t {
		counter first {}
		chain early { type filter hook input priority -1; udp dport 53 counter name first accept; }
		chain late { type filter hook input priority 0; udp dport 53 drop; }
	}`)
	r := w.client.TryUDP(testnet.UDPTry{To: at(wireEnds[0].host, 53), Patience: short})
	wantCounts(t, w.host, "the first chain sees the datagram", map[string]uint64{"first": 1})
	if r.Outcome != testnet.Silent {
		t.Errorf("%v: the accept of an earlier base chain has saved the packet from a later one", r)
	}
}

// An ICMP error about a flow that is not tracked has the state invalid. Dropped
// with the other invalid packets, it breaks path MTU discovery for every
// bypassed service; so ICMP errors are asked before "invalid".
func TestFactICMPErrorAboutUntrackedFlowIsInvalid(t *testing.T) {
	w := newWire(t)
	w.host.Nft(`table inet t {
		counter invalid_v4 {}
		counter invalid_v6 {}
		counter other {}
		chain raw_in { type filter hook prerouting priority raw; tcp dport 80 notrack; }
		chain raw_out { type filter hook output priority raw; tcp sport 80 notrack; }
		chain in {
			type filter hook input priority 0;
			icmp type destination-unreachable ct state invalid counter name invalid_v4 accept
			icmpv6 type packet-too-big ct state invalid counter name invalid_v6 accept
			icmp type destination-unreachable counter name other
			icmpv6 type packet-too-big counter name other
		}
	}`)
	for _, e := range wireEnds {
		delivered := w.host.Delivered(icmpOf(e), e.v6)
		quoted := testnet.TCP(at(e.host, 80), at(e.client, 40000), "A", make([]byte, 1000)...)
		mustSend(t, w.clientPort, testnet.TooBig(e.client, e.host, 1280, quoted))
		if _, ok := delivered.Wait(enough, testnet.From(e.client)); !ok {
			t.Fatalf("%s: the error did not arrive", e.family)
		}
		if n := counter(t, w.host, "invalid_"+strings.Replace(e.family, "ip", "", 1)); n != 1 {
			t.Errorf("%s: %d errors were invalid, %d of another state; it was 1 and 0", e.family, n, counter(t, w.host, "other"))
		}
	}
}

func icmpOf(e ends) uint8 {
	if e.v6 {
		return 58
	}
	return 1
}

// The size of the connection table and of its buckets belong to the whole
// machine: a namespace sees them and cannot write them. So sizing is skipped for
// --netns.
func TestFactTableSizeIsReadOnlyInANamespace(t *testing.T) {
	testnet.Require(t, testnet.Namespaces, testnet.Nftables)
	s := testnet.New(t).Unnamed("host")
	s.Nft("table inet t { chain c { type filter hook input priority 0; ct state new accept; }; }")
	for _, name := range []string{"nf_conntrack_max", "nf_conntrack_buckets", "nf_conntrack_expect_max"} {
		value, err := s.GetSysctl("net.netfilter." + name)
		if err != nil {
			t.Errorf("%s cannot be read in a namespace: %v", name, err)
			continue
		}
		// the value that it has: where the write is let through, nothing changes
		if err := s.SetSysctl("net.netfilter."+name, value); err == nil {
			t.Errorf("%s can be written in a namespace", name)
		}
	}
	value, err := s.GetSysctl("net.netfilter.nf_conntrack_tcp_timeout_time_wait")
	if err == nil {
		err = s.SetSysctl("net.netfilter.nf_conntrack_tcp_timeout_time_wait", value)
	}
	if err != nil {
		t.Errorf("time-outs, which belong to each namespace, cannot be written: %v", err)
	}
}

// Echo requests with one id are one flow: the second of them is established. A
// limit behind "established" counts 1 for all of them; so limits on ICMP are
// asked before it.
func TestFactEchoRequestsOfOneIDAreOneFlow(t *testing.T) {
	w := newWire(t)
	w.host.Nft(`table inet t {
		counter seen_v4 {}
		counter seen_v6 {}
		counter limited_v4 {}
		counter limited_v6 {}
		chain in {
			type filter hook input priority 0;
			icmp type echo-request counter name seen_v4
			icmpv6 type echo-request counter name seen_v6
			ct state established accept
			icmp type echo-request counter name limited_v4
			icmpv6 type echo-request counter name limited_v6
		}
	}`)
	for _, e := range wireEnds {
		// The reply to the first one makes the flow established.
		if r := w.client.TryEcho(testnet.EchoTry{To: e.host, ID: 77, Patience: enough}); r.Outcome != testnet.Answered {
			t.Fatal(r)
		}
		for i := range 199 {
			mustSend(t, w.clientPort, testnet.Echo(e.client, e.host, 77, uint16(i+1)))
		}
		v := strings.Replace(e.family, "ip", "", 1)
		wantCounts(t, w.host, "one request alone passes the place behind established", map[string]uint64{"seen_" + v: 200, "limited_" + v: 1})
	}
}

// A rule that rewrites addresses without state leaves the header inside an ICMP
// error as it was: the sender does not know its own packet in it. So the plan
// says that a stateless map does not carry path MTU discovery of IPv4 and IPv6.
func TestFactStatelessRewritingLeavesQuotedHeader(t *testing.T) {
	w := newWire(t)
	w.host.Nft(`table ip t { chain c { type filter hook prerouting priority raw; ip daddr 192.0.2.1 ip daddr set 192.0.2.9; }; }
table ip6 t { chain c { type filter hook prerouting priority raw; ip6 daddr 2001:db8:2::1 ip6 daddr set 2001:db8:2::9; }; }`)
	w.host.Own("192.0.2.9/32", "2001:db8:2::9/128")
	for _, e := range wireEnds {
		delivered := w.host.Delivered(icmpOf(e), e.v6)
		quoted := testnet.TCP(at(e.host, 80), at(e.client, 40000), "A", make([]byte, 500)...)
		mustSend(t, w.clientPort, testnet.TooBig(e.client, e.host, 1280, quoted))
		got, ok := delivered.Wait(enough, testnet.From(e.client))
		if !ok {
			t.Fatalf("%s: the rewritten error did not arrive", e.family)
		}
		inner, err := testnet.Parse(got.Payload[4:])
		if err != nil && len(got.Payload) < 44 {
			t.Fatal(err)
		}
		if !e.v6 && got.Destination.String() != "192.0.2.9" {
			t.Errorf("the header outside was not rewritten: %v", got)
		}
		if inner.Source != e.host {
			t.Errorf("%s: the header inside was rewritten, from %s to %s", e.family, e.host, inner.Source)
		}
	}
}

// nft lists the masked address of a stateless map in another form than it was
// given. So what is read back is compared by meaning, never as text.
func TestFactNftListsMasksInAnotherForm(t *testing.T) {
	testnet.Require(t, testnet.Namespaces, testnet.Nftables)
	s := testnet.New(t).Unnamed("host")
	const given = "ip daddr set ip daddr & 0.0.0.15 | 10.20.1.0"
	s.Nft("table ip t { chain c { type filter hook prerouting priority raw; " + given + "; }; }")
	out, err := s.Run("nft", "list", "table", "ip", "t")
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(out, given) || !strings.Contains(out, "ip daddr set") {
		t.Errorf("nft lists the rule as it was given:\n%s", out)
	}
}

// The reset that "reject" sends for a packet that is not tracked is not tracked
// either, and meets the output chain, where no state saves it: it is untracked
// where output does not track the port, else invalid. So output lets such resets
// pass.
func TestFactResetOfUntrackedMeetsOutput(t *testing.T) {
	w := newWire(t)
	w.host.Nft(`table inet t {
		counter untracked_v4 {}
		counter untracked_v6 {}
		counter invalid_v4 {}
		counter invalid_v6 {}
		chain raw_in { type filter hook prerouting priority raw; tcp dport { 81, 83 } notrack; }
		chain raw_out { type filter hook output priority raw; tcp sport 81 notrack; }
		chain in { type filter hook input priority 0; tcp dport { 81, 82, 83 } reject with tcp reset; }
		chain out {
			type filter hook output priority 0;
			meta nfproto ipv4 tcp sport 81 ct state untracked counter name untracked_v4 drop
			meta nfproto ipv6 tcp sport 81 ct state untracked counter name untracked_v6 drop
			meta nfproto ipv4 tcp sport 83 ct state invalid counter name invalid_v4 drop
			meta nfproto ipv6 tcp sport 83 ct state invalid counter name invalid_v6 drop
			meta l4proto tcp ct state untracked,invalid drop
		}
	}`)
	for _, e := range wireEnds {
		for port, state := range map[uint16]string{81: "untracked", 83: "invalid"} {
			if r := w.client.TryTCP(testnet.TCPTry{To: at(e.host, port), Patience: short}); r.Outcome != testnet.Silent {
				t.Errorf("%s: %v: the reset of port %d did not meet the output chain", e.family, r, port)
			}
			if err := eventually(func() error {
				if counter(t, w.host, state+strings.Replace(e.family, "ip", "_", 1)) == 0 {
					return fmt.Errorf("%s: the reset of port %d was not %s", e.family, port, state)
				}
				return nil
			}); err != nil {
				t.Error(err)
			}
		}
		if r := w.client.TryTCP(testnet.TCPTry{To: at(e.host, 82), Patience: enough}); r.Outcome != testnet.Reset {
			t.Errorf("%s: the reset of a tracked packet did not pass by its state: %v", e.family, r)
		}
	}
}

// The offer of a DHCP server is a packet of no known flow: the question went to
// the broadcast address. So the answers to the host's own DHCP pass without
// being written.
func TestFactDHCPAnswersHaveNoState(t *testing.T) {
	w := newWire(t)
	w.host.Nft(`table inet t {
		counter established_answers {}
		counter new_answers {}
		chain out { type filter hook output priority 0; ct state new accept; }
		chain in {
			type filter hook input priority 0;
			udp dport { 68, 546 } ct state established,related counter name established_answers
			udp dport { 68, 546 } ct state new counter name new_answers
		}
	}`)
	serverLocal, err := w.clientPort.LinkLocal()
	if err != nil {
		t.Fatal(err)
	}
	hostLocal, err := w.hostPort.LinkLocal()
	if err != nil {
		t.Fatal(err)
	}
	// The host asks, as its DHCP clients do ...
	w.host.TryUDP(testnet.UDPTry{From: netip.MustParseAddrPort("192.0.2.1:68"), To: netip.MustParseAddrPort("192.0.2.255:67"), Patience: time.Millisecond})
	w.host.TryUDP(testnet.UDPTry{From: at(hostLocal.WithZone("eth0"), 546), To: netip.MustParseAddrPort("[ff02::1:2%eth0]:547"), Device: "eth0", Patience: time.Millisecond})
	// ... and is answered by the address that the server has.
	mustSend(t, w.clientPort, testnet.DHCPAnswer(wireEnds[0].client, wireEnds[0].host, w.hostPort.MAC), testnet.DHCPv6Answer(serverLocal, hostLocal))
	wantCounts(t, w.host, "both answers are new", map[string]uint64{"established_answers": 0, "new_answers": 2})
}
