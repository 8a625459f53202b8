package engine_test

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"sluice/internal/engine"
	"sluice/internal/lab/testnet"
)

// Each packet that a rule drops for real is shown with that rule, whichever tool made it; of
// legacy iptables it is deduced.
func TestDropsTraced(t *testing.T) {
	testnet.Require(t, testnet.Nftables, seesDrops, testnet.Program("iptables-nft"), testnet.Program("iptables-legacy"), testnet.IPTablesLegacy("filter"))
	t.Parallel()
	net := testnet.New(t)
	client, host := net.Unnamed("client"), net.Unnamed("host")
	net.Join(
		testnet.End{In: client, Device: "eth0", Addresses: []string{"192.0.2.2/24", "2001:db8::2/64"}},
		testnet.End{In: host, Device: "wan0", Addresses: []string{"192.0.2.1/24", "2001:db8::1/64"}},
	)
	host.Nft(`table inet sluice { chain input { type filter hook input priority 0; policy accept
		udp dport 1001 drop comment "policy.yaml:7 drop udp/1001"
		udp dport 1002 drop
	}
	}
	table inet other { chain in { type filter hook input priority 10; policy accept
		udp dport 1003 drop comment "a ` + "\x1b[2J" + `"
	}
	}`)
	for _, words := range []string{
		"iptables-nft -A INPUT -p udp --dport 1004 -m string --algo bm --string there -j DROP",
		"ip6tables-nft -A INPUT -p udp --dport 1005 -j DROP",
		"ip6tables-nft -I INPUT -p udp --dport 4005 -j DROP",
		"iptables-legacy -N GUARD",
		"iptables-legacy -A INPUT -m conntrack --ctstate ESTABLISHED -j ACCEPT",
		"iptables-legacy -A INPUT -p udp --dport 1006 -j GUARD",
		"iptables-legacy -A GUARD -s 192.0.2.0/24 -j REJECT",
		"ip6tables-legacy -A INPUT -p udp --dport 1007 -j DROP",
	} {
		w := strings.Fields(words)
		host.MustRun(w[0], w[1:]...)
	}
	v4, v6 := netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("2001:db8::1")
	cases := map[uint16]struct {
		to   netip.Addr
		want string
	}{
		1001: {v4, "policy.yaml:7 drop udp/1001"},
		1002: {v4, "sluice chain input of table inet sluice, handle: udp dport 1002 drop"},
		1003: {v6, "nft chain in of table inet other, handle: udp dport 1003 drop"},
		1004: {v4, `iptables-nft chain INPUT of table ip filter, handle: -A INPUT -p udp -m udp --dport 1004 -m string --string "there" --algo bm -j DROP`},
		1005: {v6, "ip6tables-nft chain INPUT of table ip6 filter, handle: -A INPUT -p udp -m udp --dport 1005 -j DROP"},
		1006: {v4, "deduced iptables-legacy chain GUARD of table filter, rule 1: -A GUARD -s 192.0.2.0/24 -j REJECT --reject-with icmp-port-unreachable"},
		1007: {v6, "deduced ip6tables-legacy chain INPUT of table filter, rule 1: -A INPUT -p udp -m udp --dport 1007 -j DROP"},
	}
	said := func(d engine.Dropped) string {
		switch {
		case d.By == nil && d.File == "":
			return ""
		case d.By == nil:
			return fmt.Sprintf("%s:%d %s", d.File, d.Line, d.Logged.Rule)
		}
		text := d.By.Tool + " " + withoutHandle(d.By.Place()) + ": " + d.By.Rule
		if d.By.Deduced {
			text = "deduced " + text
		}
		return text
	}
	rules := map[uint16]engine.Dropped{}
	_, counts := watching(t, host, engine.DropChoice{Trace: true}, func() error {
		for port, c := range cases {
			if _, seen := rules[port]; !seen {
				client.TryUDP(testnet.UDPTry{To: netip.AddrPortFrom(c.to, port), Patience: 1})
			}
		}
		return nil
	}, func(d engine.Dropped) bool {
		// One that was dropped while many others are looked at may be shown without its rule.
		if said(d) != "" {
			rules[d.Port] = d
		}
		return len(rules) == len(cases)
	})
	for port, c := range cases {
		d := rules[port]
		if got := said(d); got != c.want || d.Hook != "input" {
			t.Errorf("port %d: %s in %s, want %s", port, got, d.Hook, c.want)
		}
		if by := d.By; by != nil && !slices.ContainsFunc(counts.Rules, func(r engine.DropRuleCount) bool { return r.DropRule == *by && r.Packets > 0 }) {
			t.Errorf("%+v is not counted: %+v", *by, counts.Rules)
		}
	}
	if counts.Traced == nil || counts.Traced.Followed == 0 {
		t.Errorf("traced: %+v", counts.Traced)
	}
	if left := host.MustRun("nft", "list", "tables"); strings.Contains(left, "sluice_trace") {
		t.Fatalf("the table is left: %s", left)
	}
}

func withoutHandle(place string) string {
	text, number, is := strings.Cut(place, "handle ")
	if !is {
		return place
	}
	return text + "handle" + strings.TrimLeft(number, "0123456789")
}
