package optimize

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"sluice/internal/base/addrset"
	"sluice/internal/base/testseed"
	"sluice/internal/language/policy"
)

// TestPoliciesExactly proves every pass on what compile makes of random policies:
// bans, bypasses, limits, NAT, and rules of all three sections.
func TestPoliciesExactly(t *testing.T) {
	m := newMaker(t)
	did := map[string]int{}
	for range testseed.Rounds(15, 40) {
		text := m.policy()
		file := filepath.Join(t.TempDir(), "policy.yaml")
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		let := m.exceptions()
		p := compiled(t, file, m.additions(), let...)
		if rest := differ(ended(p), compiled(t, file, nil, let...)); len(rest) > 0 {
			t.Fatalf("when all has ended that commands added, and as if they had not:\n%s\n%v", text, rest)
		}
		proveRun(t, p, m.profile(p), did)
	}
	t.Log("programs that passes changed:", did)
	for _, pass := range []string{"ban-stage", "stages", "rules-to-sets", "verdict-maps", "concatenations", "hidden", "terminal", "reorder", "dispatch", "base-chains", "unused", "chain-order"} {
		if did[pass] == 0 {
			t.Errorf("pass %s changed none of the policies", pass)
		}
	}
}

// exceptions are who is let in by command, in half of the policies nobody.
func (m *maker) exceptions() (out []policy.Exception) {
	for range m.IntN(2) * (1 + m.IntN(3)) {
		e := policy.Exception{
			Service: pick(m, "", "tcp/22", "[tcp/80, udp/53]", "icmp echo-request", "udp/1000-2000", "proto/47"),
			OverBan: m.IntN(4) > 0,
		}
		e.What, _ = addrset.ParseRange(pick(m, "192.0.2.65", "192.0.2.0/25", "198.51.100.128-198.51.100.130", "203.0.113.7", "2001:db8:bad:7::/64", "2001:db8:77::5"))
		if m.IntN(3) == 0 {
			e.Until = time.Unix(2_000_000_000, 0)
		}
		out = append(out, e)
	}
	return out
}

// additions are what commands have in a living set; in half of the policies nothing. All
// of them end.
func (m *maker) additions() (out []policy.Addition) {
	for range m.IntN(2) * (1 + m.IntN(3)) {
		a := policy.Addition{Set: "lived", Until: time.Unix(2_000_000_000+int64(m.IntN(2)), 0)}
		a.What, _ = addrset.ParseRange(pick(m, "192.0.2.7", "192.0.2.0/24", "203.0.113.0/25", "2001:db8:77::5", "198.51.100.200", "192.0.2.66"))
		out = append(out, a)
	}
	return out
}

// policy is a random policy that is without errors, whichever words come together.
func (m *maker) policy() string {
	var b strings.Builder
	b.WriteString(`version: 1
zones:
  wan: { interfaces: [eth0] }
  lan: { interfaces: [lan0], networks: [10.20.0.0/24, "2001:db8:20::/64"] }
sets:
  office: [203.0.113.0/24, "2001:db8:77::/48"]
  noisy: { addresses: [192.0.2.64/28, "2001:db8:bad::/48"], counters: true }
  others: [198.51.100.128/25, 192.0.2.0/26]
  lived: { living: true, addresses: [` + pick(m, "", "192.0.2.9", "198.51.100.0/24") + `] }
  filled: { filled-by: other }
`)
	b.WriteString(pick(m, "", "ban: [noisy]\n", "ban: [lived]\n", "ban: [noisy, others]\nnever-ban: [203.0.113.7]\n"))
	b.WriteString(pick(m, "", "tracking: { bypass: [http] }\n", "tracking: { bypass: [dns], invalid: allow }\n"))
	for _, section := range []string{"input", "forward", "output"} {
		// Without a section input nothing is said about loopback, and compile writes its
		// bans down for it too; ban-stage never asks them of loopback.
		if section != "input" && m.IntN(8) == 0 {
			continue
		}
		fmt.Fprintf(&b, "%s:\n  default: %s\n  rules:\n", section, pick(m, "drop", "drop", `'drop log "d"'`, "reject", "allow"))
		for range 1 + m.IntN(12) {
			fmt.Fprintf(&b, "    - '%s'\n", m.rule(section))
		}
		if m.IntN(2) == 0 { // alike, for sets and maps
			verdicts := []string{"allow", "drop", "reject"}[:1+m.IntN(3)]
			for i := range 4 + m.IntN(12) {
				fmt.Fprintf(&b, "    - '%s tcp/%d%s'\n", pick(m, verdicts...), 3000+i, pick(m, "", " ipv4"))
			}
		}
	}
	if m.IntN(2) == 0 {
		b.WriteString("nat:\n  - masquerade from lan out wan ipv4\n")
		if m.IntN(2) == 0 {
			b.WriteString("  - redirect tcp/8081 in wan to 10.20.0.5:81\n")
		}
	}
	return b.String()
}

