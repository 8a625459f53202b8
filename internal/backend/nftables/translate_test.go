package nftables

import (
	"net/netip"
	"testing"

	"sluice/internal/lab/testnet"
	"sluice/internal/program"
)

// translation is a client, a router that runs a program, and a server behind
// it; servers tell how they saw the client.
type translation struct {
	kernel
	client *testnet.Namespace
}

func newTranslation(t *testing.T, hooks []program.Hook, chains ...program.Chain) *translation {
	t.Helper()
	requireNftables(t)
	n := testnet.New(t)
	client, router, server := n.Unnamed("client"), n.Unnamed("router"), n.Unnamed("server")
	n.Join(testnet.End{In: client, Device: "c0", Addresses: []string{"192.0.2.2/24", "2001:db8:c::2/64"}},
		testnet.End{In: router, Device: "wan0", Addresses: []string{"192.0.2.1/24", "2001:db8:c::1/64"}})
	n.Join(testnet.End{In: server, Device: "s0", Addresses: []string{"10.20.1.5/24", "2001:db8:2::5/64"}},
		testnet.End{In: router, Device: "lan0", Addresses: []string{"10.20.1.1/24", "2001:db8:2::1/64"}})
	for _, gateway := range []string{"192.0.2.1", "2001:db8:c::1"} {
		client.Route(defaultRoute(gateway), gateway)
	}
	for _, gateway := range []string{"10.20.1.1", "2001:db8:2::1"} {
		server.Route(defaultRoute(gateway), gateway)
	}
	router.Forward()
	server.ServeTCP("10.20.1.5:8080", "[2001:db8:2::5]:8080")
	server.ServeUDP("10.20.1.5:8080", "[2001:db8:2::5]:8080")
	tr := &translation{kernel: kernel{router}, client: client}
	tr.load(t, New(), mustLower(t, &program.Program{Owner: "sluice", Hooks: hooks, Chains: chains}))
	return tr
}

func defaultRoute(gateway string) string {
	if netip.MustParseAddr(gateway).Is4() {
		return "0.0.0.0/0"
	}
	return "::/0"
}

// answers tries TCP and UDP to an address and wants an answer of a server that
// saw the client as seen.
func (tr *translation) answers(t *testing.T, to, seen string) {
	t.Helper()
	address := netip.MustParseAddrPort(to)
	tcp := tr.client.TryTCP(testnet.TCPTry{To: address, Message: "x"})
	udp := tr.client.TryUDP(testnet.UDPTry{To: address})
	for protocol, r := range map[string]testnet.Result{"tcp": tcp, "udp": udp} {
		if r.Outcome != testnet.Answered || r.Peer.Addr().String() != seen {
			t.Errorf("%s to %s: %s, the server saw %s; want %s", protocol, to, r, r.Peer, seen)
		}
	}
}

func prefix(text string) netip.Prefix { return netip.MustParsePrefix(text) }

// TestStatelessMap: prefixes are rewritten both ways without tracking, with
// checksums that hold.
func TestStatelessMap(t *testing.T) {
	untracked := program.Rule{Actions: actions{program.NoTrack{}}}
	tr := newTranslation(t,
		[]program.Hook{
			{Kind: program.Prerouting, Phase: program.Raw, Default: program.Accept, Chain: "prerouting_raw"},
			{Kind: program.Postrouting, Phase: program.Filter, Default: program.Accept, Chain: "postrouting_map"},
			{Kind: program.Forward, Phase: program.Filter, Default: program.Accept, Chain: "forward"},
		},
		program.Chain{Name: "prerouting_raw", Rules: []program.Rule{
			untracked,
			{Match: conditions{addressesOf(program.Destination, "198.51.100.0/28")}, Actions: actions{program.MapDestination{From: prefix("198.51.100.0/28"), To: prefix("10.20.1.0/28")}}},
			{Match: conditions{addressesOf(program.Destination, "2001:db8:1::/64")}, Actions: actions{program.MapDestination{From: prefix("2001:db8:1::/64"), To: prefix("2001:db8:2::/64")}}},
		}},
		program.Chain{Name: "postrouting_map", Rules: []program.Rule{
			{Match: conditions{addressesOf(program.Source, "10.20.1.0/28")}, Actions: actions{program.MapSource{From: prefix("10.20.1.0/28"), To: prefix("198.51.100.0/28")}}},
			{Match: conditions{addressesOf(program.Source, "2001:db8:2::/64")}, Actions: actions{program.MapSource{From: prefix("2001:db8:2::/64"), To: prefix("2001:db8:1::/64")}}},
		}},
		program.Chain{Name: "forward", Rules: []program.Rule{{Match: conditions{not(namesOf(program.State, "untracked"))}, Actions: actions{program.Drop}}}},
	)
	tr.answers(t, "198.51.100.5:8080", "192.0.2.2")
	tr.answers(t, "[2001:db8:1::5]:8080", "2001:db8:c::2")
}

