package peers

import (
	"context"
	"fmt"
	"os/exec"
	"slices"
	"strings"

	"sluice/internal/lab/testnet"
)

// Every is all peers that Sluice knows, the likeliest first.
func Every() []Peer {
	out := []Peer{
		nftables("nftables-set", "one set of nftables a set, asked by one rule", oneSet),
		nftables("nftables-linear", "nftables with a rule for each address", linear),
		nftables("chain-per-/8 (nftables)", "a chain of nftables for each /8, reached by a verdict map", chainPer8),
		nftables("hash-per-length", "a hash set of nftables for each prefix length", hashByLength),
	}
	out[2].Group = "chain-per-/8"
	for _, flavour := range []string{"legacy", "nft"} {
		out = append(out,
			iptables("chain-per-/8", "a chain of iptables for each /8, and a jump to each", flavour, iptablesSets{bans: chainPer8, rules: chainPer8}),
			iptables("ipset", "iptables with ipset", flavour, iptablesSets{bans: ipsets, rules: ipsets, endpoints: true}),
			iptables("iptables-linear", "iptables with a rule for each address", flavour, iptablesSets{bans: linear, rules: linear}),
			iptables("ipset-story", "bans in an ipset, NOTRACK rule by rule and without ACCEPT", flavour, iptablesSets{bans: ipsets, rules: linear}),
			iptables("ipset-story-before", "bans and NOTRACK rule by rule and without ACCEPT", flavour, iptablesSets{bans: linear, rules: linear}),
		)
	}
	return append(out, ufw(), firewalld())
}

func nftables(name, about string, l layout) Peer {
	return Peer{
		Name: name, Group: name, About: about,
		needs: []testnet.Feature{testnet.Program("nft"), testnet.Nftables},
		load: func(ctx context.Context, n *testnet.Namespace, m Meaning, run Runner) error {
			m.Accelerated = m.Accelerated && testnet.Flowtable.Ask() == nil
			return run(ctx, n, string(nftRuleset(m, l)), "nft", "-f", "-")
		},
		cannot: func(m Meaning) []Refusal { return append(oddRates(m), publishedTo(m)...) },
		text:   func(m Meaning) string { return string(nftRuleset(m, l)) },
	}
}

// flowtableBeside is what iptables has no words for.
func flowtableBeside(m Meaning) string {
	return fmt.Sprintf(`table inet fast {
	flowtable f { hook ingress priority filter; devices = { %s }; }
	chain known {
		type filter hook forward priority mangle;
		ct state == established flow add @f
	}
}
`, strings.Join(quoted(m.Interfaces), ", "))
}

// iptablesNft is the feature that iptables-nft can hand a rule to the kernel.
var iptablesNft = testnet.Probed("iptables-nft", func() error {
	return exec.Command("unshare", "-n", "iptables-nft", "-A", "INPUT", "-j", "DROP").Run()
})

func iptables(group, about, flavour string, how iptablesSets) Peer {
	needs := []testnet.Feature{testnet.Program("iptables-" + flavour + "-restore"), testnet.Program("ip6tables-" + flavour + "-restore")}
	if flavour == "legacy" {
		needs = append(needs, testnet.IPTablesLegacy("filter"), testnet.IPTablesLegacy("raw"))
	} else {
		needs = append(needs, iptablesNft)
	}
	if how.bans == ipsets {
		needs = append(needs, testnet.Program("ipset"))
	}
	return Peer{
		Name: group + " (iptables-" + flavour + ")", Group: group, About: about + "; iptables-" + flavour, needs: needs,
		load: func(ctx context.Context, n *testnet.Namespace, m Meaning, run Runner) error {
			sets, four, six := iptablesRuleset(m, how)
			if err := restore(ctx, n, run, flavour, sets, four, six); err != nil || how.rules != ipsets || !m.Accelerated || testnet.Flowtable.Ask() != nil {
				return err
			}
			return run(ctx, n, flowtableBeside(m), "nft", "-f", "-")
		},
		cannot: func(m Meaning) []Refusal { return slices.Concat(oddRates(m), publishedTo(m), iptablesCannot(m)) },
		without: func(m Meaning) []Refusal {
			if how.rules == ipsets {
				return nil
			}
			return withoutBans(m)
		},
		text: func(m Meaning) string {
			sets, four, six := iptablesRuleset(m, how)
			text := ""
			for _, part := range []struct {
				of   string
				text []byte
			}{{"ipset restore", sets}, {"iptables-restore", four}, {"ip6tables-restore", six}} {
				if len(part.text) > 0 {
					text += "# " + part.of + "\n" + string(part.text)
				}
			}
			return text
		},
	}
}

// restore loads what has something in it.
func restore(ctx context.Context, n *testnet.Namespace, run Runner, flavour string, sets, four, six []byte) error {
	for _, step := range []struct {
		text []byte
		args []string
	}{
		{sets, []string{"ipset", "restore"}},
		{four, []string{"iptables-" + flavour + "-restore"}},
		{six, []string{"ip6tables-" + flavour + "-restore"}},
	} {
		if len(step.text) == 0 {
			continue
		}
		if err := run(ctx, n, string(step.text), step.args[0], step.args[1:]...); err != nil {
			return err
		}
	}
	return nil
}

// eachRule calls f with every rule of the sections.
func eachRule(m Meaning, f func(Rule)) {
	for _, s := range m.sections() {
		for _, r := range s.Rules {
			f(r)
		}
	}
}

// publishedTo are the rules about published services at some addresses alone.
func publishedTo(m Meaning) (out []Refusal) {
	eachRule(m, func(r Rule) {
		if r.Published && r.To != nil {
			out = append(out, Refusal{r.Text, "published services of some addresses"})
		}
	})
	return out
}

// withoutBans are the limits that ban nobody.
func withoutBans(m Meaning) (out []Refusal) {
	eachRule(m, func(r Rule) {
		if r.bans() {
			out = append(out, Refusal{r.Text, "limits, and bans nobody"})
		}
	})
	return out
}
