package live_test

import (
	"context"
	"fmt"
	"net/netip"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"sluice/internal/backend/nftables"
	"sluice/internal/backend/nftables/live"
	"sluice/internal/backend/trace"
	"sluice/internal/base/packet"
	"sluice/internal/lab/testnet"
)

var iptablesNft = testnet.Probed("iptables-nft", func() error { return exec.Command("iptables-nft", "--version").Run() })

// sampler follows the packets of a namespace.
type sampler struct {
	t       *testing.T
	dropped chan *trace.Result
	notes   []string
	end     func() trace.Sampled // what was followed
}

func follow(t *testing.T, n *testnet.Namespace) *sampler {
	t.Helper()
	s := &sampler{t: t, dropped: make(chan *trace.Result, 1000)}
	ctx, stop := context.WithCancel(context.Background())
	begun, ended := make(chan []string, 1), make(chan error, 1)
	var sampled trace.Sampled
	go func() {
		ended <- n.Do(func() error {
			return nftables.New().(trace.Sampler).Sample(ctx, trace.Sampling{
				Rate: 100_000, Read: func() {}, Begun: func(notes []string) { begun <- notes },
				Dropped: func(r *trace.Result) { s.dropped <- r }, Counted: func(s trace.Sampled) { sampled = s },
			})
		})
	}()
	select {
	case s.notes = <-begun:
	case err := <-ended:
		stop()
		t.Fatal(err)
	}
	s.end = func() trace.Sampled {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		ended <- nil
		return sampled
	}
	t.Cleanup(func() { s.end() })
	return s
}

// to is the next packet that was dropped on its way to a port.
func (s *sampler) to(port uint16) *trace.Result {
	s.t.Helper()
	for {
		select {
		case r := <-s.dropped:
			if r.Packet.Port == port {
				return r
			}
		case <-time.After(time.Minute):
			s.t.Fatalf("no rule is told that dropped a packet to port %d", port)
		}
	}
}