// TestTranslation: every kind of translation with state.
func TestTranslation(t *testing.T) {
	nat := []program.Hook{
		{Kind: program.Prerouting, Phase: program.NAT, Default: program.Accept, Chain: "prerouting_nat"},
		{Kind: program.Postrouting, Phase: program.NAT, Default: program.Accept, Chain: "postrouting_nat"},
	}
	ports := conditions{protocolIs(6, 17), numbersOf(program.Port, exactly(80))}
	to := func(text string) netip.Addr { return netip.MustParseAddr(text) }
	out := namesOf(program.OutInterface, "lan*")
	for _, c := range []struct {
		name       string
		pre, post  []program.Rule
		ask4, ask6 string
		saw4, saw6 string
	}{
		{
			name: "dnat and masquerade",
			pre: []program.Rule{
				{Match: append(conditions{addressesOf(program.Destination, "192.0.2.1")}, ports...), Actions: actions{program.DNAT{To: to("10.20.1.5"), Port: 8080}}},
				{Match: append(conditions{addressesOf(program.Destination, "2001:db8:c::1")}, ports...), Actions: actions{program.DNAT{To: to("2001:db8:2::5"), Port: 8080}}},
			},
			post: []program.Rule{{Match: conditions{out}, Actions: actions{program.Masquerade{}}}},
			ask4: "192.0.2.1:80", ask6: "[2001:db8:c::1]:80", saw4: "10.20.1.1", saw6: "2001:db8:2::1",
		},
		{
			name: "dnat of a set, snat to an address",
			pre:  []program.Rule{{Match: conditions{addressesOf(program.Destination, "198.51.100.9", "198.51.100.11", "2001:db8:9::9")}, Actions: actions{program.DNAT{To: to("10.20.1.5")}}}, {Match: conditions{addressesOf(program.Destination, "2001:db8:9::9")}, Actions: actions{program.DNAT{To: to("2001:db8:2::5")}}}},
			post: []program.Rule{{Match: conditions{out}, Actions: actions{program.SNAT{To: to("203.0.113.77")}}}, {Match: conditions{out, v6}, Actions: actions{program.SNAT{To: to("2001:db8:2::1")}}}},
			ask4: "198.51.100.9:8080", ask6: "[2001:db8:9::9]:8080", saw4: "203.0.113.77", saw6: "2001:db8:2::1",
		},
		{
			name: "prefixes",
			pre:  []program.Rule{{Actions: actions{program.DNATPrefix{From: prefix("198.51.100.0/28"), To: prefix("10.20.1.0/28")}}}, {Actions: actions{program.DNATPrefix{From: prefix("2001:db8:1::/64"), To: prefix("2001:db8:2::/64")}}}},
			post: []program.Rule{{Actions: actions{program.SNATPrefix{From: prefix("192.0.2.0/28"), To: prefix("203.0.113.16/28")}}}, {Actions: actions{program.SNATPrefix{From: prefix("2001:db8:c::/64"), To: prefix("2001:db8:d::/64")}}}},
			ask4: "198.51.100.5:8080", ask6: "[2001:db8:1::5]:8080", saw4: "203.0.113.18", saw6: "2001:db8:d::2",
		},
		{
			name: "one address as a prefix",
			pre:  []program.Rule{{Actions: actions{program.DNATPrefix{From: prefix("198.51.100.5/32"), To: prefix("10.20.1.5/32")}}}, {Actions: actions{program.DNATPrefix{From: prefix("2001:db8:1::5/128"), To: prefix("2001:db8:2::5/128")}}}},
			ask4: "198.51.100.5:8080", ask6: "[2001:db8:1::5]:8080", saw4: "192.0.2.2", saw6: "2001:db8:c::2",
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			tr := newTranslation(t, nat, program.Chain{Name: "prerouting_nat", Rules: c.pre}, program.Chain{Name: "postrouting_nat", Rules: c.post})
			tr.answers(t, c.ask4, c.saw4)
			tr.answers(t, c.ask6, c.saw6)
		})
	}
}

// TestRedirect: a redirect to the host's own port.
func TestRedirect(t *testing.T) {
	tr := newTranslation(t,
		[]program.Hook{{Kind: program.Prerouting, Phase: program.NAT, Default: program.Accept, Chain: "prerouting_nat"}},
		program.Chain{Name: "prerouting_nat", Rules: []program.Rule{{
			Match:   conditions{namesOf(program.DestinationType, "local"), protocolIs(6, 17), numbersOf(program.Port, exactly(80))},
			Actions: actions{program.Redirect{Port: 8088}},
		}}},
	)
	tr.ServeTCP("0.0.0.0:8088", "[::]:8088")
	tr.ServeUDP("192.0.2.1:8088", "[2001:db8:c::1]:8088")
	tr.answers(t, "192.0.2.1:80", "192.0.2.2")
	tr.answers(t, "[2001:db8:c::1]:80", "2001:db8:c::2")
}
