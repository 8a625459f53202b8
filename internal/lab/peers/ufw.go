package peers

import (
	"bytes"
	"context"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"sluice/internal/base/packet"
	"sluice/internal/lab/testnet"
	"sluice/internal/language/policy"
)

// ufw has rules of its own as "ufw allow" writes them into user.rules, and what its
// commands have no words for in before.rules, where its manual puts it: bans in
// front, what is not tracked, NAT.
func ufw() Peer {
	return Peer{
		Name: "ufw", Group: "ufw", Private: true, About: "ufw; bans, NOTRACK and NAT in its before.rules",
		needs: []testnet.Feature{testnet.Program("ufw"), testnet.Program("iptables-restore"), testnet.Probed("configuration of ufw", func() error {
			_, err := os.Stat("/etc/ufw/before.rules")
			return err
		})},
		load:    loadUFW,
		cannot:  ufwCannot,
		without: ufwWithout,
		text: func(m Meaning) string {
			four, six := ufwRules(m, 4), ufwRules(m, 6)
			return "# user.rules\n" + four.user + "# user6.rules\n" + six.user +
				"# front of before.rules\n" + four.front + four.before + "# front of before6.rules\n" + six.front + six.before
		},
	}
}

func ufwCannot(m Meaning) (out []Refusal) {
	out = iptablesCannot(m)
	if m.InvalidAllow {
		out = append(out, Refusal{"invalid: allow", "ufw drops invalid packets in any case"})
	}
	eachRule(m, func(r Rule) {
		if r.From != nil && r.From.Not || r.To != nil && r.To.Not {
			out = append(out, Refusal{r.Text, "ufw has no opposite of addresses"})
		}
		if len(r.Users) > 0 {
			out = append(out, Refusal{r.Text, "ufw knows no users"})
		}
		if r.Published {
			out = append(out, Refusal{r.Text, "ufw knows nothing of what was rewritten"})
		}
		for _, w := range r.Ways {
			switch w.Protocol {
			case 0, packet.TCP, packet.UDP:
			case packet.ICMP, packet.ICMPv6: // in before.rules
			default:
				if len(w.Ports) > 0 {
					out = append(out, Refusal{r.Text, "ufw has ports of tcp and udp only"})
				}
			}
		}
	})
	return out
}

func ufwWithout(m Meaning) (out []Refusal) {
	eachRule(m, func(r Rule) {
		if r.Limit != nil || r.Max != nil {
			out = append(out, Refusal{r.Text, "allows without the limit: ufw's own is 6 in 30 seconds"})
		}
		if r.Log != nil {
			out = append(out, Refusal{r.Text, "does not log"})
		}
	})
	return out
}

// ufwText is what a family's files have.
type ufwText struct {
	user   string // user.rules
	before string // tables in front of before.rules
	front  string // rules in front of its own
}

func ufwRules(m Meaning, f int) ufwText {
	six := ""
	if f == 6 {
		six = "6"
	}
	how := iptablesSets{bans: linear, rules: linear}
	// Before all else: bans, in the chains that ufw has for it.
	bans := newIPTables(f, how, nil)
	prefix := "ufw" + six + "-before-"
	bans.bans(m, "filter", prefix+"input", prefix+"forward", prefix+"output")
	// Tables that ufw leaves to before.rules.
	early := newIPTables(f, how, nil)
	early.bypasses(m)
	early.nat(m)

	t := ufwText{before: string(early.text())}
	if table := bans.tables["filter"]; table != nil {
		t.front = table.rules.String()
	}
	// Its own rules: as many as the commands "ufw allow ..." would write.
	w := newIPTables(f, how, nil)
	w.prefix = "ufw" + six + "-peer-"
	var rules bytes.Buffer
	for _, s := range m.sections() {
		for _, r := range s.Rules {
			r.Limit, r.Max, r.Log = nil, nil, nil
			ufwRule(&rules, w, "ufw"+six+"-user-"+string(s.hook), s.hook, r)
		}
	}
	var user bytes.Buffer
	fmt.Fprintf(&user, "*filter\n")
	for _, chain := range []string{"user-input", "user-output", "user-forward", "before-logging-input", "before-logging-output", "before-logging-forward", "user-logging-input", "user-logging-output", "user-logging-forward", "after-logging-input", "after-logging-output", "after-logging-forward", "logging-deny", "logging-allow", "user-limit", "user-limit-accept"} {
		fmt.Fprintf(&user, ":ufw%s-%s - [0:0]\n", six, chain)
	}
	filter := w.table("filter")
	for _, c := range filter.chains {
		fmt.Fprintf(&user, ":%s - [0:0]\n", c)
	}
	fmt.Fprintf(&user, "### RULES ###\n\n%s### END RULES ###\n", rules.Bytes())
	fmt.Fprintf(&user, "-A ufw%s-user-limit -m limit --limit 3/minute -j LOG --log-prefix \"[UFW LIMIT BLOCK] \"\n-A ufw%s-user-limit -j REJECT\n-A ufw%s-user-limit-accept -j ACCEPT\nCOMMIT\n", six, six, six)
	t.user = user.String()
	return t
}

