package stories

import (
	"math"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"sluice/internal/lab/stats"
)

// checked runs sluice check, on the text of a policy and on all files beside it.
func checked(t *testing.T, binary string, files map[string]string, policy string) {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, args := range [][]string{{"check", "--text", policy}, {"compile", policy}} {
		cmd := exec.Command(binary, append(args, "--state-dir", filepath.Join(dir, "state"))...)
		cmd.Dir = dir
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("sluice %s: %v\n%.2000s", strings.Join(args, " "), err, out)
		}
	}
}

func TestPoliciesOfStories(t *testing.T) {
	binary, _ := built(t)
	for name, p := range map[string]string{
		"two": loadBalancer(), "three": europePolicy, "four": machinesPolicy(true), "four, classic": machinesPolicy(false),
	} {
		t.Run(name, func(t *testing.T) {
			checked(t, binary, map[string]string{"policy.yaml": p, "banned.txt": bannedFile()}, "policy.yaml")
		})
	}
}

func TestStoryTwoHasItsNumbers(t *testing.T) {
	bans, services := map[netip.Addr]bool{}, map[netip.AddrPort]bool{}
	for i := range storyBans {
		bans[bannedAddress(i)] = true
	}
	for i := range storyServices {
		a := serviceAddress(i)
		services[a] = true
		if bans[a.Addr()] {
			t.Errorf("the service %s is banned", a)
		}
	}
	if len(bans) != storyBans || len(services) != storyServices {
		t.Errorf("%d addresses and %d services, want %d and %d", len(bans), len(services), storyBans, storyServices)
	}
	if rules := linearRules(); strings.Count(rules, "-j DROP\n") != storyBans || strings.Count(rules, "--notrack\n") != storyServices || strings.Contains(rules, "ACCEPT") {
		t.Error("the rules are not those of the story")
	}
	if sets := ipsetSets(); strings.Count(sets, "add banned ") != storyBans || strings.Count(sets, "add services ") != storyServices {
		t.Error("the sets are not those of the story")
	}
	if lines := strings.Count(bannedFile(), "\n"); lines != storyBans {
		t.Errorf("banned.txt has %d lines", lines)
	}
}

func TestListedRules(t *testing.T) {
	rules, err := listedRules(`Chain PREROUTING (policy ACCEPT 12 packets, 480 bytes)
    pkts      bytes target     prot opt in     out     source               destination
       7      280 DROP       0    --  *      *       192.0.2.1            0.0.0.0/0
 5000000000      400 CT         tcp  --  *      *       0.0.0.0/0            198.51.100.201       tcp dpt:8000 CT notrack
      12      480            all  --  *      *       0.0.0.0/0            0.0.0.0/0
`)
	if err != nil || !slices.Equal(rules, []listedRule{{7, "DROP"}, {5000000000, "CT"}, {12, ""}}) {
		t.Errorf("got %v, %v", rules, err)
	}
	for _, odd := range []string{"Chain\npkts\nx", "Chain\npkts\nx DROP all -- *"} {
		if rules, err := listedRules(odd); err == nil {
			t.Errorf("%q gives %v", odd, rules)
		}
	}
}

func TestCountedAddresses(t *testing.T) {
	counted := countedAddresses(`table inet sluice {
	counter ban_banned { packets 9 bytes 360 }
	set ban.banned_v4_counted {
		type ipv4_addr
		counter
		elements = { 192.0.2.1 counter packets 4 bytes 160, 192.0.2.2 counter packets 0 bytes 0,
			     203.0.113.9 counter packets 5 bytes 200 }
	}
}`)
	if len(counted) != 2 || counted[netip.MustParseAddr("192.0.2.1")] != 4 || counted[netip.MustParseAddr("203.0.113.9")] != 5 {
		t.Errorf("got %v", counted)
	}
}

func TestSharesOfACore(t *testing.T) {
	linear := stats.Series{2750, 5500}
	if have := shareAt(linear, linear); !slices.Equal(have, stats.Series{55, 55}) {
		t.Errorf("the story's rules take %v of a core, want 55", have)
	}
	if have := shareAt(stats.Series{100, 200}, linear); math.Abs(have[0]-2) > 1e-9 || math.Abs(have[1]-2) > 1e-9 {
		t.Errorf("a 27.5th of it takes %v, want 2", have)
	}
	// 2,750 ns each are 55 % of a core at 200,000 a second.
	if have := rateAt(linear, 55); math.Abs(have[0]-200000) > 1e-6 || math.Abs(have[1]-100000) > 1e-6 {
		t.Errorf("packets a second: %v", have)
	}
}
