package doctor_test

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// chainIllnesses are those of the order of rules and chains.
func chainIllnesses() (all []illness) {
	for _, family := range []int{4, 6} {
		for _, tool := range append([]string{"nft"}, tools...) {
			all = append(all, illness{
				"ipv6-open",
				func(b *broken) {
					b.reachable()
					b.chainOf(tool, 4, "input", "drop", "-p tcp -m tcp --dport 22 -j ACCEPT", "tcp dport 22 accept;")
				},
				func(b *broken) { // both closed, or neither
					b.reachable()
					b.chainOf(tool, family, "input", map[int]string{4: "accept", 6: "drop"}[family], "-p tcp -m tcp --dport 22 -j ACCEPT", "tcp dport 22 accept;")
				},
			}, illness{
				"hidden-rule",
				func(b *broken) {
					b.chainOf(tool, family, "input", "drop", "-s LAN -j ACCEPT; -p tcp -m tcp --dport 22 -j ACCEPT; -s BOX -p tcp -m tcp --dport 25 -j DROP", "ADDRESS saddr LAN accept; tcp dport 22 accept; ADDRESS saddr BOX tcp dport 25 drop;")
				},
				func(b *broken) { // the narrow one above the wide one; and those above let packets go on
					b.chainOf(tool, family, "input", "drop", "-s BOX -p tcp -m tcp --dport 25 -j DROP; -p tcp -m limit --limit 5/sec -j ACCEPT; -p tcp -j LOG; -p tcp -m tcp --dport 22 -j ACCEPT; -s LAN -j ACCEPT",
						"ADDRESS saddr BOX tcp dport 25 drop; meta l4proto tcp limit rate 5/second accept; meta l4proto tcp log; tcp dport 22 accept; ADDRESS saddr LAN accept;")
				},
			}, illness{
				"hidden-rule", // by what a rule in between writes it is not
				func(b *broken) {
					b.chainOf(tool, family, "input", "accept", "-m mark --mark 0x1 -j DROP; -p tcp -j LOG; -p tcp -m mark --mark 0x1 -j ACCEPT", "meta mark 1 drop; meta l4proto tcp log; meta l4proto tcp meta mark 1 accept;")
				},
				func(b *broken) {
					if tool == "nft" {
						b.host.Nft(nftOf(family, "table FAMILY m { chain c { type filter hook input priority 0; meta mark 1 drop; meta l4proto tcp meta mark set 1; meta l4proto tcp meta mark 1 accept; }; }"))
						return
					}
					b.tables(tool, family, "*mangle\n:INPUT ACCEPT [0:0]\n-A INPUT -m mark --mark 0x1 -j DROP\n-A INPUT -p tcp -j MARK --set-xmark 0x1/0xffffffff\n-A INPUT -p tcp -m mark --mark 0x1 -j ACCEPT\nCOMMIT\n")
				},
			}, illness{
				"judged-again",
				func(b *broken) {
					b.reachable()
					b.chainOf(tool, family, "input", "drop", "-p tcp -m tcp --dport 8080 -j ACCEPT", "tcp dport 8080 accept;")
					b.host.Nft("table inet other { chain c { type filter hook input priority 10; policy drop; ct state established,related accept; tcp dport 22 accept; }; }")
				},
				func(b *broken) {
					b.reachable()
					b.chainOf(tool, family, "input", "drop", "-p tcp -m tcp --dport 8080 -j ACCEPT", "tcp dport 8080 accept;")
					b.host.Nft("table inet other { chain c { type filter hook input priority 10; policy drop; ct state established,related accept; tcp dport { 22, 8080 } accept; }; }")
				},
			}, illness{
				"judged-again", // a list of countries before, which is about no port
				func(b *broken) {
					b.reachable()
					b.chainOf(tool, family, "input", "drop", "-p tcp -m tcp --dport 22 -j ACCEPT", "tcp dport 22 accept;")
					b.host.Nft("table inet other { chain c { type filter hook input priority -5; tcp dport 8080 accept; }; }")
				},
				func(b *broken) {
					b.reachable()
					b.chainOf(tool, family, "input", "drop", "-p tcp -m tcp --dport 22 -j ACCEPT", "tcp dport 22 accept;")
					b.host.Nft("table inet other { chain c { type filter hook input priority -5; policy drop; ip saddr 1.0.0.0/8 accept; ip6 saddr 2600::/8 accept; }; }")
				},
			}, illness{
				"tracking-unneeded", // in a chain that nothing leads to
				func(b *broken) { b.stated(tool, family, false); b.spoken() },
				func(b *broken) { b.stated(tool, family, true); b.spoken() },
			}, illness{
				"tracking-unneeded", // all are let in, whatever their state
				func(b *broken) {
					b.chainOf(tool, family, "input", "accept", "-m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT", "ct state established,related accept;")
					b.spoken()
				},
				func(b *broken) {
					b.chainOf(tool, family, "input", "accept", "-m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT; -p tcp -m tcp --dport 23 -j DROP", "ct state established,related accept; tcp dport 23 drop;")
					b.spoken()
				},
			}, illness{
				"rules-unhit",
				func(b *broken) { b.counted(tool, family, 12, 0, 5_000_000) },
				func(b *broken) {
					if family == 6 && tool == "iptables-nft" { // ip6tables-nft-restore 1.8.9 leaves what rules have counted out
						b.counted(tool, family, 12, 0, 1000)
						return
					}
					b.counted(tool, family, 12, 1, 5_000_000)
				},
			})
		}
	}
	const twice = "table inet TABLE { chain c { type filter hook input priority 0; policy drop; FIRST iifname lo accept; RULES ct state established accept; }; }\n"
	long := func(first string) string {
		rules := ""
		for i := range 25 {
			rules += fmt.Sprintf("tcp dport %d ip saddr 198.51.100.%d accept; ", 1000+i, i)
		}
		return strings.NewReplacer("TABLE", "one", "FIRST", first, "RULES", rules).Replace(twice) + strings.NewReplacer("TABLE", "two", "FIRST", "", "RULES", rules).Replace(twice)
	}
	return append(all, illness{
		"judged-again", // at the price of its rules
		func(b *broken) { b.host.Nft(long("")) },
		func(b *broken) { b.host.Nft(long("ct state established accept;")) },
	}, illness{
		"rules-unhit", // nothing has come by
		func(b *broken) { b.counted("iptables-nft", 4, 12, 0, 1_000_000) },
		func(b *broken) { b.counted("iptables-nft", 4, 12, 0, 1000) },
	}, illness{
		"rules-unhit", // what is behind has counted nothing either, but was hit before
		func(b *broken) { b.counted("nft", 4, 10, 0, 2_000_000) },
		func(b *broken) { b.counted("nft", 4, 9, 0, 2_000_000) },
	})
}

