package kerneltest

import (
	"net/netip"
	"strconv"
	"strings"
	"testing"

	"sluice/internal/lab/testnet"
)

// entry is one line of the connection table.
type entry string

func (e entry) mentions(a netip.Addr) bool {
	for _, word := range strings.Fields(string(e)) {
		if _, value, ok := strings.Cut(word, "="); ok {
			if have, err := netip.ParseAddr(value); err == nil && have == a {
				return true
			}
		}
	}
	return false
}

// to is where the flow was opened to.
func (e entry) to() netip.AddrPort {
	var a netip.Addr
	for _, word := range strings.Fields(string(e)) {
		switch name, value, _ := strings.Cut(word, "="); name {
		case "dst":
			a, _ = netip.ParseAddr(value)
		case "dport":
			port, _ := strconv.ParseUint(value, 10, 16)
			return netip.AddrPortFrom(a, uint16(port))
		}
	}
	return netip.AddrPort{}
}

// conntrack lists the connection table of a namespace.
func conntrack(t *testing.T, s *testnet.Namespace) (out []entry) {
	t.Helper()
	text, err := s.Run("cat", "/proc/net/nf_conntrack")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(text) {
		out = append(out, entry(strings.TrimSpace(line)))
	}
	return out
}

// untracked fails when an entry of the table has one of the ports.
func untracked(ports ...string) func(*testing.T, *town) {
	return func(t *testing.T, c *town) {
		t.Helper()
		for _, e := range conntrack(t, c.host) {
			for _, port := range ports {
				if strings.Contains(string(e), "port="+port+" ") {
					t.Errorf("port %s should not be tracked: %s", port, e)
				}
			}
		}
	}
}

func TestWordsOfTracking(t *testing.T) {
	runWords(t, []wordTest{
		{
			name: "bypass: a service without state, and its rules",
			policy: `
services: { web: [tcp/80, tcp/443, udp/443] }
sets: { office: [203.0.113.0/24, "2001:db8:77::/48"] }
tracking: { bypass: [web] }
input:
  default: drop
  rules:
    - allow web from office
    - allow ssh
output:
  default: drop
  rules:
    - allow dns
`,
			tries: `
				office > host tcp/80    = answered
				office > host udp/443   = answered
				stranger > host tcp/80  = silent
				stranger > host udp/443 = silent
				stranger > host tcp/22  = answered
				host > stranger udp/53  = answered
				host > stranger tcp/80  = silent
				host > host tcp/80      = answered
			`,
			after: untracked("80", "443"),
		},
		{
			name: "bypass leaves the host's own connections to such ports alone",
			policy: `
tracking: { bypass: [http, https, http3] }
input: { default: drop, rules: [allow http] }
`,
			tries: `
				host > stranger tcp/80    = answered
				host > stranger tcp/443   = answered
				host > stranger udp/443   = answered
				inside > stranger tcp/80  = answered
				stranger > inside udp/443 = answered
				stranger > host tcp/80    = answered
				stranger > host tcp/443   = silent
			`,
		},
		{
			name: "bypass to endpoints",
			policy: `
services: { web: [tcp/80, tcp/443] }
sets:
  listeners: { endpoints: ["198.51.100.9 tcp/80", "[2001:db8:100::9] tcp/80"] }
tracking:
  bypass: [web to listeners]
input: { default: drop, rules: [allow web] }
`,
			tries: `
				stranger > second tcp/80  = answered
				stranger > host tcp/80    = answered
				stranger > second tcp/443 = answered
			`,
			after: func(t *testing.T, c *town) {
				for _, e := range conntrack(t, c.host) {
					for _, v6 := range []bool{false, true} {
						if e.to() == at(place("second", v6), 80) {
							t.Errorf("an endpoint is tracked: %s", e)
						}
					}
				}
			},
		},
		{
			name: "reject on a bypassed service: the reset passes output",
			policy: `
tracking: { bypass: [http] }
input:
  default: drop
  rules: [reject http]
output: { default: drop }
`,
			tries: `stranger > host tcp/80 = reset`,
			after: untracked("80"),
		},
		{
			name: "a closed port of a bypassed service answers by itself",
			policy: `
tracking: { bypass: [tcp/81] }
input: { default: drop, rules: [allow tcp/81] }
output: { default: drop }
`,
			tries: `stranger > host tcp/81 = reset`,
		},
		{
			name: "limits on a bypassed service count packets",
			policy: `
tracking: { bypass: [udp/443] }
input: { default: drop, rules: [allow udp/443 limit 3/hour per source] }
`,
			ordered: true,
			tries:   `stranger > host udp/443 x5 = answered*3, silent`,
		},
		{
			name: "the tracking table: time-outs",
			policy: `
tracking:
  table: { timeouts: { tcp-time-wait: 31s } }
input: { default: drop, rules: [allow http] }
`,
			tries: `stranger > host tcp/80 = answered`,
		},
	})
}

// What is invalid is dropped before the rules, or meets them when the policy
// says so.
func TestWordInvalid(t *testing.T) {
	for _, word := range []string{"drop", "allow"} {
		t.Run(word, func(t *testing.T) {
			c := newTown(t)
			apply(t, c.host, "tracking: { invalid: "+word+" }\ninput: { default: drop, rules: [allow tcp/80] }\n")
			for _, v6 := range []bool{false, true} {
				delivered := c.host.Delivered(6, v6)
				from := at(place("stranger", v6), 7777)
				// An ACK with neither flow nor sense: SYN and FIN together.
				if err := c.street.Send(testnet.TCP(from, at(place("host", v6), 80), "SF")); err != nil {
					t.Fatal(err)
				}
				_, seen := delivered.Wait(short, testnet.From(from.Addr()))
				if seen != (word == "allow") {
					t.Errorf("IPv6 %t: delivered %t under invalid: %s", v6, seen, word)
				}
			}
		})
	}
}
