package live_test

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"sluice/internal/backend/nftables"
	"sluice/internal/backend/trace"
	"sluice/internal/base/packet"
	"sluice/internal/lab/testnet"
)

var expiry = regexp.MustCompile(` expires [0-9a-z]+`)

func syn(device string, from, to netip.Addr, port uint16) packet.Packet {
	return packet.Packet{In: device, Source: from, Destination: to, Protocol: packet.TCP, SourcePort: 40000, Port: port, Flags: packet.SYN, Owner: -1}
}

func TestRewriting(t *testing.T) {
	l := newLaboratory(t, rules)
	r := l.must(t, packet.In, syn("wan0", client, own, 8080))
	if p := r.Packet; p.Destination != inner || p.Port != 80 || p.Source != client || p.Out != "lan0" || p.HopLimit != 63 {
		t.Errorf("redirected, the packet is %+v", p)
	}
	r = l.must(t, packet.In, syn("lan0", inner, client, 443))
	if p := r.Packet; p.Source != own || p.Destination != client || p.Out != "wan0" {
		t.Errorf("masqueraded, the packet is %+v", p)
	}
	p := syn("wan0", client, own, 8080)
	p.State, p.Flags = packet.Established, packet.ACK
	if r := l.must(t, packet.In, p); r.Packet.Destination != inner || r.Way != packet.Through || r.State != packet.Established || r.Verdict != trace.Allow {
		t.Errorf("of a redirected flow: %+v", r)
	}
}

// Nothing of the host changes: rules, counters, what limits remember, connections,
// devices; and no namespace is left.
func TestHostIsLeftAlone(t *testing.T) {
	l := newLaboratory(t, rules)
	l.host.ServeTCP("192.0.2.1:7000")
	if r := l.client.TryTCP(testnet.TCPTry{To: netip.AddrPortFrom(own, 7000)}); r.Outcome != testnet.Answered {
		t.Fatal(r)
	}
	state := func() string {
		var b strings.Builder
		for _, words := range [][]string{
			{"nft", "-a", "list", "ruleset"},
			{"ip", "-br", "addr"},
			{"ip", "route", "show", "table", "all"},
			{"ip", "rule"},
			{"sh", "-c", "cat /proc/net/dev | cut -d: -f1; wc -l < /proc/net/packet"},
		} {
			b.WriteString(l.host.MustRun(words[0], words[1:]...))
		}
		return expiry.ReplaceAllString(b.String(), "")
	}
	before, spaces := state(), namespaces(t)
	if !strings.Contains(before, "192.0.2.2") {
		t.Fatalf("the set of sources should hold the client:\n%s", before)
	}
	l.must(t, packet.In, syn("wan0", client, own, 7000))
	l.must(t, packet.In, syn("wan0", netip.MustParseAddr("192.0.2.9"), own, 7000))
	if _, err := l.ask(t, packet.In, syn("nosuch0", client, own, 22)); err == nil {
		t.Error("a packet by an interface that is not there was taken")
	}
	if after := state(); after != before {
		t.Errorf("before:\n%s\nafter:\n%s", before, after)
	}
	if left := namespaces(t); len(left) > len(spaces) {
		t.Errorf("namespaces before %v, after %v", spaces, left)
	}
}

// namespaces are those that this process holds open.
func namespaces(t *testing.T) (found []string) {
	t.Helper()
	entries, err := filepath.Glob("/proc/self/fd/*")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if to, err := os.Readlink(e); err == nil && strings.HasPrefix(to, "net:[") {
			found = append(found, to)
		}
	}
	slices.Sort(found)
	return slices.Compact(found)
}

// That the host knows the flow is told.
func TestKnownFlow(t *testing.T) {
	l := newLaboratory(t, rules)
	l.host.ServeTCP("192.0.2.1:22")
	r, conn := l.client.OpenTCP(testnet.TCPTry{To: netip.AddrPortFrom(own, 22)})
	if conn == nil {
		t.Fatal(r)
	}
	defer conn.Close()
	p := syn("wan0", client, own, 22)
	if r := l.must(t, packet.In, p); len(r.Notes) != 0 {
		t.Errorf("another flow: %v", r.Notes)
	}
	p.SourcePort = r.Local.Port()
	if r := l.must(t, packet.In, p); len(r.Notes) != 1 || !strings.Contains(r.Notes[0], "the packet belongs to a connection") {
		t.Errorf("the flow from %s: %v", r.State, r.Notes)
	}
}

