package xtables_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"

	"sluice/internal/importer"
	"sluice/internal/importer/xtables"
)

// TestErrors: what the tools cannot have printed is refused with its line and column.
func TestErrors(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{"-A INPUT -j DROP\n", `line 1, column 1: "-A INPUT -j DROP" is in no table: a line such as *filter is missing before it`},
		{"*filter\n*nat\n", "line 2, column 1: table nat begins inside table filter, before its COMMIT"},
		{"*\n", `line 1, column 1: "" is not the name of a table`},
		{"*filter\nCOMMIT\n*filter\n", "line 3, column 1: table filter is defined twice"},
		{"*filter\n:INPUT ACCEPT [0:0]\n", "line 3, column 1: the text ends inside table filter, before its COMMIT"},
		{"*filter\n:INPUT\n", `line 2, column 1: a chain has a name and a policy: ":INPUT"`},
		{"*filter\n:INPUT REJECT\n", `line 2, column 8: "REJECT" is not a policy: ACCEPT, DROP or -`},
		{"*filter\n:INPUT DROP [1:x]\n", `line 2, column 13: "[1:x]" is not a count: [PACKETS:BYTES]`},
		{"*filter\n:a - [0:0]\n:a - [0:0]\n", "line 3, column 1: chain a is defined twice in table filter"},
		{"*filter\n[1:2\n", `line 2, column 1: "[1:2" is not a count: [PACKETS:BYTES]`},
		{"*filter\n[1:2]\n", `line 2, column 1: "[1:2]" is not a rule: -A CHAIN, then matches and a target`},
		{"*filter\n-I INPUT\n", `line 2, column 1: "-I INPUT" is not a rule: -A CHAIN, then matches and a target`},
		{"*filter\n-A\n", "line 2, column 1: -A names no chain"},
		{"*filter\n-A mine -j DROP\n", "line 2, column 4: table filter has no chain mine"},
		{"*filter\n:a - [0:0]\n-A a DROP\n", `line 3, column 6: "DROP" is in place of an option`},
		{"*filter\n:a - [0:0]\n-A a -j\n", "line 3, column 6: -j has 0 values, not one"},
		{"*filter\n:a - [0:0]\n-A a -s 192.0.2.1 192.0.2.2 -j DROP\n", "line 3, column 6: -s has 2 values, not one"},
		{"*filter\n:a - [0:0]\n-A a -j DROP -j DROP\n", "line 3, column 14: a second target, DROP"},
		{"*filter\n:a - [0:0]\n-A a -g b\n", "line 3, column 9: table filter has no chain b"},
		{"*filter\n:a - [0:0]\n-A a !\n", "line 3, column 6: a ! with nothing after it"},
		{"*filter\n:a - [0:0]\n-A a --dport 22\n", "line 3, column 6: --dport belongs to no match and no target"},
		{"*filter\n:a - [0:0]\n-A a -c 1\n", "line 3, column 6: -c needs packets and bytes"},
		{"*filter\n:a - [0:0]\n-A a -m comment --comment \"x\n", "line 3, column 27: a quote that does not end on its line"},
		{"*filter\n:a - [0:0]\n-A a -j LOG --log-prefix x\\\n", "line 3, column 27: a backslash with nothing after it"},
		{"*filter\n:a - [0:0]\n:b - [0:0]\n-A a -p tcp -j b\n-A b -j a\nCOMMIT\n", "line 5, column 6: chain filter/a returns to itself here"},
		{"*filter\n:a - [0:0]\n-A a -j a\nCOMMIT\n", "line 3, column 6: chain filter/a returns to itself here"},
	} {
		_, err := xtables.Parse(c.text, "iptables-legacy", 4, nil)
		var bad *importer.SyntaxError
		if !errors.As(err, &bad) || err.Error() != c.want {
			t.Errorf("%q: %v, want %s", c.text, err, c.want)
		}
	}
}

// TestOldSpellings: iptables before 1.4.3 printed a negation behind its option, and people
// leave away what iptables adds.
func TestOldSpellings(t *testing.T) {
	for _, c := range []struct{ old, now string }{
		{"-s ! 192.0.2.1 -j DROP", "! -s 192.0.2.1/32 -j DROP"},
		{"-i ! eth0 -j DROP", "! -i eth0 -j DROP"},
		{"-p ! tcp -j DROP", "! -p tcp -j DROP"},
		{"-p tcp --dport ! 22 -j DROP", "-p tcp -m tcp ! --dport 22 -j DROP"},
		{"-p tcp -m state --state ! NEW -j DROP", "-p tcp -m state ! --state NEW -j DROP"},
		{"-p tcp -m state --state NEW --dport 22 -j DROP", "-p tcp -m state --state NEW -m tcp --dport 22 -j DROP"},
		{"-m state --state NEW -p tcp --syn -j DROP", "-m state --state NEW -p tcp -m tcp --tcp-flags FIN,SYN,RST,ACK SYN -j DROP"},
		{"-j DROP -p 6 --source-port 22", "-p tcp -m tcp --sport 22 -j DROP"},
		{"-s 192.0.2.0/255.255.255.0 -j MARK --set-mark 1", "-s 192.0.2.0/24 -j MARK --set-xmark 0x1/0xffffffff"},
		{"--protocol icmp --icmp-type ping --jump DROP", "-p icmp -m icmp --icmp-type 8 -j DROP"},
		{"-m comment --comment -j -j DROP", "-m comment --comment \"-j\" -j DROP"},
	} {
		var texts []string
		for _, rule := range []string{c.old, c.now} {
			r, err := xtables.Parse("*mangle\n:a - [0:0]\n-A a "+rule+"\nCOMMIT\n", "iptables-legacy", 4, nil)
			if err != nil {
				t.Errorf("%s: %v", rule, err)
				break
			}
			if len(r.Unlifted) > 0 {
				t.Errorf("%s: %v", rule, r.Unlifted)
			}
			texts = append(texts, r.Program.Text())
		}
		if len(texts) == 2 && texts[0] != texts[1] {
			t.Errorf("%s is\n%s, and %s is\n%s", c.old, texts[0], c.now, texts[1])
		}
	}
}