const foreignRules = `
table inet other {
	chain listed { ip saddr 192.0.2.0/24 drop comment "a 'b' \` + "\x1b[2J" + `"; }
	chain filter_in { type filter hook input priority 10; policy accept
		udp dport 1001 drop comment "the foreign one"
		udp dport 1002 reject with icmpx admin-prohibited
		udp dport 1003 jump listed
		udp dport vmap { 1004 : drop }
		udp dport 1005 accept
	}
	chain filter_forward { type filter hook forward priority 10; policy drop; }
	chain out { type route hook output priority 10; policy accept
		udp dport 1007 drop
	}
}
table ip late { chain c { type filter hook input priority 300; udp dport 1005 drop; }; }
`

// Each packet that a rule drops for real is told, with the rule, whoever's that is.
func TestSampleNamesRules(t *testing.T) {
	testnet.Require(t, iptablesNft)
	l := newLaboratory(t, rules)
	for _, words := range []string{
		"-A INPUT -p udp --dport 1010 -m string --algo bm --string anybody -j DROP",
		"-A INPUT -p udp --dport 1011 -j REJECT",
	} {
		l.host.MustRun("iptables-nft", strings.Fields(words)...)
	}
	l.host.Nft("insert rule inet sluice input udp dport { 1000-1020 } accept comment \"policy.yaml:16 allow udp/1000-1020\"")
	l.host.Nft("insert rule inet sluice input udp dport 1009 drop comment \"policy.yaml:17 drop udp/1009\"")
	l.host.Nft(foreignRules)
	s := follow(t, l.host)
	if len(s.notes) > 0 {
		t.Error(s.notes)
	}
	send := func(from *testnet.Namespace, to netip.Addr, port uint16) {
		t.Helper()
		from.TryUDP(testnet.UDPTry{To: netip.AddrPortFrom(to, port), Patience: time.Millisecond})
	}
	for _, c := range []struct {
		from *testnet.Namespace
		to   netip.Addr
		port uint16
		want string
	}{
		{l.client, own, 1001, "drop input chain filter_in of table inet other, handle N: udp dport 1001 drop"},
		{l.client, own6, 1001, "drop input chain filter_in of table inet other, handle N: udp dport 1001 drop"},
		{l.client, own, 1002, "reject input chain filter_in of table inet other, handle N: udp dport 1002 reject with icmpx admin-prohibited"},
		{l.client, own, 1003, "drop input chain listed of table inet other, handle N: ip saddr 192.0.2.0/24 drop"},
		{l.client, own, 1004, "drop input chain filter_in of table inet other, handle N: udp dport vmap { 1004 : drop }"},
		{l.client, own, 1005, "drop input chain c of table ip late, handle N: udp dport 1005 drop"},
		{l.client, inner, 1006, "drop forward chain forward of table inet sluice: policy"},
		{l.host, client, 1007, "drop output chain out of table inet other, handle N: udp dport 1007 drop"},
		{l.inner, client, 1008, "drop forward chain filter_forward of table inet other: policy"},
		{l.client, own, 1009, "drop input policy.yaml:17 drop udp/1009"},
		{l.client, own, 1010, "drop input chain INPUT of table ip filter, handle N: udp dport 1010 xt match string counter packets 0 bytes 0 drop"},
		{l.client, own, 1011, "reject input chain INPUT of table ip filter, handle N: udp dport 1011 counter packets 0 bytes 0 reject"},
	} {
		send(c.from, c.to, c.port)
		r := s.to(c.port)
		got := fmt.Sprintf("%s %s %s: %s", r.Verdict, r.Way, r.Decider().Place(), r.Decider().Rule)
		if line := r.Decider().Line; line != "" {
			got = fmt.Sprintf("%s %s %s", r.Verdict, r.Way, line)
		}
		if got = handles.ReplaceAllString(got, "handle N"); strings.Join(strings.Fields(got), " ") != c.want {
			t.Errorf("%s, want %s", got, c.want)
		}
		p := r.Packet
		if p.Protocol != packet.UDP || p.Destination != c.to || p.Length < 28 || c.from == l.client && p.In != "wan0" || c.from == l.host && (p.In != "" || p.Out != "wan0") {
			t.Errorf("port %d: the packet is %+v", c.port, p)
		}
	}
	// A rule that comes meanwhile has its text too, as soon as the rules were read again.
	for try := 0; ; try++ {
		l.host.Nft(fmt.Sprintf("insert rule inet other filter_in udp dport 1012 ip ttl != %d drop", try))
		send(l.client, own, 1012)
		if d := s.to(1012).Decider(); strings.HasPrefix(d.Rule, "udp dport 1012") {
			break
		}
		time.Sleep(100 * time.Millisecond)
	}
	if got := s.end(); got.Followed < 12 || got.Lost > 0 {
		t.Errorf("%+v", got)
	}
	if left := l.host.MustRun("nft", "list", "tables"); strings.Contains(left, "sluice_trace") {
		t.Errorf("the table is left: %s", left)
	}
}

// Where packets are followed, a question about one meets the same rules as before.
func TestAskWhileSampling(t *testing.T) {
	l := newLaboratory(t, rules)
	before := l.must(t, packet.In, syn("wan0", client, own, 22))
	follow(t, l.host)
	after := l.must(t, packet.In, syn("wan0", client, own, 22))
	if !slices.Equal(before.Steps, after.Steps) || describe(before) != describe(after) {
		t.Errorf("before: %v\nafter: %v", before.Steps, after.Steps)
	}
}

// In a flood the marking rests, and the table stays; behind it, what drops a packet is named again.
func TestSampleRests(t *testing.T) {
	before := live.FloodFrom(2000)
	l := newLaboratory(t, rules)
	s := follow(t, l.host)
	t.Cleanup(func() { s.end(); live.FloodFrom(before) })
	named := make(chan *trace.Result, 1)
	go func() {
		for {
			select {
			case r := <-s.dropped:
				if r.Packet.Port == 1002 {
					named <- r
				}
			case <-t.Context().Done():
				return
			}
		}
	}()
	datagram := testnet.UDP(netip.AddrPortFrom(client, 7), netip.AddrPortFrom(own, 1001))
	stop := testnet.Flood(100, 10*time.Millisecond, func() error { return l.port.Send(datagram) })
	marks := func() bool {
		listed := l.host.MustRun("nft", "list", "table", "inet", "sluice_trace")
		return strings.Contains(listed, "chain")
	}
	await := func(what string, want bool) {
		t.Helper()
		for deadline := time.Now().Add(time.Minute); marks() != want; time.Sleep(10 * time.Millisecond) {
			if time.Now().After(deadline) {
				t.Fatalf("waited in vain until the marking %s", what)
			}
		}
	}
	await("rests", false)
	await("goes on", true)
	await("rests again", false)
	if _, err := stop(); err != nil {
		t.Error(err)
	}
	await("goes on behind the flood", true)
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); {
		// What is left of the flood in a queue may take the marks that there are in a second.
		l.client.TryUDP(testnet.UDPTry{To: netip.AddrPortFrom(own, 1002), Patience: time.Millisecond})
		select {
		case r := <-named:
			if r.Decider().Place() != "chain input of table inet sluice" {
				t.Errorf("dropped by %s: %s", r.Decider().Place(), r.Decider().Rule)
			}
			return
		case <-time.After(100 * time.Millisecond):
		}
	}
	t.Error("no rule is named that dropped the packet")
}