func TestOtherTools(t *testing.T) {
	l := newLaboratory(t, rules+`
table ip guard {
	chain early { type filter hook prerouting priority -150; policy accept; tcp dport 22 ip saddr 192.0.2.9 drop; }
	chain late { type filter hook input priority 10; policy accept; jump more; }
	chain more { tcp dport 7000 counter drop; }
}
`)
	r := l.must(t, packet.In, syn("wan0", client, own, 7000))
	d := r.Decider()
	if r.Verdict != trace.Drop || d == nil || !d.Foreign || d.Table != "guard" || d.Chain != "more" || d.Hook != "input" || d.Priority != 10 || !strings.Contains(d.Rule, "tcp dport 7000") || d.Handle == 0 {
		t.Errorf("decided by %+v of %+v", d, r)
	}
	if r = l.must(t, packet.In, syn("wan0", netip.MustParseAddr("192.0.2.9"), own, 22)); r.Verdict != trace.Drop || r.Decider().Chain != "early" || r.Way != packet.In {
		t.Errorf("decided by %+v of %+v", r.Decider(), r)
	}
	r = l.must(t, packet.In, syn("wan0", client, own, 22))
	if r.Verdict != trace.Allow || r.Decider().Foreign || !r.Loaded {
		t.Errorf("decided by %+v of %+v", r.Decider(), r)
	}
	if !slices.ContainsFunc(r.Steps, func(s trace.Step) bool { return s.Foreign && s.Verdict == "jump more" }) {
		t.Errorf("the other tool's chain is not among the steps: %+v", r.Steps)
	}
}

func TestLegacyIPTables(t *testing.T) {
	testnet.Require(t, testnet.IPTablesLegacy("filter"))
	l := newLaboratory(t, rules)
	l.host.MustRun("iptables-legacy", "-N", "GUARD")
	l.host.MustRun("iptables-legacy", "-A", "INPUT", "-p", "tcp", "-j", "GUARD")
	l.host.MustRun("iptables-legacy", "-A", "GUARD", "-p", "tcp", "--dport", "7000", "-j", "DROP")
	before := l.host.MustRun("iptables-legacy", "-L", "-v", "-n")
	r := l.must(t, packet.In, syn("wan0", client, own, 7000))
	d := r.Decider()
	if r.Verdict != trace.Drop || d == nil || !d.Legacy || d.Chain != "GUARD" || d.Hook != "input" || !strings.Contains(d.Rule, "--dport 7000") {
		t.Errorf("decided by %+v of %+v", d, r)
	}
	if r = l.must(t, packet.In, syn("wan0", client, own, 22)); r.Verdict != trace.Allow || r.Decider().Legacy {
		t.Errorf("decided by %+v of %+v", r.Decider(), r)
	}
	l.host.MustRun("iptables-legacy", "-P", "FORWARD", "DROP")
	if r = l.must(t, packet.In, syn("wan0", client, inner, 80)); r.Verdict != trace.Drop || r.Decider() == nil || !r.Decider().Legacy || r.Decider().Chain != "FORWARD" {
		t.Errorf("decided by %+v of %+v", r.Decider(), r)
	}
	l.host.MustRun("iptables-legacy", "-P", "FORWARD", "ACCEPT")
	if after := l.host.MustRun("iptables-legacy", "-L", "-v", "-n"); after != before {
		t.Errorf("before:\n%s\nafter:\n%s", before, after)
	}
}

// What is dropped before prerouting, at the device's ingress, is seen too.
func TestIngress(t *testing.T) {
	testnet.Require(t, testnet.NetdevIngr)
	l := newLaboratory(t, rules+`
table netdev early {
	chain in { type filter hook ingress device "wan0" priority -500; policy accept; tcp dport 22 drop; }
}
`)
	if r := l.must(t, packet.In, syn("wan0", client, own, 22)); r.Verdict != trace.Drop || r.Decider().Hook != "ingress" || r.Decider().Table != "early" {
		t.Errorf("decided by %+v of %+v", r.Decider(), r)
	}
	if r := l.must(t, packet.In, syn("wan0", client, own, 7000)); r.Verdict != trace.Allow {
		t.Errorf("%+v", r)
	}
}

func TestRoutingLosesPackets(t *testing.T) {
	l := newLaboratory(t, rules)
	l.host.Sysctl("net.ipv4.conf.wan0.rp_filter", "1")
	if r := l.must(t, packet.In, syn("wan0", inner, own, 22)); r.Verdict != trace.Lost || !strings.Contains(r.Why, "reverse path filter") {
		t.Errorf("a spoofed source: %+v", r)
	}
	l.host.Sysctl("net.ipv4.ip_forward", "0")
	if r := l.must(t, packet.In, syn("wan0", client, inner, 80)); r.Verdict != trace.Lost || !strings.Contains(r.Why, "does not forward") {
		t.Errorf("no forwarding: %+v", r)
	}
	l.host.MustRun("ip", "route", "add", "blackhole", "203.0.113.0/24")
	if r := l.must(t, packet.Out, packet.Packet{Source: own, Destination: netip.MustParseAddr("203.0.113.1"), Protocol: 17, SourcePort: 1, Port: 2}); r.Verdict != trace.Lost {
		t.Errorf("a black hole: %+v", r)
	}
}