// ufwRule writes a rule of user.rules: the line that ufw reads ("tuple"), and those
// that iptables-restore reads. One tuple stands for one pair of addresses.
func ufwRule(out *bytes.Buffer, w *iptablesText, chain string, hook policy.Hook, r Rule) {
	filter := w.table("filter")
	filter.rules.Reset()
	w.rule(code{w, "filter", linear}, chain, &r, r.Ways...)
	action := map[policy.Action]string{policy.Allow: "allow", policy.Drop: "deny", policy.Reject: "reject"}[r.Action]
	direction := map[policy.Hook]string{policy.Input: "in", policy.Output: "out", policy.Forward: "in"}[hook]
	if hook == policy.Forward {
		action = "route:" + action
	}
	anybody := "0.0.0.0/0"
	if w.family == 6 {
		anybody = "::/0"
	}
	for line := range strings.Lines(filter.rules.String()) {
		words := strings.Fields(line)
		if words[1] != chain { // what the rule jumps to
			out.WriteString(line)
			continue
		}
		fmt.Fprintf(out, "### tuple ### %s %s %s %s any %s %s comment=%s\n%s\n",
			action, after(words, "-p", "any"), after(words, "--dport", after(words, "--dports", "any")), after(words, "-d", anybody),
			after(words, "-s", anybody), direction+ends(words), hex.EncodeToString([]byte(r.Text)), line)
	}
}

// after is the word behind another one, or what it is without.
func after(words []string, option, without string) string {
	for i, w := range words[:len(words)-1] {
		if w == option {
			return words[i+1]
		}
	}
	return without
}

// ends are the interfaces of a tuple: _eth0, or _eth0!out_eth1 of what is routed.
func ends(words []string) string {
	in, out := after(words, "-i", ""), after(words, "-o", "")
	switch {
	case in != "" && out != "":
		return "_" + in + "!out_" + out
	case in+out != "":
		return "_" + in + out
	}
	return ""
}

func loadUFW(ctx context.Context, n *testnet.Namespace, m Meaning, _ Runner) error {
	p, err := newPrivate(n)
	if err != nil {
		return err
	}
	defer p.remove()
	if err := p.copy("/etc/ufw", "ufw"); err != nil {
		return fmt.Errorf("copy the configuration of ufw: %w", err)
	}
	p.binds["/etc/ufw"], p.binds["/etc/default/ufw"] = "ufw", "default"
	write := func(path, text string) {
		if err == nil {
			err = p.file(path, text)
		}
	}
	target := func(s *Section) string {
		if s == nil {
			return "ACCEPT"
		}
		return map[policy.Action]string{policy.Allow: "ACCEPT", policy.Drop: "DROP", policy.Reject: "REJECT"}[s.Default]
	}
	write("default", fmt.Sprintf(`IPV6=yes
DEFAULT_INPUT_POLICY="%s"
DEFAULT_OUTPUT_POLICY="%s"
DEFAULT_FORWARD_POLICY="%s"
DEFAULT_APPLICATION_POLICY="SKIP"
MANAGE_BUILTINS=no
IPT_SYSCTL=/etc/ufw/sysctl.conf
IPT_MODULES=""
`, target(m.Input), target(m.Output), target(m.Forward)))
	level := "off"
	for _, s := range m.sections() {
		if s.DefaultLog != nil {
			level = "low"
		}
	}
	write("ufw/ufw.conf", "ENABLED=no\nLOGLEVEL="+level+"\n")
	write("ufw/sysctl.conf", "")
	for _, f := range []int{4, 6} {
		six := strings.Repeat("6", f/6)
		t := ufwRules(m, f)
		write("ufw/user"+six+".rules", t.user)
		before, readErr := os.ReadFile(filepath.Join(p.dir, "ufw/before"+six+".rules"))
		if readErr != nil {
			return readErr
		}
		text := strings.Replace(string(before), "\n-A ", "\n"+t.front+"-A ", 1)
		write("ufw/before"+six+".rules", t.before+text)
	}
	if err != nil {
		return err
	}
	_, err = p.run(ctx, "ufw", "--force", "enable")
	return err
}
