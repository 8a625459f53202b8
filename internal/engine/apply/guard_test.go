package apply

import (
	"errors"
	"net/netip"
	"strings"
	"testing"

	"sluice/internal/base/addrset"
	"sluice/internal/lab/testnet"
	"sluice/internal/program"
	"sluice/internal/system/host"
)

// TestGuardAsksForTheAnswer has ssh bypass tracking: input lets the peer in, and
// output decides on what the host answers.
func TestGuardAsksForTheAnswer(t *testing.T) {
	ports := func(f program.Field, n uint64) []program.Condition {
		return []program.Condition{
			{Field: program.Protocol, Numbers: []program.NumberRange{{From: 6, To: 6}}},
			{Field: f, Numbers: []program.NumberRange{{From: n, To: n}}},
		}
	}
	office := program.Condition{Field: program.Source, Addresses: []addrset.Range{{From: netip.MustParseAddr("198.51.100.0"), To: netip.MustParseAddr("198.51.100.255")}}}
	bypassed := func(tracked bool, answers ...program.Rule) *program.Program {
		p := &program.Program{
			Hooks: []program.Hook{
				{Kind: program.Prerouting, Phase: program.Raw, Default: program.Accept, Chain: "prerouting_raw"},
				{Kind: program.Input, Phase: program.Filter, Default: program.Drop, Chain: "input"},
				{Kind: program.Output, Phase: program.Filter, Default: program.Drop, Chain: "output"},
			},
			Chains: []program.Chain{
				{Name: "prerouting_raw", Rules: []program.Rule{{Match: ports(program.Port, 22), Actions: []program.Action{program.NoTrack{}}}}},
				{Name: "input", Rules: []program.Rule{{Match: []program.Condition{office}, Actions: []program.Action{program.Accept}}}},
				{Name: "output", Rules: answers},
			},
		}
		if tracked {
			p.Chains[0].Rules = nil
		}
		return p
	}
	answer := program.Rule{Match: ports(program.SourcePort, 22), Actions: []program.Action{program.Accept}}
	peer := SSHClient{Remote: netip.MustParseAddrPort("198.51.100.9:50000"), Local: netip.MustParseAddrPort("203.0.113.1:22")}
	for name, test := range map[string]struct {
		p      *program.Program
		locked bool
	}{
		"answers dropped":              {bypassed(false), true},
		"answers allowed":              {bypassed(false, answer), false},
		"a state says who is answered": {bypassed(true), false},
	} {
		err := (&Host{}).guard(test.p, []SSHClient{peer})
		var lock *LockOutError
		if errors.As(err, &lock) != test.locked {
			t.Errorf("%s: %v", name, err)
		}
		if test.locked && (err == nil || !strings.Contains(err.Error(), "refused by the default of output (drop), which evaluates its replies")) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestGuardOfOuterFlows asks for each way in which the flow of a tunnel begins.
func TestGuardOfOuterFlows(t *testing.T) {
	number := func(f program.Field, n uint64) program.Condition {
		return program.Condition{Field: f, Numbers: []program.NumberRange{{From: n, To: n}}}
	}
	from := func(a, b string) program.Condition {
		return program.Condition{Field: program.Source, Addresses: []addrset.Range{{From: netip.MustParseAddr(a), To: netip.MustParseAddr(b)}}}
	}
	accept := func(match ...program.Condition) []program.Rule {
		return []program.Rule{{Match: match, Actions: []program.Action{program.Accept}}}
	}
	policy := func(in, out []program.Rule) *program.Program {
		return &program.Program{
			Hooks: []program.Hook{
				{Kind: program.Input, Phase: program.Filter, Default: program.Drop, Chain: "input"},
				{Kind: program.Output, Phase: program.Filter, Default: program.Drop, Chain: "output"},
			},
			Chains: []program.Chain{{Name: "input", Rules: in}, {Name: "output", Rules: out}},
		}
	}
	udp := accept(number(program.Protocol, 17), number(program.Port, 51820))
	udpOut := accept(number(program.Protocol, 17), number(program.SourcePort, 51820))
	tcpOut := accept(number(program.Protocol, 6), number(program.Port, 443))
	for _, family := range []struct{ name, remote, local, low, high string }{
		{"IPv4", "203.0.113.9", "198.51.100.1", "203.0.113.0", "203.0.113.255"},
		{"IPv6", "2001:db8:7::9", "2001:db8::1", "2001:db8:7::", "2001:db8:7::ffff"},
	} {
		remote, local := netip.MustParseAddr(family.remote), netip.MustParseAddr(family.local)
		udpFrom := accept(number(program.Protocol, 17), number(program.Port, 51820), from(family.low, family.high))
		flow := host.OuterFlow{
			Peer: netip.MustParseAddr("10.8.0.2"), Tunnel: "wg0", Protocol: 17, Interface: "eth0", Begins: host.FromOutside,
			Remote: netip.AddrPortFrom(remote, 40000), Local: netip.AddrPortFrom(local, 51820),
		}
		with := func(change func(*host.OuterFlow)) host.OuterFlow {
			out := flow
			change(&out)
			return out
		}
		either := with(func(o *host.OuterFlow) { o.Begins = host.FromEither })
		here := with(func(o *host.OuterFlow) {
			o.Protocol, o.Begins = 6, host.FromHere
			o.Remote, o.Local = netip.AddrPortFrom(remote, 443), netip.AddrPortFrom(local, 50000)
		})
		anybody := with(func(o *host.OuterFlow) { o.Remote = netip.AddrPort{} })
		unknown := host.OuterFlow{Peer: flow.Peer, Tunnel: "tun0", Unknown: "no process that can be seen holds it"}
		esp := with(func(o *host.OuterFlow) {
			o.Protocol, o.Remote, o.Local = 50, netip.AddrPortFrom(remote, 0), netip.AddrPortFrom(local, 0)
		})
		const locks, doubts = "this policy locks out 10.8.0.2, who is logged in through wg0", "cannot determine whether this policy locks out 10.8.0.2, who is logged in through "
		for _, test := range []struct {
			name    string
			in, out []program.Rule
			flow    host.OuterFlow
			want    string
		}{
			{"let in", udp, nil, flow, ""},
			{"let out alone", nil, udpOut, flow, locks},
			{"kept alive and let in", udp, nil, either, ""},
			{"kept alive and let out", nil, udpOut, either, ""},
			{"kept alive and refused", nil, nil, either, locks},
			{"called by the host", nil, tcpOut, here, ""},
			{"called by the host and refused", udp, udpOut, here, locks},
			{"ESP refused", udp, nil, esp, locks},
			{"ESP let in", accept(number(program.Protocol, 50)), nil, esp, ""},
			{"from anybody", udp, nil, anybody, ""},
			{"from anybody, and some let in", udpFrom, nil, anybody, doubts + "wg0"},
			{"from anybody, and nobody let in", nil, nil, anybody, locks},
			{"from one who is let in", udpFrom, nil, flow, ""},
			{"unknown", udp, udpOut, unknown, doubts + "tun0: no process that can be seen holds it"},
		} {
			peer := SSHClient{Remote: test.flow.Remote, Local: test.flow.Local, Interface: test.flow.Interface, Outer: test.flow}
			err := (&Host{}).guard(policy(test.in, test.out), []SSHClient{peer})
			if (err != nil) != (test.want != "") || err != nil && !strings.Contains(err.Error(), test.want) {
				t.Errorf("%s, %s: %v", family.name, test.name, err)
			}
		}
	}
}

// TestGuardFollowsPolicyRouting has the answers to an administrator leave by another
// interface than the default route's, by a rule about their source: the guard asks by
// that one, in both families.
func TestGuardFollowsPolicyRouting(t *testing.T) {
	testnet.Require(t, testnet.Namespaces)
	ns := testnet.New(t).Unnamed("host")
	set := func(lines string) {
		for line := range strings.Lines(lines) {
			ns.MustRun("ip", strings.Fields(line)...)
		}
	}
	set(`link add wan1 type veth peer name far1
link add wan2 type veth peer name far2
link set wan1 up
link set wan2 up
link set far1 up
link set far2 up
address add 192.0.2.1/28 dev wan1
address add 192.0.2.17/28 dev wan2
`)
	ns.Address("wan1", "2001:db8:1::1/64")
	ns.Address("wan2", "2001:db8:2::1/64")
	set(`route add default via 192.0.2.2
-6 route add default via 2001:db8:1::2
route add default via 192.0.2.18 table 100
-6 route add default via 2001:db8:2::2 table 100
rule add from 192.0.2.17 lookup 100
-6 rule add from 2001:db8:2::1 lookup 100
`)
	by := func(device string) *program.Program {
		return &program.Program{
			Hooks: []program.Hook{{Kind: program.Input, Phase: program.Filter, Default: program.Drop, Chain: "input"}},
			Chains: []program.Chain{{Name: "input", Rules: []program.Rule{{
				Match:   []program.Condition{{Field: program.InInterface, Names: []string{device}}},
				Actions: []program.Action{program.Accept},
			}}}},
		}
	}
	for local, device := range map[string]string{
		"192.0.2.1:22": "wan1", "192.0.2.17:22": "wan2", "[2001:db8:1::1]:22": "wan1", "[2001:db8:2::1]:22": "wan2",
	} {
		remote := "203.0.113.9:50000"
		if strings.HasPrefix(local, "[") {
			remote = "[2001:db8:7::9]:50000"
		}
		var peers []SSHClient
		if err := ns.Do(func() error {
			peers = SSHClients(host.Facts{SSHClients: []host.SSHClient{{Remote: netip.MustParseAddrPort(remote), Local: netip.MustParseAddrPort(local)}}})
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		if len(peers) != 1 || peers[0].Interface != device {
			t.Errorf("%s comes to %s by %+v, want %s", remote, local, peers, device)
		}
		for _, open := range []string{"wan1", "wan2"} {
			var lock *LockOutError
			if err := (&Host{}).guard(by(open), peers); errors.As(err, &lock) == (open == device) {
				t.Errorf("%s logged in at %s, and %s open: %v", remote, local, open, err)
			}
		}
	}
}