func TestQuestionsThatCannotBeAsked(t *testing.T) {
	l := newLaboratory(t, "table inet sluice { }")
	l.host.MustRun("ip", "link", "set", "lan0", "down")
	for _, c := range []struct {
		p    packet.Packet
		want string
	}{
		{syn("nosuch0", client, own, 22), `there is no interface "nosuch0"`},
		{syn("lan0", inner, own, 22), "interface lan0 is down"},
		{syn("", netip.MustParseAddr("203.0.113.77"), own, 22), "to which there is no route"},
		{packet.Packet{In: "wan0", Source: client, Destination: own, Protocol: 47, State: packet.Invalid}, "an invalid packet of protocol 47"},
		{packet.Packet{In: "wan0", Source: client, Destination: own, Protocol: 1, ICMPType: 8, State: packet.Related}, "an ICMP message of type 8 and state related"},
		{packet.Packet{In: "wan0", Source: client, Destination: own, Protocol: 1, ICMPType: 3, State: packet.Established}, "an ICMP message of type 3 and state established"},
		{packet.Packet{In: "wan0", Source: client, Destination: own6, Protocol: 6}, "from 192.0.2.2 to 2001:db8::1"},
	} {
		_, err := l.ask(t, packet.In, c.p)
		if !errors.Is(err, trace.ErrQuestion) || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), "\nhint: ") {
			t.Errorf("%+v: %v, want %s and a hint", c.p, err, c.want)
		}
	}
}

// The rules see the bridge and not its ports.
func TestBridge(t *testing.T) {
	testnet.Require(t, testnet.Nftables)
	net := testnet.New(t)
	h, other := net.Unnamed("host"), net.Unnamed("other")
	port, _ := net.Join(testnet.End{In: h, Device: "port0"}, testnet.End{In: other, Device: "eth0", Addresses: []string{"192.0.2.2/24"}})
	h.Bridge("br0", []string{"192.0.2.1/24"}, port)
	h.Nft(`table inet sluice { chain input { type filter hook input priority 0; policy drop; iifname "br0" tcp dport 22 accept; }; }`)
	l := laboratory{host: h}
	if r := l.must(t, packet.In, syn("br0", client, own, 22)); r.Verdict != trace.Allow {
		t.Errorf("by the bridge: %+v", r)
	}
	if _, err := l.ask(t, packet.In, syn("port0", client, own, 22)); err == nil || !strings.Contains(err.Error(), "port0 belongs to br0") {
		t.Errorf("by its port: %v", err)
	}
}

// An interrupted question leaves nothing.
func TestInterrupted(t *testing.T) {
	l := newLaboratory(t, rules)
	spaces := namespaces(t)
	err := l.host.Do(func() error {
		ctx, stop := context.WithCancel(context.Background())
		stop()
		_, err := nftables.New().(trace.Tracer).Trace(ctx, trace.Question{Packet: syn("wan0", client, own, 22), Way: packet.In})
		return err
	})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("interrupted: %v", err)
	}
	if left := namespaces(t); len(left) > len(spaces) {
		t.Errorf("namespaces before %v, after %v", spaces, left)
	}
}

// childVariable makes the test program ask, over and over, until it is killed.
const childVariable = "SLUICE_TRACE_CHILD"

func TestMain(m *testing.M) {
	if os.Getenv(childVariable) == "" {
		os.Exit(m.Run())
	}
	for {
		if _, err := nftables.New().(trace.Tracer).Trace(context.Background(), trace.Question{Packet: syn("wan0", client, own, 22), Way: packet.In}); err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		fmt.Println("asked")
	}
}

// A process that is killed in the middle leaves no namespace and no device.
func TestKilled(t *testing.T) {
	l := newLaboratory(t, rules)
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	before := l.host.MustRun("nft", "-a", "list", "ruleset") + l.host.MustRun("ip", "-br", "link")
	for i := range 4 {
		err := l.host.Do(func() error {
			cmd := exec.Command(program)
			cmd.Env = append(os.Environ(), childVariable+"=1")
			out, err := cmd.StdoutPipe()
			if err != nil {
				return err
			}
			if err := cmd.Start(); err != nil {
				return err
			}
			if i > 0 { // not at the same place each time
				_, _ = out.Read(make([]byte, 6))
			}
			time.Sleep(time.Duration(17*i) * time.Millisecond)
			if err := cmd.Process.Kill(); err != nil {
				return err
			}
			_ = cmd.Wait()
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if after := l.host.MustRun("nft", "-a", "list", "ruleset") + l.host.MustRun("ip", "-br", "link"); after != before {
		t.Errorf("before:\n%s\nafter:\n%s", before, after)
	}
	names, _ := filepath.Glob("/run/netns/*sluice_question*")
	if len(names) > 0 {
		t.Errorf("names are left: %v", names)
	}
}
