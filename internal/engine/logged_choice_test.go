package engine

import (
	"net/netip"
	"testing"

	"sluice/internal/language/policy"
)

func TestLoggedIsOfService(t *testing.T) {
	ask := (&policy.Policy{}).Asking()
	for _, c := range []struct {
		service string
		of      Logged
		want    bool
	}{
		{"ssh", Logged{Protocol: "tcp", Port: 22}, true},
		{"ssh", Logged{Protocol: "udp", Port: 22}, false},
		{"[http, https]", Logged{Protocol: "tcp", Port: 443}, true},
		{"tcp/1000-2000", Logged{Protocol: "tcp", Port: 2000}, true},
		{"tcp/1000-2000", Logged{Protocol: "tcp"}, false}, // cut off, or a later fragment
		{"tcp", Logged{Protocol: "tcp"}, true},
		{"icmp", Logged{Protocol: "icmp", ICMP: "8/0"}, true},
		{"icmp", Logged{Protocol: "icmpv6", ICMP: "128/0"}, true},
		{"icmp echo-request", Logged{Protocol: "icmp", ICMP: "8/0"}, true},
		{"icmp echo-request", Logged{Protocol: "icmpv6", ICMP: "128/0"}, true},
		{"icmp echo-request", Logged{Protocol: "icmp", ICMP: "81/0"}, false},
		{"icmp echo-request", Logged{Protocol: "icmp"}, false},
		{"any", Logged{Protocol: "gre"}, true},
	} {
		services, err := ask.Services("--service", c.service)
		if err != nil {
			t.Fatal(err)
		}
		got := services == nil
		for _, s := range services {
			for _, m := range s.Matches {
				got = got || c.of.is(m)
			}
		}
		if got != c.want {
			t.Errorf("%s: %+v is %v", c.service, c.of, got)
		}
	}
}

func TestChosenLine(t *testing.T) {
	l := &Logged{File: "/etc/sluice/vms/a.yaml", Line: 7, Source: netip.MustParseAddr("192.0.2.7")}
	for line, want := range map[string]bool{"7": true, "a.yaml:7": true, "vms/a.yaml:7": true, "/etc/sluice/vms/a.yaml:7": true, ":7": true, "b.yaml:7": false, "yaml:7": false, "8": false} {
		c, err := LogChoice{Line: line}.of(nil)
		if err != nil || c.has(l) != want {
			t.Errorf("%s: %v %v", line, c.has(l), err)
		}
	}
	for _, line := range []string{"a.yaml", "a.yaml:", "a.yaml:0", "a.yaml:-1", "a.yaml:x"} {
		if _, err := (LogChoice{Line: line}).of(nil); err == nil {
			t.Errorf("%s is taken", line)
		}
	}
	for source, want := range map[string]bool{"192.0.2.7": true, "192.0.2.0/24": true, "192.0.2.1-192.0.2.9": true, "2001:db8::/32": false} {
		c, err := LogChoice{Source: source}.of(nil)
		if err != nil || c.has(l) != want {
			t.Errorf("%s: %v %v", source, c.has(l), err)
		}
	}
}
