package engine

import (
	"net/netip"
	"testing"

	"sluice/internal/backend/trace"
	"sluice/internal/importer"
	"sluice/internal/importer/xtables"
)

func rulesets(t *testing.T, tool string, family int, text string) []*importer.Ruleset {
	t.Helper()
	r, err := xtables.Parse(text, tool, family, nil)
	if err != nil {
		t.Fatal(err)
	}
	return []*importer.Ruleset{r}
}

const legacyText = `*raw
:PREROUTING ACCEPT [0:0]
-A PREROUTING -s 203.0.113.0/24 -j DROP
COMMIT
*filter
:INPUT ACCEPT [0:0]
:FORWARD DROP [0:0]
:GUARD - [0:0]
-A INPUT -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT
-A INPUT -p tcp -m tcp --dport 22 -j ACCEPT
-A INPUT -p tcp -m tcp --dport 25 -m comment --comment "a \"quoted\" one" -j GUARD
-A INPUT -p udp -m udp --dport 53 -m conntrack --ctstate INVALID -j DROP
-A INPUT -p udp -m udp --dport 53 -j REJECT --reject-with icmp-port-unreachable
-A INPUT -p udp -m udp --dport 67 -m string --string "x" --algo bm --to 65535 -j DROP
-A GUARD -i eth0 -j DROP
COMMIT
`

// What legacy iptables drops is found by its rules, for the hook where it was dropped.
func TestDeduced(t *testing.T) {
	all := rulesets(t, "iptables-legacy", 4, legacyText)
	for _, c := range []struct {
		hook, in, from, protocol string
		port                     uint16
		want                     string
	}{
		{"prerouting", "eth0", "203.0.113.9", "tcp", 22, "chain PREROUTING of table raw, rule 1: -A PREROUTING -s 203.0.113.0/24 -j DROP"},
		{"input", "eth0", "203.0.113.9", "tcp", 22, "none"},
		{"input", "eth0", "192.0.2.9", "tcp", 25, "chain GUARD of table filter, rule 1: -A GUARD -i eth0 -j DROP"},
		{"input", "eth1", "192.0.2.9", "tcp", 25, "none"},
		{"input", "#7", "192.0.2.9", "tcp", 25, "chain GUARD of table filter, rule 1: -A GUARD -i eth0 -j DROP, unsure"},
		{"input", "eth0", "192.0.2.9", "udp", 53, "chain INPUT of table filter, rule 5: -A INPUT -p udp -m udp --dport 53 -j REJECT --reject-with icmp-port-unreachable, unsure"},
		{"input", "eth0", "192.0.2.9", "udp", 67, "chain INPUT of table filter, rule 6: -A INPUT -p udp -m udp --dport 67 -m string --string \"x\" --algo bm --to 65535 -j DROP, unsure"},
		{"forward", "eth0", "192.0.2.9", "proto/47", 0, "chain FORWARD of table filter: -P FORWARD DROP"},
		{"output", "", "192.0.2.9", "tcp", 25, "none"},
		{"", "eth0", "192.0.2.9", "tcp", 25, "none"},
		{"input", "eth0", "192.0.2.9", "what", 25, "none"},
	} {
		d := &Dropped{Logged: Logged{
			Hook: c.hook, In: c.in, Source: netip.MustParseAddr(c.from), Destination: netip.MustParseAddr("192.0.2.1"),
			Protocol: c.protocol, SourcePort: 40000, Port: c.port, Flags: "syn",
		}}
		got := "none"
		if r := deduced(d, all); r != nil {
			got = r.Place() + ": " + r.Rule
			if r.Unsure {
				got += ", unsure"
			}
			if !r.Deduced || r.Tool != "iptables-legacy" {
				t.Errorf("%+v", r)
			}
		}
		if got != c.want {
			t.Errorf("%+v:\n%s\nwant\n%s", c, got, c.want)
		}
		if other := rulesets(t, "iptables-nft", 4, legacyText); deduced(d, other) != nil {
			t.Errorf("%+v: rules of nf_tables tell themselves", c)
		}
		if other := rulesets(t, "iptables-legacy", 6, "*filter\n:INPUT DROP [0:0]\nCOMMIT\n"); deduced(d, other) != nil {
			t.Errorf("%+v: rules of IPv6 see no such packet", c)
		}
	}
}

// A rule of iptables over nf_tables is told in the words of iptables.
func TestToldByIPTables(t *testing.T) {
	all := rulesets(t, "iptables-nft", 6, "*filter\n:INPUT DROP [0:0]\n-A INPUT -j ACCEPT\n-A INPUT -m string --string \"x\" --algo bm -j DROP\nCOMMIT\n")
	s := trace.Step{Family: "ip6", Table: "filter", Chain: "INPUT", Handle: 7, Number: 2, Rule: "xt match string drop"}
	printed := printedRules(all)
	for want, s := range map[string]trace.Step{
		"ip6tables-nft chain INPUT of table ip6 filter, handle 7: -A INPUT -m string --string \"x\" --algo bm -j DROP": s,
		"ip6tables-nft chain INPUT of table ip6 filter: -P INPUT DROP":                                                 {Family: "ip6", Table: "filter", Chain: "INPUT", Rule: "policy"},
		"nft chain INPUT of table ip filter, handle 7: drop":                                                           {Family: "ip", Table: "filter", Chain: "INPUT", Handle: 7, Number: 2, Rule: "drop"},
		"nft chain c of table ip6 filter: policy":                                                                      {Family: "ip6", Table: "filter", Chain: "c", Rule: "policy"},
	} {
		s.Foreign = true
		r := told(&s, printed)
		if got := r.Tool + " " + r.Place() + ": " + r.Rule; got != want || r.Deduced {
			t.Errorf("%s, want %s", got, want)
		}
	}
}
