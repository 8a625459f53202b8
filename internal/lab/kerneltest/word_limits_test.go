package kerneltest

import (
	"net/netip"
	"strings"
	"testing"
	"time"

	"sluice/internal/lab/testnet"
)

func TestWordsOfLimits(t *testing.T) {
	runWords(t, []wordTest{
		{
			name: "limit for all sources together",
			policy: `
input:
  default: drop
  rules:
    - allow http limit 3/hour
    - allow udp/53 limit 1/hour burst 4
`,
			ordered: true,
			tries: `
				office > host tcp4/80 x2   = answered
				stranger > host tcp4/80 x3 = answered, silent
				stranger > host tcp6/80    = silent
				office > host udp6/53 x6   = answered*4, silent
			`,
		},
		{
			name: "limit per source, IPv6 by /64",
			policy: `
input:
  default: drop
  rules:
    - allow ssh limit 3/minute per source
    - reject https limit 2/hour per source
`,
			ordered: true,
			tries: `
				office > host tcp/22 x5    = answered*3, silent
				stranger > host tcp/22 x4  = answered*3, silent
				office2 > host tcp/22 x4   = answered*3, silent
				stranger > host tcp/443 x3 = reset*2, silent
			`,
			after: func(t *testing.T, c *town) {
				// another address of the same /64 shares the bucket
				from := netip.MustParseAddr("2001:db8:77:0:1::9")
				r := c.outside.TryTCP(testnet.TCPTry{From: at(from, 0), To: at(place("host", true), 22), Patience: short})
				if r.Outcome != testnet.Silent {
					t.Errorf("another address of a /64 that is over its limit: %v", r)
				}
			},
		},
		{
			name: "over the limit the next rules decide",
			policy: `
input:
  default: drop
  rules:
    - allow http limit 2/hour per source
    - reject http
`,
			ordered: true,
			tries:   `stranger > host tcp/80 x4 = answered*2, reset`,
		},
		{
			name: "limit counts flows, not their packets",
			policy: `
input:
  default: drop
  rules:
    - allow http limit 2/hour per source
`,
			tries: `office > host tcp/80 = answered`,
			after: func(t *testing.T, c *town) {
				conn := c.open(t, "stranger", "host", 80, false, "")
				for range 20 {
					if r := conn.Exchange("more", enough); r.Outcome != testnet.Answered {
						t.Fatalf("within a connection: %v", r)
					}
				}
			},
		},
		{
			name: "a limit of echo requests counts each, of one flow too",
			policy: `
input:
  default: drop
  rules:
    - allow icmp echo-request limit 5/hour
`,
			tries: `host > host tcp/80 = answered`,
			after: func(t *testing.T, c *town) {
				to := netip.MustParseAddr("198.51.100.1")
				answered := 0
				for i := range 12 {
					if r := c.outside.TryEcho(testnet.EchoTry{From: place("office", false), To: to, ID: 4711, Sequence: uint16(i), Patience: patience(i < 5)}); r.Outcome == testnet.Answered {
						answered++
					}
				}
				if answered != 5 {
					t.Errorf("%d of 12 echo requests with one id were answered, want 5", answered)
				}
			},
		},
		{
			name: "then ban: every packet of the source, for the time",
			policy: `
never-ban: [office]
sets:
  office: [203.0.113.0/24, "2001:db8:77::/48"]
input:
  default: drop
  rules:
    - allow ssh limit 3/hour per source then ban 10m
    - allow http
`,
			ordered: true,
			tries: `
				stranger > host tcp/80    = answered
				stranger > host tcp/22 x3 = answered
				stranger > host tcp/80    = answered
				stranger > host tcp/22    = silent
				stranger > host tcp/80    = silent
				villain > host tcp/80     = answered
				office > host tcp/22 x5   = answered*3, silent
				office > host tcp/80      = answered
			`,
		},
		{
			// A set so large that it is laid out in chains has to spare anyway.
			name: "then ban: not who is in a large set of those that are never banned",
			policy: `
sets:
  italy: { countries: [IT] }
  regulars: { union: [italy, office] }
  office: [203.0.113.7, "2001:db8:77::/48"]
never-ban: [regulars]
input:
  default: drop
  rules:
    - allow ssh limit 2/hour per source then ban 10m
    - allow http
`,
			ordered: true,
			tries: `
				office > host tcp/22 x3   = answered*2, silent
				office > host tcp/80      = answered
				stranger > host tcp/22 x3 = answered*2, silent
				stranger > host tcp/80    = silent
			`,
		},
		{
			name: "a ban ends",
			policy: `
input:
  default: drop
  rules:
    - allow ssh limit 2/hour per source then ban 2s
    - allow http
`,
			ordered: true,
			tries: `
				stranger > host tcp/22 x3 = answered*2, silent
				stranger > host tcp/80    = silent
			`,
			after: func(t *testing.T, c *town) {
				deadline := time.Now().Add(enough)
				for time.Now().Before(deadline) {
					if c.once(attempt{from: "stranger", to: "host", proto: "tcp", port: 80}, want{}).Outcome == testnet.Answered {
						return
					}
				}
				t.Error("the ban of two seconds did not end")
			},
		},
		{
			name: "max connections per source and of all",
			policy: `
input:
  default: drop
  rules:
    - allow smtp max 2 connections per source
    - reject smtp
    - allow http max 3 connections
`,
			tries: `host > host tcp/25 = answered`,
			after: func(t *testing.T, c *town) {
				for _, v6 := range []bool{false, true} {
					open := func(from string, port uint16, expected testnet.Outcome) *testnet.Conn {
						t.Helper()
						r, conn := c.outside.OpenTCP(testnet.TCPTry{From: at(place(from, v6), 0), To: at(place("host", v6), port), Patience: patience(expected != testnet.Silent)})
						if r.Outcome != expected {
							t.Errorf("from %s to port %d, IPv6 %t: %v, want %v", from, port, v6, r, expected)
						}
						return conn
					}
					first, second := open("stranger", 25, testnet.Answered), open("stranger", 25, testnet.Answered)
					open("stranger", 25, testnet.Reset)
					if conn := open("office", 25, testnet.Answered); conn != nil {
						defer conn.Close()
					}
					if first != nil && second != nil {
						defer second.Close()
						first.Close()
						again := testnet.TCPTry{From: at(place("stranger", v6), 0), To: at(place("host", v6), 25), Patience: enough}
						if err := eventually(func() error { return c.outside.TryTCP(again).Error() }); err != nil {
							t.Errorf("IPv6 %t: a connection after another one has ended: %v", v6, err)
						}
					}
				}
				var open []*testnet.Conn
				for i := range 5 {
					_, conn := c.outside.OpenTCP(testnet.TCPTry{From: at(place([]string{"office", "stranger"}[i%2], i > 2), 0), To: at(place("host", i > 2), 80), Patience: patience(i < 3)})
					if conn != nil {
						open = append(open, conn)
					}
				}
				for _, conn := range open {
					defer conn.Close()
				}
				if len(open) != 3 {
					t.Errorf("%d connections of five stand under max 3", len(open))
				}
			},
		},
		{
			name: "log writes and does not decide",
			policy: `
input:
  default: drop log "the default"
  rules:
    - allow http log "web"
    - reject smtp log
`,
			tries: `
				stranger > host tcp/80 x20 = answered
				stranger > host tcp/25 x20 = reset
				stranger > host tcp/22     = silent
			`,
			after: func(t *testing.T, c *town) {
				// Only the first namespace writes to the kernel's log, so the
				// rules have to do.
				rules := c.host.MustRun("nft", "list", "table", "inet", "sluice")
				for _, prefix := range []string{"the default", "web"} {
					if !strings.Contains(rules, "log prefix \"sluice "+prefix+": \"") {
						t.Errorf("nothing logs with the prefix %q:\n%s", prefix, rules)
					}
				}
				for line := range strings.Lines(rules) {
					if strings.Contains(line, "log prefix") && !strings.Contains(line, "limit rate") {
						t.Errorf("a log without limit: %s", line)
					}
				}
			},
		},
	})
}

