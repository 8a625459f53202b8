package compile_test

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	"sluice/internal/language/policy"
	"sluice/internal/language/resolve"
	"sluice/internal/program"
	"sluice/internal/program/compile"
	"sluice/internal/system/host"
)

// TestBypassAsksForRoute: the routing table is asked whether an address is this
// host's unless that is known, and stays so. Of what the host itself sends there it
// always is: an address that moves to another host is asked for from here too.
func TestBypassAsksForRoute(t *testing.T) {
	own := host.Facts{Known: true, DefaultRoute: []string{"eth0"}, EphemeralFrom: 32768, EphemeralTo: 60999, Local: []netip.Prefix{
		netip.MustParsePrefix("198.51.100.1/32"), netip.MustParsePrefix("2001:db8::1/128"), netip.MustParsePrefix("198.51.100.64/26"),
	}}
	with := func(change func(*host.Facts)) host.Facts {
		f := own
		change(&f)
		return f
	}
	here := "web to 198.51.100.1"
	for _, test := range []struct {
		name, bypass string
		facts        host.Facts
		asks         bool
	}{
		{"an address", here, own, false},
		{"a prefix that is the host's", "web to 198.51.100.64/27", own, false},
		{"a set", "web to ours", own, false},
		{"endpoints", "web to listeners", own, false},
		{"any address", "web", own, true},
		{"another's address", "web to [198.51.100.1, 198.51.100.2]", own, true},
		{"addresses of which one is another's", "web to mixed", own, true},
		{"endpoints of which one is another's", "web to others", own, true},
		{"a list that is edited in place", "web to counted", own, true},
		{"a host that is not known", here, with(func(f *host.Facts) { f.Known = false }), true},
		{"a host that forwards IPv4", here, with(func(f *host.Facts) { f.Forwarding4 = true }), true},
		{"a host that forwards IPv6", here, with(func(f *host.Facts) { f.Forwarding6 = true }), true},
		{"addresses that move between hosts", here, with(func(f *host.Facts) { f.NonLocalBind = true }), true},
		{"forwarding that could not be read", here, with(func(f *host.Facts) { f.ForwardingUnread = true }), true},
		{"a bridge", here, with(func(f *host.Facts) { f.Interfaces = []host.Interface{{Name: "lo"}, {Name: "br0", Kind: "bridge"}} }), true},
		{"local routes that could not be read", here, with(func(f *host.Facts) { f.Local = nil }), true},
	} {
		t.Run(test.name, func(t *testing.T) {
			p, err := policy.Parse("policy.yaml", []byte(`version: 1
sets:
  ours: [198.51.100.1, "2001:db8::1"]
  mixed: [198.51.100.1, "2001:db8::2"]
  counted: {addresses: [198.51.100.1], counters: true}
  listeners: {endpoints: ["198.51.100.1 tcp/80", "[2001:db8::1] tcp/80"]}
  others: {endpoints: ["198.51.100.1 tcp/80", "198.51.100.2 tcp/80"]}
services: {web: tcp/80}
tracking: {bypass: ['`+test.bypass+`']}
input: {default: drop, rules: [allow web]}
`))
			if err != nil {
				t.Fatal(err)
			}
			r, err := resolve.Resolve(p, resolve.Options{Facts: test.facts})
			if err != nil {
				t.Fatal(err)
			}
			compiled, err := compile.Compile(r)
			if err != nil {
				t.Fatal(err)
			}
			for _, chain := range []string{"prerouting_raw", "output_raw"} {
				rules := 0
				for _, rule := range compiled.Chain(chain).Rules {
					if !strings.HasPrefix(rule.Comment, "bypass") {
						continue
					}
					rules++
					got := slices.ContainsFunc(rule.Match, func(c program.Condition) bool {
						return c.Field == program.SourceType || c.Field == program.DestinationType
					})
					sentThere := chain == "output_raw" && slices.ContainsFunc(rule.Match, func(c program.Condition) bool {
						return c.Field == program.Port || slices.Contains(c.SetKey, program.Port)
					})
					if want := test.asks || sentThere; got != want {
						t.Errorf("chain %s: %v: asks for the route: %v, want %v", chain, rule.Match, got, want)
					}
				}
				if rules == 0 {
					t.Errorf("chain %s has no rule of the bypass", chain)
				}
			}
		})
	}
}

// TestAnswersOfBypassedPortsAlone: a rule of input about more than what bypasses
// tracking says nothing about answers from its other ports.
func TestAnswersOfBypassedPortsAlone(t *testing.T) {
	p, err := policy.Parse("policy.yaml", []byte(`version: 1
tracking: {bypass: [tcp/80, tcp/900-2000]}
input: {default: drop, rules: [allow tcp/1-1000, reject http]}
output: {default: drop, rules: [allow dns]}
`))
	if err != nil {
		t.Fatal(err)
	}
	r, err := resolve.Resolve(p, resolve.Options{})
	if err != nil {
		t.Fatal(err)
	}
	compiled, err := compile.Compile(r)
	if err != nil {
		t.Fatal(err)
	}
	var got []program.NumberRange
	for _, rule := range compiled.Chain("output_answers").Rules {
		for _, c := range rule.Match {
			if c.Field == program.SourcePort {
				got = append(got, c.Numbers...)
			}
		}
	}
	if want := []program.NumberRange{{From: 80, To: 80}, {From: 900, To: 1000}, {From: 80, To: 80}}; !slices.Equal(got, want) {
		t.Errorf("answers from ports %v, want %v", got, want)
	}
}
