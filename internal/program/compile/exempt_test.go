package compile

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	"sluice/internal/language/policy"
	"sluice/internal/language/resolve"
	"sluice/internal/program"
	"sluice/internal/system/host"
)

// TestExemptFromBansByLimits: who is logged in, routers and name servers are banned by
// no limit, in both families. They are in a set that follows the host, and nowhere else,
// and every rule that asks who is banned by a limit asks it too.
func TestExemptFromBansByLimits(t *testing.T) {
	compiled := func(facts host.Facts) *program.Program {
		t.Helper()
		p, err := policy.Parse("policy.yaml", []byte("version: 1\nnever-ban: [192.0.2.7]\ninput: { default: drop, rules: [allow udp/53 limit 6/30s per source then ban 10m] }\n"))
		if err != nil {
			t.Fatal(err)
		}
		facts.Known = true
		out, err := Compile(&resolve.Resolved{Policy: p, Facts: facts})
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
	address := netip.MustParseAddr
	exempt := []netip.Addr{address("203.0.113.9"), address("2001:db8:9::9"), address("198.51.100.254"), address("2001:db8:100::fe"), address("192.0.2.53"), address("2001:db8::53")}
	p := compiled(host.Facts{
		SSHClients: []host.SSHClient{{Remote: netip.AddrPortFrom(exempt[0], 40000)}, {Remote: netip.AddrPortFrom(exempt[1], 40000)}},
		Gateways:   append(exempt[2:4:4], address("fe80::1")), Resolvers: append(exempt[4:6:6], address("127.0.0.53")),
	})
	set := p.Set(program.ExemptSet)
	if set == nil || set.Life != program.Followed {
		t.Fatalf("who is exempt is not in a set that follows the host: %v", set)
	}
	slices.SortFunc(exempt, netip.Addr.Compare)
	if got := set.Held().Addresses; !slices.Equal(got, exempt) {
		t.Errorf("exempt is %v, want %v", got, exempt)
	}
	never := p.Set(neverBanSet)
	for _, a := range exempt {
		if never.Addresses.Contains(a) {
			t.Errorf("%s is in a set that stays when the host changes", a)
		}
	}
	if !never.Addresses.Contains(address("192.0.2.7")) {
		t.Error("a limit bans what never-ban names")
	}
	asked := 0
	for _, c := range p.Chains {
		for _, r := range c.Rules {
			for _, m := range r.Match {
				if m.Set != limitBanned {
					continue
				}
				asked++
				if !slices.ContainsFunc(r.Match, func(o program.Condition) bool { return o.Set == program.ExemptSet && o.Not && o.Field == m.Field }) {
					t.Errorf("chain %s asks who is banned by a limit and not who is exempt", c.Name)
				}
			}
		}
	}
	if asked == 0 {
		t.Error("nothing asks who is banned by a limit")
	}
	set.Hold(program.Held{})
	if other := compiled(host.Facts{}); strings.TrimSpace(p.Text()) != strings.TrimSpace(other.Text()) {
		t.Errorf("the host of the moment is in the program:\n%s\n--- without\n%s", p.Text(), other.Text())
	}
}
