package engine

import (
	"fmt"
	"net/netip"
	"testing"

	"sluice/internal/base/addrset"
	"sluice/internal/language/policy"
)

// A packet has the sets of its line that held it, and the name that the policy has for its
// service alone.
func TestSays(t *testing.T) {
	p, err := policy.LoadData("p.yaml", []byte(`version: 1
sets: { a: [192.0.2.0/25], b: [192.0.2.128/25], c: [192.0.2.0/24] }
zones: { lan: { interfaces: [lan0] } }
services: { shop: [tcp/80, tcp/8080-8090], http: tcp/81, echo: icmp echo-request }
input:
  default: drop
  rules:
    - drop any from a to c log
    - drop any from [b, c, lan, 198.51.100.1] log
    - drop any from not a log
    - drop any from [a, lan] log
    - drop any log
`))
	if err != nil {
		t.Fatal(err)
	}
	asked := 0
	s := saysOf(p, func() map[string]addrset.Set {
		asked++
		out := map[string]addrset.Set{}
		for name, text := range map[string]string{"a": "192.0.2.0/25", "b": "192.0.2.128/25", "c": "192.0.2.0/24"} {
			r, err := addrset.ParseRange(text)
			if err != nil {
				t.Fatal(err)
			}
			out[name] = addrset.Of(r)
		}
		return out
	})
	for line, want := range map[int]string{8: "[a c]", 9: "[b c]", 10: "[]", 11: "[]", 12: "[]", 13: "[]"} {
		l := &Logged{Source: netip.MustParseAddr("192.0.2.200"), Destination: netip.MustParseAddr("192.0.2.9")}
		if got := fmt.Sprint(s.sets(l, policy.Pos{File: "p.yaml", Line: line, Column: 7})); got != want {
			t.Errorf("line %d: %s, want %s", line, got, want)
		}
	}
	if asked != 1 {
		t.Errorf("sets are resolved %d times", asked)
	}
	if got := fmt.Sprint(len(s.choices())); got != "3" {
		t.Errorf("%s names are next to others, want 3", got)
	}
	unknown := saysOf(p, func() map[string]addrset.Set { return nil })
	if got := unknown.sets(&Logged{Source: netip.MustParseAddr("192.0.2.200")}, policy.Pos{File: "p.yaml", Line: 9, Column: 7}); len(got) > 0 {
		t.Errorf("of sets that are not known %s had it", got)
	}
	for want, l := range map[string]Logged{
		"shop": {Protocol: "tcp", Port: 80}, "http": {Protocol: "tcp", Port: 81}, "ssh": {Protocol: "tcp", Port: 22},
		"echo": {Protocol: "icmpv6", ICMP: "128/0"}, "": {Protocol: "tcp", Port: 8081}, "dns": {Protocol: "udp", Port: 53},
	} {
		if got := s.service(&l); got != want {
			t.Errorf("%s is called %q, want %q", l.Service(), got, want)
		}
	}
	for _, l := range []Logged{{Protocol: "icmp", ICMP: "3/1"}, {Protocol: "esp"}, {}} {
		if got := s.service(&l); got != "" {
			t.Errorf("%s is called %q", l.Service(), got)
		}
	}
}
