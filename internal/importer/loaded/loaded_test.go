package loaded_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"sluice/internal/importer"
	"sluice/internal/importer/loaded"
	"sluice/internal/lab/testnet"
	"sluice/internal/program"
	"sluice/internal/system/kernel/nft"
	"sluice/internal/system/kernel/xtables"
)

// TestRead: what iptables, legacy and over nftables, and ipset have loaded in a namespace
// is read whole, and as it was before. Of a tool that has loaded nothing there is nothing.
func TestRead(t *testing.T) {
	testnet.Require(t, testnet.Namespaces, testnet.Program("iptables-legacy"), testnet.Program("iptables-nft"), testnet.Program("ipset"), testnet.IPTablesLegacy("filter"))
	net := testnet.New(t)
	host, empty := net.Unnamed("host"), net.Unnamed("empty")
	for _, args := range []string{
		"ipset create office hash:net",
		"ipset add office 203.0.113.0/24",
		"ipset add office 203.0.113.7/32 nomatch",
		"iptables-legacy -A INPUT -m set --match-set office src -j ACCEPT",
		"iptables-legacy -P INPUT DROP",
		"ip6tables-legacy -A INPUT -j DROP",
		"iptables-nft -A OUTPUT -m set --match-set office dst -m owner --gid-owner 33 -j DROP",
		"ip6tables-nft -t nat -A POSTROUTING -j MASQUERADE",
	} {
		words := strings.Fields(args)
		host.MustRun(words[0], words[1:]...)
	}
	host.Nft(`table inet sluice { chain c { type filter hook input priority 0; }; }
		table inet fw { chain c { type filter hook input priority 7; policy drop; iifname "lo" counter accept; }; }
		table ip asleep { flags dormant; chain c { type filter hook input priority 0; drop; }; }
		table netdev edge { chain c { type filter hook ingress device "lo" priority 3; ip saddr 192.0.2.1 drop; }; }`)
	state := func() (text string) {
		generation, err := nft.Generation()
		if err != nil {
			t.Error(err)
		}
		sum, err := xtables.Sum()
		if err != nil {
			t.Error(err)
		}
		return fmt.Sprint(generation, sum)
	}
	read := func(n *testnet.Namespace) (rulesets []*importer.Ruleset) {
		t.Helper()
		if err := n.Do(func() error {
			before := state()
			var errs []error
			rulesets, errs = loaded.Read(t.Context(), "sluice")
			for _, err := range errs {
				t.Error(err)
			}
			if after := state(); after != before {
				t.Errorf("reading has changed what is loaded: %s, %s before", after, before)
			}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		return rulesets
	}
	got, seen := "", false
	for _, r := range read(host) {
		got += fmt.Sprintf("%s %s, %d rules, %d unlifted\n%s", r.Tool, r.Family, len(r.Rules), len(r.Unlifted), r.Program.Text())
		if err := r.Program.Check(); err != nil {
			t.Error(err)
		}
	}
	want := `iptables-legacy ip, 1 rules, 0 unlifted
set ipset office: living of source, 2 elements
  203.0.113.0-203.0.113.6
  203.0.113.8-203.0.113.255

chain filter/INPUT at input filter, default drop
  source @ipset office -> count filter/INPUT:1, accept   # filter/INPUT:1

chain filter/FORWARD at forward filter, default accept

chain filter/OUTPUT at output filter, default accept
iptables-legacy ip6, 1 rules, 0 unlifted

chain filter/INPUT at input filter, default accept
  always -> count filter/INPUT:1, drop   # filter/INPUT:1

chain filter/FORWARD at forward filter, default accept

chain filter/OUTPUT at output filter, default accept
iptables-nft ip, 1 rules, 1 unlifted
set ipset office: living of destination, 2 elements
  203.0.113.0-203.0.113.6
  203.0.113.8-203.0.113.255

chain filter/INPUT at input filter, default accept

chain filter/FORWARD at forward filter, default accept

chain filter/OUTPUT at output filter, default accept
` + "  destination @ipset office, opaque `-m owner --gid-owner 33` -> count filter/OUTPUT:1, drop   # filter/OUTPUT:1\n" + `iptables-nft ip6, 1 rules, 0 unlifted

chain nat/PREROUTING at prerouting nat, default accept

chain nat/INPUT at input nat, default accept

chain nat/OUTPUT at output nat, default accept

chain nat/POSTROUTING at postrouting nat, default accept
  always -> count nat/POSTROUTING:1, masquerade   # nat/POSTROUTING:1
nft inet, 1 rules, 0 unlifted

chain c at input behind, default drop
  in-interface lo -> count c:1, accept   # c:1
nft ip, 1 rules, 1 unlifted
nft netdev, 1 rules, 0 unlifted

chain c at ingress early, default accept on lo
  family 4, source 192.0.2.1 -> drop   # c:1
`
	if got != want {
		t.Errorf("read\n%s\nwant\n%s", got, want)
	}
	// What iptables over nftables does not understand is nft's to list.
	host.Nft("add rule ip filter OUTPUT numgen random mod 2 0 drop")
	for _, r := range read(host) {
		if r.Tool == "iptables-nft" && r.Family == "ip" && len(r.Rules) > 0 {
			t.Errorf("iptables-nft-save has %d rules of a table that it does not understand", len(r.Rules))
		}
		if r.Tool != "nft" || r.Table != "filter" {
			continue
		}
		if rule := r.Rules["OUTPUT:2"]; rule == nil || rule.Text != "numgen random mod 2 0 drop" || rule.Whole {
			t.Errorf("it is read as %+v", rule)
		}
		seen = true
	}
	if !seen {
		t.Error("nft lists no table that iptables does not understand")
	}
	for _, r := range read(empty) {
		t.Errorf("%s %s where nothing is loaded", r.Tool, r.Family)
	}
}

// TestTablesOfItsNames: base chains that a file of nftables has put into a table with a name
// of iptables' are read, beside those of iptables, and each once; and a table with a name
// that nft takes for a word of its own.
func TestTablesOfItsNames(t *testing.T) {
	testnet.Require(t, testnet.Namespaces, testnet.Program("iptables-nft"))
	host := testnet.New(t).Unnamed("host")
	host.MustRun("iptables-nft", "-A", "INPUT", "-p", "tcp", "--dport", "23", "-j", "DROP")
	host.Nft(`table ip filter { chain input { type filter hook input priority 0; policy drop; tcp dport 22 accept; }; }
		table ip nat { chain prerouting { type nat hook prerouting priority -100; tcp dport 8081 dnat to 198.51.100.2:80; }; }
		table ip6 filter { chain INPUT { type filter hook input priority 10; policy drop; }; }
		table inet sets { chain c { type filter hook input priority 20; tcp dport 23 counter drop; }; }`)
	if err := host.Do(func() error {
		rulesets, errs := loaded.Read(t.Context())
		for _, err := range errs {
			t.Error(err)
		}
		var got []string
		for _, r := range rulesets {
			if text := "tcp dport 23 counter packets 0 bytes 0 drop"; r.Table == "sets" && r.Rules["c:1"].Text != text {
				t.Errorf("%q, want %q", r.Rules["c:1"].Text, text)
			}
			for i, h := range r.Program.Hooks {
				if c := r.Program.Chain(h.Chain); len(c.Rules) > 0 || h.Default == program.Drop {
					got = append(got, fmt.Sprintf("%s %s %s of %s at %d: %d rules", r.Tool, r.Family, r.Bases[i].Chain, r.Bases[i].Table, r.Bases[i].Priority, len(c.Rules)))
				}
			}
		}
		want := []string{
			"iptables-nft ip INPUT of filter at 0: 1 rules", "nft ip input of filter at 0: 1 rules",
			"nft ip prerouting of nat at -100: 1 rules", "nft ip6 INPUT of filter at 10: 0 rules", "nft inet c of sets at 20: 1 rules",
		}
		if !slices.Equal(got, want) {
			t.Errorf("read %q, want %q", got, want)
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
}
