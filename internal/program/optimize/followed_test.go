package optimize

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"sluice/internal/base/testseed"
	"sluice/internal/language/policy"
	"sluice/internal/language/resolve"
	"sluice/internal/program"
	"sluice/internal/program/compile"
	"sluice/internal/system/host"
)

// optimized is the program of a policy for a host.
func optimized(t *testing.T, p *policy.Policy, facts host.Facts) *program.Program {
	t.Helper()
	r, err := resolve.Resolve(p, resolve.Options{Facts: facts})
	if err != nil {
		t.Fatal(err)
	}
	out, err := compile.Compile(r)
	if err != nil {
		t.Fatal(err)
	}
	if err := Run(out, Options{}); err != nil {
		t.Fatal(err)
	}
	return out
}

// TestNothingRestsOnTheDefaultRoute: whichever interfaces default routes leave by when a
// policy is compiled, those that other zones name among them, the program is the same except
// for what the set holds that is edited in place. So no pass has used it.
func TestNothingRestsOnTheDefaultRoute(t *testing.T) {
	m := newMaker(t)
	asked := 0
	for range testseed.Rounds(20, 60) {
		text := strings.Replace(m.policy(), "{ interfaces: [eth0] }", "{ interfaces: [default-route] }", 1)
		p, err := policy.Parse("policy.yaml", []byte(text))
		if err != nil {
			t.Fatal(err)
		}
		var first string
		for i, route := range [][]string{{"eth0"}, {"lan0"}, {"lo"}, {"eth0", "eth1", "lan0"}, {"other"}} {
			facts := host.Facts{Known: true, DefaultRoute: route, EphemeralFrom: 32768, EphemeralTo: 60999}
			out := optimized(t, p, facts)
			if s := out.Set(program.DefaultRouteSet); s != nil {
				asked++
				if fmt.Sprint(s.Held().Names) != fmt.Sprint(route) {
					t.Errorf("the set holds %v, want %v", s.Held().Names, route)
				}
				s.Hold(program.Held{})
			}
			switch got := out.Text(); {
			case i == 0:
				first = got
			case got != first:
				t.Fatalf("with the default route by %v the program is another one\n%s\n--- first\n%s\n--- now\n%s", route, text, first, got)
			}
		}
	}
	if asked == 0 {
		t.Error("no policy asked for the default route")
	}
}

// TestNothingRestsOnWhoIsExempt: whoever is exempt from bans by limits when a policy is
// compiled, the program is the same except for what the set holds that is edited in place:
// nobody, addresses that the policy names, and thousands.
func TestNothingRestsOnWhoIsExempt(t *testing.T) {
	many := []netip.Addr{}
	for a, six := netip.MustParseAddr("198.18.0.0"), netip.MustParseAddr("2001:db8:5::"); len(many) < 8000; a, six = a.Next(), six.Next() {
		many = append(many, a, six)
	}
	address := netip.MustParseAddr
	for _, text := range []string{
		"input: { default: drop, rules: [allow udp/53 limit 6/30s per source then ban 10m, allow tcp/22 from 203.0.113.9 limit 6/30s per source then ban 10m] }",
		"ban: [203.0.113.0/24]\nnever-ban: [203.0.113.9, \"2001:db8::9\"]\ninput: { default: allow, rules: [drop udp/53 limit 6/30s per source then ban 10m, drop tcp from 203.0.113.9, drop tcp from 2001:db8::9] }\nforward: { default: drop, rules: [allow tcp/22 limit 6/30s per source then ban 10m, allow udp to 203.0.113.9] }\noutput: { default: allow, rules: [drop udp/53 to 203.0.113.9] }",
	} {
		p, err := policy.Parse("policy.yaml", []byte("version: 1\n"+text+"\n"))
		if err != nil {
			t.Fatal(err)
		}
		var first string
		for i, exempt := range [][]netip.Addr{nil, {address("203.0.113.9")}, {address("2001:db8::9")}, {address("192.0.2.1"), address("203.0.113.9"), address("2001:db8::9")}, many} {
			facts := host.Facts{Known: true, Gateways: exempt, EphemeralFrom: 32768, EphemeralTo: 60999}
			out := optimized(t, p, facts)
			s := out.Set(program.ExemptSet)
			if s == nil || len(s.Held().Addresses) != len(exempt) {
				t.Fatalf("the set does not hold the %d that are exempt: %v", len(exempt), s)
			}
			s.Hold(program.Held{})
			switch got := out.Text(); {
			case i == 0:
				first = got
			case got != first:
				t.Fatalf("with %d exempt the program is another one\n--- first\n%s\n--- now\n%s", len(exempt), first, got)
			}
		}
	}
}

// TestNothingRestsOnOwnAddresses: whichever addresses the host has when a policy is
// compiled, those that the policy names and thousands among them, the program is the same
// except for what the sets hold that are edited in place. Bans are the exception, which Rests
// reports: their sets are without the host's addresses.
func TestNothingRestsOnOwnAddresses(t *testing.T) {
	prefix := netip.MustParsePrefix
	many := []netip.Prefix{}
	for a, six := netip.MustParseAddr("198.18.0.0"), netip.MustParseAddr("2001:db8:5::"); len(many) < 8000; a, six = a.Next(), six.Next() {
		many = append(many, netip.PrefixFrom(a, 32), netip.PrefixFrom(six, 128))
	}
	for _, text := range []string{
		"nat: [redirect tcp/8080 in wan to 192.0.2.5:80, redirect tcp/8443 in wan to :443, \"redirect udp/53 in wan to [2001:db8:9::5]:53\", redirect tcp/8080 on 198.51.100.9 to 192.0.2.6:80]\ninput: { default: drop, rules: [allow tcp/443, allow tcp/8080 to 198.51.100.1] }\nforward: { default: drop, rules: [allow published tcp/8080 from 203.0.113.0/24, drop tcp to 198.51.100.1] }",
		"nat: [redirect tcp/8080 in wan to 192.0.2.5:80]\nforward: { default: drop, accelerate: true, rules: [allow tcp to 192.0.2.5] }",
	} {
		p, err := policy.Parse("policy.yaml", []byte("version: 1\nzones: { wan: { interfaces: [default-route] }, lan: { interfaces: [lan0] } }\n"+text+"\n"))
		if err != nil {
			t.Fatal(err)
		}
		var first string
		for i, own := range [][]netip.Prefix{nil, {prefix("198.51.100.1/32")}, {prefix("2001:db8::1/128"), prefix("198.51.100.9/32")}, {prefix("203.0.113.9/32")}, many} {
			facts := host.Facts{Known: true, DefaultRoute: []string{"eth0"}, Interfaces: []host.Interface{{Name: "eth0", Addresses: own}, {Name: "lan0"}}, EphemeralFrom: 32768, EphemeralTo: 60999}
			out := optimized(t, p, facts)
			s := out.Set(program.OwnSet("wan"))
			if s == nil || len(s.Held().Addresses) != len(own) {
				t.Fatalf("the set does not hold the %d addresses: %v", len(own), s)
			}
			for i := range out.Sets {
				if out.Sets[i].Life == program.Followed {
					out.Sets[i].Hold(program.Held{})
				}
			}
			switch got := out.Text(); {
			case i == 0:
				first = got
			case got != first:
				t.Fatalf("with %d addresses the program is another one\n--- first\n%s\n--- now\n%s", len(own), first, got)
			}
		}
	}
}