func (m *maker) rule(section string) string {
	words := []string{
		pick(m, "allow", "allow", "drop", "reject"),
		pick(m, "ssh", "http", "dns", "tcp/20-25", "udp/1000-2000", "tcp", "udp", "icmp echo-request", "proto/47", "any", "[ssh, udp/53]"),
	}
	who := func() string {
		return pick(m, "office", "others", "not office", "noisy", "203.0.113.0/25", "[office, 192.0.2.7]", "lived", "not lived", "[lived, office]", "filled", "[filled, office]", "not [filled, lived]", fmt.Sprintf("192.0.2.%d", m.IntN(32)))
	}
	if section != "output" && m.IntN(2) == 0 {
		words = append(words, "from "+who())
	}
	if section != "input" && m.IntN(2) == 0 {
		words = append(words, "to "+who())
	}
	if section != "output" && m.IntN(4) == 0 {
		words = append(words, "in "+pick(m, "wan", "lan"))
	}
	switch limited := words[0] == "allow" && words[1] == "ssh" && m.IntN(3) == 0; {
	case limited && section == "output":
		words = append(words, "limit 10/second")
	case limited:
		words = append(words, pick(m, "limit 10/second", "limit 6/minute per source", "limit 6/minute per source then ban 1h widen", "max 9 connections", "max 3 connections per source"))
	}
	if m.IntN(12) == 0 {
		words = append(words, `log "a"`)
	}
	return strings.Join(words, " ")
}

// What ends by itself hides no rule, and is in no set or map of a pass.
func TestEndsAreNotFolded(t *testing.T) {
	m := newMaker(t)
	for _, rules := range []string{
		"    - drop any from lived\n    - allow ssh from 192.0.2.7\n    - allow http from 192.0.2.0/25\n",
		"    - allow ssh from lived\n    - allow ssh from 192.0.2.7\n    - allow ssh from 198.51.100.1\n    - allow ssh from 198.51.100.3\n",
		"    - allow ssh from not lived\n    - drop ssh from 192.0.2.7\n    - allow any from lived\n    - reject tcp/80 from 192.0.2.9\n",
	} {
		file := filepath.Join(t.TempDir(), "policy.yaml")
		text := "version: 1\nsets:\n  lived: { living: true }\ninput:\n  default: drop\n  rules:\n" + rules
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		what, err := addrset.ParseRange("192.0.2.0/24")
		if err != nil {
			t.Fatal(err)
		}
		p := compiled(t, file, []policy.Addition{{Set: "lived", What: what, Until: time.Unix(2_000_000_000, 0)}})
		proveRun(t, p, m.profile(p), map[string]int{})
		if rest := differ(ended(p), compiled(t, file, nil)); len(rest) > 0 {
			t.Errorf("when it has ended:\n%s\n%v", text, rest)
		}
	}
}
