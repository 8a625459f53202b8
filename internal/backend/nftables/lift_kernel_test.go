package nftables

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"sluice/internal/backend"
	"sluice/internal/engine/verify"
	"sluice/internal/program"
	"sluice/internal/system/kernel/nft"
)

// readWhole reads everything that the kernel holds.
func (k kernel) readWhole(t testing.TB) backend.State {
	t.Helper()
	var s backend.State
	err := k.Do(func() (err error) {
		s, err = New().(backend.Lifter).ReadWhole(context.Background(), nil)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// prove holds what the kernel holds against a program.
func (k kernel) prove(t testing.TB, p *program.Program) *verify.Proof {
	t.Helper()
	have := k.readWhole(t)
	r, err := New().(backend.Lifter).Lift(have)
	if err != nil {
		t.Fatal(err)
	}
	expected, err := New().(backend.Lifter).Expected(p, everything, have, nil)
	if err != nil {
		t.Fatal(err)
	}
	proof, err := verify.Prove(t.Context(), expected, r, nil, verify.Bounds{})
	if err != nil {
		t.Fatal(err)
	}
	return proof
}

// TestLiftFromKernel: all examples and constructs, through nft and the kernel.
func TestLiftFromKernel(t *testing.T) {
	programs := map[string][2]*program.Program{}
	whole := together(t)
	programs["constructs"] = [2]*program.Program{whole, whole}
	files, err := filepath.Glob("../../../examples/*/policy.yaml")
	if err != nil || len(files) == 0 {
		t.Fatal("no examples", err)
	}
	for _, file := range files {
		expected, full := compiledFile(t, file)
		programs[filepath.Base(filepath.Dir(file))] = [2]*program.Program{expected, full}
	}
	for name, p := range programs {
		t.Run(name, func(t *testing.T) {
			k := kernelHost(t)
			k.load(t, New(), mustLower(t, p[1]))
			proof := k.prove(t, p[0])
			for _, u := range proof.Unread {
				if name != "constructs" {
					t.Errorf("not read: %+v", u)
				}
			}
			for _, d := range proof.Differences {
				if name != "constructs" || len(proof.Unread) == 0 {
					t.Errorf("%+v", d)
				}
			}
			if proof.Elements+proof.Rules == 0 {
				t.Error("nothing was read")
			}
		})
	}
}

// tampered is a policy whose rules and sets are changed by hand.
const tampered = `version: 1
sets:
  office: [203.0.113.0/24, "2001:db8:77::/48"]
  servers: { endpoints: ["198.51.100.1 tcp/8080", "198.51.100.2 tcp/8443", "[2001:db8::1] tcp/8080"] }
  banned: [192.0.2.7, 192.0.2.9, 192.0.2.128/25]
ban: [banned]
services:
  web: [tcp/8080, tcp/8443]
tracking:
  bypass: [web to servers]
input:
  default: drop log "in"
  rules:
    - drop tcp/443 from 198.51.100.0/24
    - allow tcp/443
    - allow ssh from office limit 10/minute per source
    - allow [tcp/8080, tcp/8443]
    - drop tcp/1001 from office
    - allow tcp/1001 from 203.0.0.0/8
    - allow tcp/1002
    - allow tcp/1003
    - drop tcp/1004
    - allow tcp/1005
    - allow tcp/1006
    - allow tcp/1007
    - drop tcp/1008
    - allow tcp/1009
    - allow tcp/1010
    - reject tcp/25
    - allow udp/53 from 10.0.0.0/24
forward:
  default: drop
  rules:
    - allow tcp/5432 from office to 10.20.0.5
nat:
  - map 198.51.100.16/28 to 10.20.1.0/28
`

// TestTampering: every change by hand that means something is found, with a
// packet that shows it; one that means nothing is none.
func TestTampering(t *testing.T) {
	file := filepath.Join(t.TempDir(), "policy.yaml")
	if err := os.WriteFile(file, []byte(tampered), 0o600); err != nil {
		t.Fatal(err)
	}
	expected, full := compiledFile(t, file)
	a := mustLower(t, full)
	for _, c := range []struct {
		name    string
		edit    func(l *listing) string // what nft is given
		witness string                  // what the witness has to hold
		kernel  string                  // what the kernel does with it
	}{
		{"nothing", func(*listing) string { return "" }, "", ""},
		{"a rule that says what holds anyway", func(l *listing) string {
			return "add rule inet sluice input ct state invalid drop"
		}, "", ""},
		{"a rule less", func(l *listing) string {
			return l.delete("input", `(203\.0\.113\.0/24|@office4).*ct label set`)
		}, "tcp from 203.0.113.", "drop"},
		{"a rule more", func(l *listing) string {
			return "insert rule inet sluice input tcp dport 6379 ip saddr 198.51.100.77 accept"
		}, "198.51.100.77", "accept"},
		{"an element more", func(l *listing) string {
			return "add element inet sluice " + l.set(`^ban\.banned4_|^banned4_`) + " { 192.0.2.20 }"
		}, "192.0.2.20", "drop"},
		{"an element less", func(l *listing) string {
			return "delete element inet sluice " + l.set(`^ban\.banned4_|^banned4_`) + " { 192.0.2.9 }"
		}, "192.0.2.9", "drop"},
		{"a wider prefix", func(l *listing) string {
			return l.replace("input", `10\.0\.0\.0/24`, "10.0.0.0/24", "10.0.0.0/23")
		}, "10.0.1.", "accept"},
		{"two rules in another order", func(l *listing) string {
			return l.swap("input", `203\.0\.113\.0/24`, `203\.0\.0\.0/8`)
		}, "203.0.113.", "accept"},
		{"another policy of a chain", func(l *listing) string {
			_, tree := l.rules("input")
			i := slices.IndexFunc(tree.Chains, func(c *Chain) bool { return c.Base != nil && c.Base.Hook == "prerouting" && c.Base.Type == "filter" })
			return "chain inet sluice " + tree.Chains[i].Name + " { policy drop; }"
		}, "tcp from", "drop"},
		{"the verdict of an element", func(l *listing) string {
			return l.element("1004", "drop", "accept")
		}, ":1004", "accept"},
		{"another prefix to rewrite to", func(l *listing) string {
			c, i := l.find("ip/prerouting_nat", `dnat`)
			return fmt.Sprintf("delete rule ip sluice %s handle %d\nadd rule ip sluice %s %s", c.Name, c.Rules[i].Handle, c.Name,
				strings.Replace(c.Rules[i].text(), ": 10.20.1.0/28", ": 10.20.9.0/28", 1))
		}, "198.51.100.", "accept"},
		{"another rate", func(l *listing) string {
			return l.replace("limit-input", `limit rate`, "10/minute", "1000/minute")
		}, "tcp from", "refused"},
		{"no proof of a handshake", func(l *listing) string {
			return l.replace("input_handshakes", `meta cgroup`, "meta cgroup >= 0 ", "")
		}, "tcp from", "accept"},
		{"another label", func(l *listing) string {
			c, i := l.find("input", `ct label set \d+ counter`)
			text := regexp.MustCompile(`ct label set \d+`).ReplaceAllString(c.Rules[i].text(), "ct label set 1")
			return fmt.Sprintf("replace rule inet sluice %s handle %d %s", c.Name, c.Rules[i].Handle, text)
		}, "tcp from 203.0.113.", "accept"},
		{"no counter", func(l *listing) string {
			return l.replace("input", `5353|dport 53 `, "counter", "")
		}, "udp from 10.0.0.", "accept"},
		{"another answer", func(l *listing) string {
			return l.element("25", "goto", "drop")
		}, ":25", "drop"},
	} {
		t.Run(c.name, func(t *testing.T) {
			k := kernelHost(t)
			k.load(t, New(), a)
			l := &listing{t: t, kernel: k}
			text := c.edit(l)
			if text != "" {
				if err := k.Do(func() error { return nft.Run(context.Background(), text) }); err != nil {
					t.Fatalf("%s: %v", text, err)
				}
			}
			proof := k.prove(t, expected)
			if c.witness+c.kernel == "" {
				if !proof.Proved {
					t.Errorf("not proved: %+v", proof)
				}
				return
			}
			fits := slices.ContainsFunc(proof.Differences, func(d verify.Difference) bool {
				return strings.Contains(d.Packet, c.witness) && (c.kernel == "refused" || d.Kernel.Verdict == c.kernel)
			})
			if proof.Proved || !fits {
				t.Errorf("%s\nis not found: %+v", text, proof.Differences)
			}
			if got := len(proof.Unread) > 0; got != (c.kernel == "refused") {
				t.Errorf("not read: %+v", proof.Unread)
			}
		})
	}
}

// TestRefusedByName: what a program cannot say is never taken to be equal.
func TestRefusedByName(t *testing.T) {
	file := filepath.Join(t.TempDir(), "policy.yaml")
	if err := os.WriteFile(file, []byte(tampered), 0o600); err != nil {
		t.Fatal(err)
	}
	expected, full := compiledFile(t, file)
	a := mustLower(t, full)
	for _, c := range []struct{ text, refused string }{
		{"insert rule inet sluice input meta pkttype broadcast drop", "meta pkttype 1"},
		{"insert rule inet sluice input quota over 10 mbytes drop", "quota"},
		{"insert rule inet sluice input ip saddr 192.0.2.1 limit rate over 10/second drop", "limit rate over 10/second"},
		{"insert rule inet sluice input tcp dport 80 reject with icmpx type admin-prohibited", "icmpx"},
		{"insert rule inet sluice input tcp dport 80 reject with icmpx type port-unreachable", "icmpx"},
		{"insert rule inet sluice input @nh,8,8 4 drop", "8"},
		{"insert rule inet sluice input tcp sport != 4000 tcp dport != 6379 drop", "either suffices"},
		{"add chain inet sluice odd { type filter hook input priority 17; policy drop; }", "priority 17"},
		{"add chain ip sluice odd { type filter hook input priority 0; policy drop; }", "table ip sluice"},
	} {
		t.Run(c.text, func(t *testing.T) {
			k := kernelHost(t)
			k.load(t, New(), a)
			if err := k.Do(func() error { return nft.Run(context.Background(), c.text) }); err != nil {
				t.Fatal(err)
			}
			proof := k.prove(t, expected)
			if proof.Proved {
				t.Fatalf("proved, though nobody knows what it means: %+v", proof)
			}
			if !slices.ContainsFunc(proof.Unread, func(u backend.Unlifted) bool { return strings.Contains(u.Text+u.Why, c.refused) && u.Chain != "" }) {
				t.Errorf("not named: %+v %+v", proof.Unread, proof.Differences)
			}
		})
	}
}

// listing edits rules as somebody by hand would.
type listing struct {
	t      *testing.T
	kernel kernel
}

func (l *listing) text() string {
	var out []byte
	err := l.kernel.Do(func() (err error) {
		out, err = nft.ListText(context.Background(), "ruleset", "inet")
		return err
	})
	if err != nil {
		l.t.Fatal(err)
	}
	return string(out)
}

// rules are the chains whose names begin so, with their rules.
func (l *listing) rules(chain string) (*Chain, *Tree) {
	s := l.kernel.readWhole(l.t).(*State)
	for _, c := range s.Tree.Chains {
		if strings.HasPrefix(c.Name, chain) {
			return c, &s.Tree
		}
	}
	l.t.Fatalf("no chain %s", chain)
	return nil, nil
}

// find gives the first rule of chains that begin so that a pattern fits.
func (l *listing) find(chain, pattern string) (*Chain, int) {
	_, tree := l.rules(chain)
	for _, c := range tree.Chains {
		if !strings.HasPrefix(c.Name, chain) {
			continue
		}
		for i, r := range c.Rules {
			if regexp.MustCompile(pattern).MatchString(r.text() + " ") {
				return c, i
			}
		}
	}
	l.t.Fatalf("no rule of %s fits %s:\n%s", chain, pattern, l.text())
	return nil, 0
}

func (l *listing) delete(chain, pattern string) string {
	c, i := l.find(chain, pattern)
	return fmt.Sprintf("delete rule inet sluice %s handle %d", c.Name, c.Rules[i].Handle)
}

func (l *listing) replace(chain, pattern, old, new string) string {
	c, i := l.find(chain, pattern)
	text := strings.Replace(c.Rules[i].text(), old, new, 1)
	if old == "counter" {
		text = regexp.MustCompile(`counter name "[^"]*"`).ReplaceAllString(c.Rules[i].text(), "")
	}
	if text == c.Rules[i].text() {
		l.t.Fatalf("%q is not in %q", old, text)
	}
	return fmt.Sprintf("replace rule inet sluice %s handle %d %s", c.Name, c.Rules[i].Handle, text)
}

func (l *listing) swap(chain, one, other string) string {
	c, i := l.find(chain, one)
	d, j := l.find(chain, other)
	if c.Name != d.Name {
		l.t.Fatalf("%s and %s are in two chains", one, other)
	}
	return fmt.Sprintf("replace rule inet sluice %s handle %d %s\nreplace rule inet sluice %s handle %d %s",
		c.Name, c.Rules[i].Handle, c.Rules[j].text(), c.Name, c.Rules[j].Handle, c.Rules[i].text())
}

func (l *listing) set(pattern string) string {
	s := l.kernel.readWhole(l.t).(*State)
	for _, k := range s.Tree.Sets {
		if regexp.MustCompile(pattern).MatchString(k.Name) {
			return k.Name
		}
	}
	l.t.Fatalf("no set %s:\n%s", pattern, l.text())
	return ""
}

// element gives an element of a verdict map another verdict.
func (l *listing) element(key, old, new string) string {
	s := l.kernel.readWhole(l.t).(*State)
	for _, k := range s.Tree.Sets {
		for i, tuple := range k.Elements.Tuples {
			if k.Verdicts && (tuple == key || strings.HasSuffix(tuple, ". "+key)) {
				text := tupleText(k.Types, tuple) + counted(map[string]backend.Count{}, tuple) + k.Elements.note(tuple)
				return fmt.Sprintf("delete element inet sluice %s { %s : %s }\nadd element inet sluice %s { %s : %s }",
					k.Name, tupleText(k.Types, tuple), k.Elements.Verdicts[i], k.Name, text, new)
			}
		}
	}
	l.t.Fatalf("no map has %s:\n%s", key, l.text())
	return ""
}

// TestFlagsByName: an older version asked for flags by name. What it loaded is read back
// as it was, and means the same. Without the protocol the bytes are no flags.
func TestFlagsByName(t *testing.T) {
	host := kernelHost(t)
	for _, c := range constructs {
		p := c.program()
		a := mustLower(t, p)
		chain := a.Tree.chain("tried")
		if chain == nil || len(chain.Rules) == 0 {
			continue
		}
		r := &chain.Rules[0]
		at := slices.IndexFunc(r.Statements, func(s Statement) bool { return s.Field == flagsWord })
		if at < 0 {
			continue
		}
		t.Run(c.name, func(t *testing.T) {
			r.Statements[at], _ = r.Statements[at].asFlags()
			host.load(t, New(), a)
			host.holds(t, "read back", a)
			proved(t, p, a.Loaded(), everything)
			host.load(t, New(), nil)

			without := mustLower(t, p).Tree
			bare := &without.chain("tried").Rules[0]
			bare.Statements = slices.DeleteFunc(bare.Statements, func(s Statement) bool { return s.Field == "meta l4proto" })
			if u := lift(without).Unlifted; len(u) != 1 {
				t.Errorf("without the protocol: %v", u)
			}
		})
	}
}
