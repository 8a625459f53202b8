package stories

import (
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"sluice/internal/base/addrset"
	"sluice/internal/lab/stats"
	"sluice/internal/lab/testnet"
	"sluice/internal/language/geo"
)

func TestLookUpTimes(t *testing.T) {
	took, err := lookUpTimes("100.500000 105.505000 203.0.113.80\n106 106.25 203.0.113.80\n")
	if err != nil || len(took) != 2 || took[0] < 5.0049 || took[0] > 5.0051 || took[1] != 0.25 {
		t.Errorf("%v, %v", took, err)
	}
	for _, odd := range []string{"", "100 110 none\n", "100 110 203.0.113.81\n", "100\n"} {
		if took, err := lookUpTimes(odd); err == nil {
			t.Errorf("%q gives %v", odd, took)
		}
	}
}

func TestTracedRules(t *testing.T) {
	told := `trace id 5f9c packet: iif "wan" ip saddr 8.8.8.8 ip daddr 198.51.100.10 udp sport 53
trace id 5f9c ip tracing packets rule ip saddr 8.8.8.8 udp sport 53 meta nftrace set 1 (verdict continue)
trace id 77aa inet story countries rule iif "lo" accept (verdict accept)
trace id 5f9c inet story countries rule ip saddr != @allowed drop (verdict drop)
`
	want := []string{
		"ip tracing packets rule ip saddr 8.8.8.8 udp sport 53 meta nftrace set 1 (verdict continue)",
		"inet story countries rule ip saddr != @allowed drop (verdict drop)",
	}
	if have := tracedRules(told); !slices.Equal(have, want) {
		t.Errorf("got %q, want %q", have, want)
	}
	if have := tracedRules("metainfo: nothing\n"); len(have) != 0 {
		t.Errorf("got %q of nothing", have)
	}
}

// The remedy lets in what the set has: every prefix in the chain of its /8, and those
// that are larger in each of theirs.
func TestChainsOfThe8s(t *testing.T) {
	r := &resolving{allowed: addrset.FromPrefixes(netip.MustParsePrefix("2.0.0.0/7"), netip.MustParsePrefix("192.0.2.0/25"))}
	rules := r.chains()
	for _, want := range []string{
		":c2 - [0:0]\n:c3 - [0:0]\n:c192 - [0:0]\n", "-A INPUT -s 3.0.0.0/8 -j c3\n",
		"-A c2 -s 2.0.0.0/8 -j ACCEPT\n", "-A c3 -s 3.0.0.0/8 -j ACCEPT\n", "-A c192 -s 192.0.2.0/25 -j ACCEPT\n",
	} {
		if !strings.Contains(rules, want) {
			t.Errorf("no %q in:\n%s", want, rules)
		}
	}
	if n := strings.Count(rules, "-A c"); n != 3 {
		t.Errorf("%d rules in chains, want 3:\n%s", n, rules)
	}
	if set := storyTable(r.allowed, ""); !strings.Contains(set, " 192.0.2.0/25 }") {
		t.Errorf("the set is\n%s", set)
	}
}

// The same rules make both rulesets; in the second one connections that the host began
// are asked for first.
func TestOneChainHasTheSameRules(t *testing.T) {
	lines := func(text string) (out []string) {
		for line := range strings.Lines(text) {
			if line = strings.TrimSpace(line); strings.HasPrefix(line, "ct ") || strings.HasPrefix(line, "iif ") || strings.HasPrefix(line, "ip ") {
				out = append(out, line)
			}
		}
		return out
	}
	two, one := lines(twoBaseChains), lines(oneBaseChain)
	if one[0] != "ct state established,related accept" || one[len(one)-1] != countryRule {
		t.Errorf("the one chain is %q", one)
	}
	slices.Sort(two)
	slices.Sort(one)
	if !slices.Equal(two, one) {
		t.Errorf("the rules differ: %q and %q", two, one)
	}
}

func TestMillionsOfLookUps(t *testing.T) {
	if have := fiveSecondsAre(500); have != 10_000_000 {
		t.Errorf("five seconds are %v times 500 ns", have)
	}
	if have := fiveSecondsAre(stats.Series{734, 734}.Estimate().Median); have != 6_800_000 {
		t.Errorf("five seconds are %v times 734 ns", have)
	}
}

// Sluice's rules are made of the data of the others: with other data some addresses
// get another verdict.
func TestAnswerHasTheSameCountries(t *testing.T) {
	s := &Stage{Dir: t.TempDir(), Options: Options{Countries: t.TempDir()}}
	here := geo.CurrentFile(s.Countries)
	if err := os.MkdirAll(filepath.Dir(here), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(here, []byte("data"), 0o600); err != nil {
		t.Fatal(err)
	}
	r := &resolving{Stage: s, host: &testnet.Namespace{}}
	if err := r.shareCountries(); err != nil {
		t.Fatal(err)
	}
	if data, err := os.ReadFile(geo.CurrentFile(s.StateDir(r.host))); err != nil || string(data) != "data" {
		t.Errorf("the hosts have %q, %v", data, err)
	}
}