// TestDeep: jumps that lead deeper than anybody follows are named, and take no time.
func TestDeep(t *testing.T) {
	for _, c := range []struct {
		chains int
		named  bool
	}{{15, false}, {16, true}, {20_000, true}} {
		var text strings.Builder
		text.WriteString("*filter\n:INPUT ACCEPT [0:0]\n")
		for i := range c.chains {
			fmt.Fprintf(&text, ":c%d - [0:0]\n", i)
		}
		text.WriteString("-A INPUT -j c0\n")
		for i := range c.chains - 1 {
			fmt.Fprintf(&text, "-A c%d -j c%d\n-A c%d -j c%d\n", i, i+1, i, i+1)
		}
		text.WriteString("COMMIT\n")
		r, err := xtables.Parse(text.String(), "iptables-legacy", 4, nil)
		if err != nil {
			t.Fatal(err)
		}
		if named := len(r.Unlifted) == 1 && strings.Contains(r.Unlifted[0].Why, "chains deep"); named != c.named {
			t.Errorf("%d chains: %v", c.chains, r.Unlifted)
		}
	}
}

// BenchmarkParse reads 100,000 rules, as a host with a long list of addresses has them.
func BenchmarkParse(b *testing.B) {
	var text strings.Builder
	text.WriteString("*filter\n:INPUT ACCEPT [0:0]\n")
	for i := range 100_000 {
		fmt.Fprintf(&text, "[%d:%d] -A INPUT -s 10.%d.%d.%d/32 -p tcp -m tcp --dport %d -m comment --comment \"no %d\" -j DROP\n", i, 40*i, i>>16&255, i>>8&255, i&255, i&65535, i)
	}
	text.WriteString("COMMIT\n")
	b.ReportAllocs()
	for b.Loop() {
		if _, err := xtables.Parse(text.String(), "iptables-legacy", 4, nil); err != nil {
			b.Fatal(err)
		}
	}
}

// FuzzParse: whatever a tool or somebody else prints, there is a program that is well
// formed, in which each rule of the text is named, or one error with its line.
func FuzzParse(f *testing.F) {
	for _, rule := range []string{
		"-s 192.0.2.0/24 ! -d 2001:db8::/32 -i eth+ ! -o lo -j ACCEPT",
		"-p tcp -m multiport --ports 1,2:3 -m multiport --ports 4 -j b",
		"-p udp -m udp --sport 5: --dport :7 -m limit --limit 3/min -m hashlimit --hashlimit-upto 1/s --hashlimit-mode srcip --hashlimit-name x -j LOG --log-prefix \"a \\\"b\\\\\"",
		"-m conntrack --ctstate NEW,DNAT --ctexpire 1 -m connlimit --connlimit-upto 1 --connlimit-mask 32 --connlimit-saddr -j MARK --set-xmark 0x1/0x0",
		"-j DNAT --to-destination [2001:db8::1]:80-90 --persistent",
		"-d 192.0.2.0/24 -j NETMAP --to 198.51.100.0/24",
		"-p icmp -m icmp ! --icmp-type 3/4 -g b",
		"-m mac ! --mac-source 02:00:00:00:00:01 -m statistic --mode nth -j NFQUEUE",
	} {
		f.Add("*filter\n:INPUT DROP [1:2]\n:b - [0:0]\n[3:4] -A INPUT " + rule + "\nCOMMIT\n")
	}
	f.Fuzz(func(t *testing.T, text string) {
		for _, family := range []int{4, 6} {
			r, err := xtables.Parse(text, "iptables-legacy", family, nil)
			var bad *importer.SyntaxError
			switch {
			case err != nil && (!errors.As(err, &bad) || bad.Line < 1 || bad.Column < 1 || bad.Line > strings.Count(text, "\n")+2):
				t.Fatalf("%v", err)
			case err != nil:
				continue
			}
			if err := r.Program.Check(); err != nil {
				t.Fatal(err)
			}
			if len(r.Program.Hooks) != len(r.Bases) {
				t.Fatalf("%d hooks, %d bases", len(r.Program.Hooks), len(r.Bases))
			}
			named := map[string]bool{}
			for _, c := range r.Program.Chains {
				for _, rule := range c.Rules {
					named[rule.ID] = true
				}
			}
			unlifted := map[string]bool{}
			for _, u := range r.Unlifted {
				unlifted[fmt.Sprintf("%s:%d", u.Chain, u.Rule)] = true
				if u.Why == "" || utf8.ValidString(text) && u.Text == "" {
					t.Fatalf("unlifted: %+v", u)
				}
			}
			for id, rule := range r.Rules {
				if !named[id] || rule.Whole == unlifted[id] {
					t.Fatalf("%s is %+v, in the program %v, unlifted %v", id, rule, named[id], unlifted[id])
				}
			}
		}
	})
}