func TestWordsOfBans(t *testing.T) {
	const bans = `
sets:
  banned: [192.0.2.66, "2001:db8:bad::/48", 203.0.113.0/29]
  friends: [203.0.113.7, "2001:db8:bad::77"]
ban: [banned]
never-ban: [friends]
`
	runWords(t, []wordTest{
		{
			name:   "from and to the address, on all hooks, in policed and other sections",
			policy: bans + "input: { default: drop, rules: [allow http] }\n",
			tries: `
				villain > host tcp/80    = silent
				villain > host ping      = silent
				villain > inside tcp/80  = silent
				host > villain tcp/80    = silent
				inside > villain udp/53  = silent
				stranger > host tcp/80   = answered
				office > host tcp/80     = answered
				stranger > inside tcp/80 = answered
				host > stranger tcp/80   = answered
				host > host tcp/80       = answered
			`,
		},
		{
			name:   "a ban alone, with no section",
			policy: bans,
			tries: `
				villain > host tcp/80  = silent
				host > villain udp/53  = silent
				stranger > host tcp/22 = answered
				office > host tcp/22   = answered
			`,
		},
		{
			name: "a counter for each element",
			policy: `
sets:
  banned: { addresses: [192.0.2.66, "2001:db8:bad::66", 192.0.2.128/25], counters: true }
ban: [banned]
`,
			tries: `
				villain > host tcp/80  = silent
				stranger > host tcp/80 = answered
			`,
			after: func(t *testing.T, c *town) {
				out, err := c.host.Run("nft", "list", "table", "inet", "sluice")
				if err != nil {
					t.Fatal(err)
				}
				for _, address := range []string{"192.0.2.66", "2001:db8:bad::66"} {
					_, rest, found := strings.Cut(out, address+" counter packets ")
					if !found || strings.HasPrefix(rest, "0 ") {
						t.Errorf("%s has no counter, or it is zero:\n%s", address, out)
					}
				}
			},
		},
		{
			name:   "existing flows too",
			policy: "input: { default: drop, rules: [allow http] }\n",
			tries:  `villain > host tcp/80 = answered`,
			after: func(t *testing.T, c *town) {
				conn := c.open(t, "villain", "host", 80, false, "before")
				apply(t, c.host, bans+"input: { default: drop, rules: [allow http] }\n")
				if r := conn.Exchange("after", short); r.Outcome != testnet.Silent {
					t.Errorf("a banned address goes on with its connection: %v", r)
				}
			},
		},
		{
			name:   "existing flows through the host, accelerated or not",
			policy: "forward: { default: drop, accelerate: true, rules: [allow http] }\n",
			tries:  `inside > villain tcp/80 = answered`,
			after: func(t *testing.T, c *town) {
				conns := []*testnet.Conn{c.open(t, "inside", "villain", 80, false, "before"), c.open(t, "inside", "villain", 80, true, "before")}
				apply(t, c.host, bans+"forward: { default: drop, accelerate: true, rules: [allow http] }\n")
				for i, conn := range conns {
					if r := conn.Exchange("after", short); r.Outcome != testnet.Silent {
						t.Errorf("IPv%d: a connection to a banned address goes on: %v", 4+2*i, r)
					}
				}
			},
		},
		{
			name: "an address behind NAT: before and after the rewriting",
			policy: `
zones: { wan: { interfaces: [default-route] } }
sets: { closed: [10.20.0.6] }
ban: [closed]
nat:
  - redirect tcp/8080 in wan to 10.20.0.6:80
  - redirect tcp/9000 in wan to 10.20.0.5:80
`,
			tries: `
				stranger > host tcp4/8080   = silent
				stranger > host tcp4/9000   = answered
				stranger > inside2 tcp4/80  = silent
				inside2 > stranger tcp4/80  = silent
			`,
		},
	})
}