// stated loads a chain that asks for the state of connections, and a rule that leads to it or
// not.
func (b *broken) stated(tool string, family int, led bool) {
	b.t.Helper()
	jump := map[bool]string{true: "jump asks;", false: ""}[led]
	if tool == "nft" {
		b.host.Nft(nftOf(family, "table FAMILY stated { chain asks { ct state invalid drop; }; chain c { type filter hook input priority 0; "+jump+" tcp dport 23 drop; }; }"))
		return
	}
	text := "*filter\n:INPUT ACCEPT [0:0]\n:asks - [0:0]\n-A asks -m conntrack --ctstate INVALID -j DROP\n"
	if led {
		text += "-A INPUT -j asks\n"
	}
	b.tables(tool, family, text+"-A INPUT -p tcp -m tcp --dport 23 -j DROP\nCOMMIT\n")
}

// spoken has the host and its client speak, so that there are connections to track.
func (b *broken) spoken() {
	b.t.Helper()
	b.reachable()
	b.host.ServeTCP("192.0.2.1:8081")
	for _, to := range []string{"192.0.2.1:8081", "[2001:db8::1]:8080"} {
		conn, err := b.client.Dial(b.t.Context(), "tcp", to)
		if err != nil {
			b.t.Fatal(err)
		}
		b.t.Cleanup(func() { _ = conn.Close() })
	}
}

// counted loads rules that have counted so many packets each, before one that has counted
// others.
func (b *broken) counted(tool string, family, rules, each, behind int) {
	b.t.Helper()
	if tool == "nft" {
		text := "table FAMILY counted { chain c { type filter hook input priority 0; "
		for i := range rules {
			text += fmt.Sprintf("tcp dport %d tcp sport %d counter packets %d bytes 0 accept; ", 1000+i, i, each)
		}
		b.host.Nft(nftOf(family, text+fmt.Sprintf("counter packets %d bytes 0; }; }", behind)))
		return
	}
	text := fmt.Sprintf("*filter\n:INPUT ACCEPT [%d:0]\n", behind)
	for i := range rules {
		text += fmt.Sprintf("[%d:0] -A INPUT -p tcp -m tcp --sport %d --dport %d -j ACCEPT\n", each, i, 1000+i)
	}
	if out, err := b.host.RunInput(text+"COMMIT\n", command(tool, family)+"-restore", "-c"); err != nil {
		b.t.Fatalf("%v: %s", err, out)
	}
}

// TestRunsThatGoOn: of a run of rules that end nothing it is told, by each tool.
func TestRunsThatGoOn(t *testing.T) {
	for _, test := range []struct{ tool, target, says string }{
		{"iptables-legacy", "MARK --set-xmark 0x1/0xffffffff", "do not end the evaluation"},
		{"iptables-nft", "MARK --set-xmark 0x1/0xffffffff", "do not end the evaluation"},
		{"iptables-legacy", "CT --notrack", "leaves untracked"},
		{"iptables-nft", "ACCEPT", "only in the source"},
	} {
		b := newBroken(t)
		text := "*raw\n:PREROUTING ACCEPT [0:0]\n"
		for i := range 20 {
			text += fmt.Sprintf("-A PREROUTING -s 203.0.113.%d -j %s\n", i, test.target)
		}
		b.tables(test.tool, 4, text+"COMMIT\n")
		if found, all := b.examine("linear-rules", time.Millisecond); len(found) != 1 || !strings.Contains(found[0].Text, test.says) || strings.HasSuffix(found[0].Text, "only in the source") != (test.target == "ACCEPT") {
			t.Errorf("%s: %+v", test.target, all)
		}
	}
}
