package kerneltest

import (
	"net/netip"
	"slices"
	"testing"

	"sluice/internal/lab/testnet"
	"sluice/internal/system/kernel/conntrack"
)

// entries are those of the connection table of a namespace.
func entries(t *testing.T, s *testnet.Namespace) (out []conntrack.Entry) {
	t.Helper()
	err := s.Do(func() (err error) {
		out, err = conntrack.List()
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// mentions says whether an entry is of a connection from or to an address, before or
// after it was rewritten.
func mentions(e conntrack.Entry, a netip.Addr) bool {
	return slices.Contains([]netip.Addr{e.Original.Source, e.Original.Destination, e.Reply.Source, e.Reply.Destination}, a)
}

// openedTo is where an entry's flow was opened to.
func openedTo(e conntrack.Entry) netip.AddrPort {
	return at(e.Original.Destination, e.Original.DestinationPort)
}

// untracked fails when an entry of the table has one of the ports.
func untracked(ports ...uint16) func(*testing.T, *town) {
	return func(t *testing.T, c *town) {
		t.Helper()
		for _, e := range entries(t, c.host) {
			for _, port := range []uint16{e.Original.SourcePort, e.Original.DestinationPort, e.Reply.SourcePort, e.Reply.DestinationPort} {
				if slices.Contains(ports, port) {
					t.Errorf("port %d should not be tracked: %+v", port, e)
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
			after: untracked(80, 443),
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
				for _, e := range entries(t, c.host) {
					for _, v6 := range []bool{false, true} {
						if openedTo(e) == at(place("second", v6), 80) {
							t.Errorf("an endpoint is tracked: %+v", e)
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
			after: untracked(80),
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
				mustSend(t, c.street, testnet.TCP(from, at(place("host", v6), 80), "SF"))
				_, seen := delivered.Wait(patience(word == "allow"), testnet.From(from.Addr()))
				if seen != (word == "allow") {
					t.Errorf("IPv6 %t: delivered %t under invalid: %s", v6, seen, word)
				}
			}
		})
	}
}
