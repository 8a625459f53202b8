package live_test

import (
	"context"
	"fmt"
	"net/netip"
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

// laboratory is a host between a client and an inner machine.
type laboratory struct {
	client, host, inner *testnet.Namespace
	port                *testnet.Port // of the client
}

func newLaboratory(t *testing.T, rules string) laboratory {
	t.Helper()
	testnet.Require(t, testnet.Nftables, testnet.NftNAT)
	net := testnet.New(t)
	l := laboratory{client: net.Unnamed("client"), host: net.Unnamed("host"), inner: net.Unnamed("inner")}
	l.port, _ = net.Join(
		testnet.End{In: l.client, Device: "eth0", Addresses: []string{"192.0.2.2/24", "192.0.2.66/24", "2001:db8::2/64"}},
		testnet.End{In: l.host, Device: "wan0", Addresses: []string{"192.0.2.1/24", "2001:db8::1/64"}},
	)
	net.Join(
		testnet.End{In: l.inner, Device: "eth0", Addresses: []string{"10.0.0.5/24"}},
		testnet.End{In: l.host, Device: "lan0", Addresses: []string{"10.0.0.1/24"}},
	)
	l.inner.Route("0.0.0.0/0", "10.0.0.1")
	l.client.Route("10.0.0.0/24", "192.0.2.1")
	l.host.Forward()
	l.host.Nft(rules)
	return l
}

const rules = `
table inet sluice {
	counter ban { comment "policy.yaml:5 ban: banned"; packets 0 bytes 0; }
	set banned { type ipv4_addr; flags interval; elements = { 192.0.2.64/27 } }
	set seen { type ipv4_addr; size 16; flags dynamic,timeout; timeout 1m; }
	chain raw { type filter hook prerouting priority -300; policy accept
		udp dport 7001 notrack comment "policy.yaml:7 bypass: untracked"
	}
	chain refuse { }
	chain input { type filter hook input priority 0; policy drop
		ip saddr @banned counter name "ban" drop comment "from ban.banned"
		ct state established,related accept comment "more of flows that were allowed"
		ct state invalid drop comment "belongs to no connection"
		tcp dport 22 accept comment "policy.yaml:9 allow ssh"
		tcp dport 25 reject with tcp reset comment "policy.yaml:10 reject smtp"
		udp dport { 53, 54 } reject comment "policy.yaml:11 reject dns"
		udp dport 7001 accept comment "policy.yaml:12 allow untracked"
		tcp dport 7000 goto seventh
		tcp dport 7002 goto refuse comment "policy.yaml:15 reject tcp/7002"
		icmp type echo-request limit rate 5/second burst 5 packets accept comment "policy.yaml:14 allow ping"
		icmpv6 type { echo-request, nd-neighbor-solicit, nd-neighbor-advert } accept
	}
	chain refuse { reject with tcp reset; }
	chain seventh {
		add @seen { ip saddr } accept comment "policy.yaml:13 allow tcp/7000"
	}
	chain forward { type filter hook forward priority 0; policy drop
		ct state established,related accept
		tcp dport 80 ip daddr 10.0.0.5 accept comment "policy.yaml:20 allow http to 10.0.0.5"
		iifname "lan0" accept comment "policy.yaml:21 allow any from lan"
	}
	chain output { type filter hook output priority 0; policy accept
		tcp dport 25 reject with tcp reset comment "policy.yaml:30 reject smtp"
		udp dport 53 meta skuid 65534 accept comment "policy.yaml:31 allow dns by user nobody"
		udp dport 53 drop comment "policy.yaml:32 drop dns"
	}
	chain pre { type nat hook prerouting priority -100; policy accept
		tcp dport 8080 ip daddr 192.0.2.1 dnat ip to 10.0.0.5:80 comment "policy.yaml:40 redirect tcp/8080"
	}
	chain post { type nat hook postrouting priority 100; policy accept
		oifname "wan0" ip saddr 10.0.0.0/24 masquerade comment "policy.yaml:41 masquerade"
	}
}
`

var (
	client = netip.MustParseAddr("192.0.2.2")
	banned = netip.MustParseAddr("192.0.2.66")
	own    = netip.MustParseAddr("192.0.2.1")
	inner  = netip.MustParseAddr("10.0.0.5")
	inner6 = netip.MustParseAddr("2001:db8::2")
	own6   = netip.MustParseAddr("2001:db8::1")
)

func (l laboratory) ask(t *testing.T, way packet.Way, p packet.Packet) (*trace.Result, error) {
	t.Helper()
	var r *trace.Result
	err := l.host.Do(func() (err error) {
		ctx, stop := context.WithTimeout(context.Background(), time.Minute)
		defer stop()
		r, err = nftables.New().(trace.Tracer).Trace(ctx, trace.Question{Packet: p, Way: way})
		return err
	})
	return r, err
}

func (l laboratory) must(t *testing.T, way packet.Way, p packet.Packet) *trace.Result {
	t.Helper()
	r, err := l.ask(t, way, p)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

var handles = regexp.MustCompile(`handle [1-9][0-9]*`)

func describe(r *trace.Result) string {
	line := ""
	if s := r.Decider(); s != nil {
		line = s.Line
		if line == "" {
			line = s.Place() + ": " + s.Rule
		}
	}
	after := r.Answer
	if r.Why != "" {
		after = strings.TrimPrefix(after+", "+r.Why, ", ")
	}
	return fmt.Sprintf("%s %s %s %s|%s", r.Verdict, r.Way, r.State, line, after)
}

// The answer is what a real packet meets: each question of a connection is tried for
// real too.
func TestAskIsWhatPacketsMeet(t *testing.T) {
	l := newLaboratory(t, rules)
	for _, port := range []uint16{22, 25, 99, 7000} {
		l.host.ServeTCP(netip.AddrPortFrom(own, port).String())
	}
	l.inner.ServeTCP("10.0.0.5:80", "10.0.0.5:81")
	tcp := func(from, to netip.Addr, port uint16) packet.Packet {
		return packet.Packet{In: "wan0", Source: from, Destination: to, Protocol: packet.TCP, SourcePort: 40000, Port: port, Flags: packet.SYN, Owner: -1}
	}
	outcomes := map[trace.Verdict][]testnet.Outcome{
		trace.Allow: {testnet.Answered}, trace.Drop: {testnet.Silent}, trace.Reject: {testnet.Reset, testnet.Unreachable},
	}
	for _, c := range []struct {
		name string
		p    packet.Packet
		want string
	}{
		{"allowed", tcp(client, own, 22), "allow input new policy.yaml:9 allow ssh|"},
		{"by default", tcp(client, own, 99), "drop input new chain input of table inet sluice: policy|"},
		{"rejected", tcp(client, own, 25), "reject input new policy.yaml:10 reject smtp|a TCP reset"},
		{"banned", tcp(banned, own, 22), "drop input new policy.yaml:5 ban: banned|"},
		{"through a chain", tcp(client, own, 7000), "allow input new policy.yaml:13 allow tcp/7000|"},
		{"redirected", tcp(client, own, 8080), "allow forward new policy.yaml:20 allow http to 10.0.0.5|"},
		{"forwarded", tcp(client, inner, 80), "allow forward new policy.yaml:20 allow http to 10.0.0.5|"},
		{"not forwarded", tcp(client, inner, 81), "drop forward new chain forward of table inet sluice: policy|"},
	} {
		r := l.must(t, packet.In, c.p)
		if got := describe(r); got != c.want {
			t.Errorf("%s: %s, want %s", c.name, got, c.want)
		}
		try := testnet.TCPTry{From: netip.AddrPortFrom(c.p.Source, 0), To: netip.AddrPortFrom(c.p.Destination, c.p.Port)}
		if r.Verdict == trace.Drop {
			try.Patience = 300 * time.Millisecond
		}
		if real := l.client.TryTCP(try); !slices.Contains(outcomes[r.Verdict], real.Outcome) {
			t.Errorf("%s: the copy says %s, a real connection was %s", c.name, r.Verdict, real)
		}
	}
}

func TestAskOtherPackets(t *testing.T) {
	l := newLaboratory(t, rules)
	in := packet.Packet{In: "wan0", Source: client, Destination: own, Protocol: packet.UDP, SourcePort: 40000, Port: 53, Owner: -1}
	out := packet.Packet{Source: own, Destination: client, Protocol: packet.UDP, SourcePort: 40000, Port: 53, Owner: 0}
	with := func(p packet.Packet, change func(p *packet.Packet)) packet.Packet { change(&p); return p }
	for _, c := range []struct {
		name string
		way  packet.Way
		p    packet.Packet
		want string
	}{
		{"by a chain that lines share", packet.In, with(in, func(p *packet.Packet) { p.Protocol, p.Flags, p.Port = packet.TCP, packet.SYN, 7002 }), "reject input new policy.yaml:15 reject tcp/7002|a TCP reset"},
		{"UDP rejected", packet.In, in, "reject input new policy.yaml:11 reject dns|ICMP port unreachable"},
		{"untracked", packet.In, with(in, func(p *packet.Packet) { p.Port = 7001 }), "allow input untracked policy.yaml:12 allow untracked|"},
		{"ping", packet.In, with(in, func(p *packet.Packet) { p.Protocol, p.ICMPType = packet.ICMP, 8 }), "allow input new policy.yaml:14 allow ping|"},
		{"another protocol", packet.In, with(in, func(p *packet.Packet) { p.Protocol = 112 }), "drop input new chain input of table inet sluice: policy|"},
		{"SCTP", packet.In, with(in, func(p *packet.Packet) { p.Protocol = packet.SCTP }), "drop input new chain input of table inet sluice: policy|"},
		{"established", packet.In, with(in, func(p *packet.Packet) { p.State, p.Port = packet.Established, 999 }), "allow input established chain input of table inet sluice, handle H: ct state established,related accept|"},
		{"established TCP", packet.In, with(in, func(p *packet.Packet) { p.State, p.Protocol, p.Port = packet.Established, packet.TCP, 999 }), "allow input established chain input of table inet sluice, handle H: ct state established,related accept|"},
		{"an echo reply", packet.In, with(in, func(p *packet.Packet) { p.State, p.Protocol, p.ICMPType = packet.Established, packet.ICMP, 0 }), "allow input established chain input of table inet sluice, handle H: ct state established,related accept|"},
		{"related", packet.In, with(in, func(p *packet.Packet) { p.State, p.Port = packet.Related, 999 }), "allow input related chain input of table inet sluice, handle H: ct state established,related accept|"},
		{"a related error", packet.In, with(in, func(p *packet.Packet) { p.State, p.Protocol, p.ICMPType = packet.Related, packet.ICMP, 3 }), "allow input related chain input of table inet sluice, handle H: ct state established,related accept|"},
		{"an error of no flow", packet.In, with(in, func(p *packet.Packet) { p.Protocol, p.ICMPType = packet.ICMP, 3 }), "drop input invalid chain input of table inet sluice, handle H: ct state invalid drop|"},
		{"invalid TCP", packet.In, with(in, func(p *packet.Packet) { p.State, p.Protocol, p.Port = packet.Invalid, packet.TCP, 22 }), "drop input invalid chain input of table inet sluice, handle H: ct state invalid drop|"},
		{"invalid UDP", packet.In, with(in, func(p *packet.Packet) { p.State, p.Port = packet.Invalid, 7000 }), "drop input invalid chain input of table inet sluice, handle H: ct state invalid drop|"},
		{"invalid ICMP", packet.In, with(in, func(p *packet.Packet) { p.State, p.Protocol, p.ICMPType = packet.Invalid, packet.ICMP, 8 }), "drop input invalid chain input of table inet sluice, handle H: ct state invalid drop|"},
		{"said to be untracked", packet.In, with(in, func(p *packet.Packet) { p.State, p.Protocol, p.Port = packet.Untracked, packet.TCP, 22 }), "allow input untracked policy.yaml:9 allow ssh|"},
		{"IPv6", packet.In, with(in, func(p *packet.Packet) { p.Source, p.Destination, p.Port = inner6, own6, 54 }), "reject input new policy.yaml:11 reject dns|ICMPv6 port unreachable"},
		{"IPv6 by default", packet.In, with(in, func(p *packet.Packet) { p.Source, p.Destination, p.Port = inner6, own6, 99 }), "drop input new chain input of table inet sluice: policy|"},
		{"IPv6 TCP", packet.In, with(in, func(p *packet.Packet) {
			p.Source, p.Destination, p.Protocol, p.Port, p.Flags = inner6, own6, packet.TCP, 22, packet.SYN
		}), "allow input new policy.yaml:9 allow ssh|"},
		{"to a group", packet.In, with(in, func(p *packet.Packet) { p.Destination, p.Port = netip.MustParseAddr("224.0.0.251"), 7001 }), "allow input untracked policy.yaml:12 allow untracked|"},
		{"to a group of IPv6", packet.In, with(in, func(p *packet.Packet) {
			p.Source, p.Destination, p.Port = inner6, netip.MustParseAddr("ff02::fb"), 5353
		}), "drop input new chain input of table inet sluice: policy|"},
		{"to everybody", packet.In, with(in, func(p *packet.Packet) {
			p.Destination, p.Port = netip.MustParseAddr("255.255.255.255"), 7001
		}), "allow input untracked policy.yaml:12 allow untracked|"},
		{"over loopback", packet.Out, with(out, func(p *packet.Packet) {
			p.Source, p.Destination, p.Port = netip.MustParseAddr("127.0.0.1"), netip.MustParseAddr("127.0.0.1"), 7001
		}), "allow output new chain output of table inet sluice: policy|"},
		{"without an interface", packet.In, with(in, func(p *packet.Packet) { p.In = "" }), "reject input new policy.yaml:11 reject dns|ICMP port unreachable"},
		{"from the inside", packet.In, with(in, func(p *packet.Packet) { p.In, p.Source, p.Destination = "lan0", inner, client }), "allow forward new policy.yaml:21 allow any from lan|"},
		{"output", packet.Out, with(out, func(p *packet.Packet) { p.Port = 123 }), "allow output new chain output of table inet sluice: policy|"},
		{"output dropped", packet.Out, out, "drop output new policy.yaml:32 drop dns|"},
		{"output of a user", packet.Out, with(out, func(p *packet.Packet) { p.Owner = 65534 }), "allow output new policy.yaml:31 allow dns by user nobody|"},
		{"output rejected", packet.Out, with(out, func(p *packet.Packet) { p.Protocol, p.Port, p.Flags = packet.TCP, 25, packet.SYN }), "reject output new policy.yaml:30 reject smtp|a TCP reset"},
		{"to itself", packet.Out, with(out, func(p *packet.Packet) { p.Destination, p.Port = own, 54 }), "reject output new policy.yaml:11 reject dns|ICMP port unreachable"},
		{"output of IPv6", packet.Out, with(out, func(p *packet.Packet) { p.Source, p.Destination = own6, inner6 }), "drop output new policy.yaml:32 drop dns|"},
		{"no route", packet.Out, with(out, func(p *packet.Packet) { p.Destination = netip.MustParseAddr("203.0.113.1") }), "lost output  |no route leads to 203.0.113.1"},
		{"not routed", packet.In, with(in, func(p *packet.Packet) { p.Destination = netip.MustParseAddr("203.0.113.1") }), "lost input new |ICMP network unreachable, no route leads to 203.0.113.1"},
		{"a fragment", packet.In, with(in, func(p *packet.Packet) { p.Fragment = true }), "lost input  |connection tracking holds a fragment until the others arrive: rules see whole packets"},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := l.must(t, c.way, c.p)
			got := handles.ReplaceAllString(describe(r), "handle H")
			if got != c.want {
				t.Errorf("got  %s\nwant %s\nsteps %+v", got, c.want, r.Steps)
			}
		})
	}
}
