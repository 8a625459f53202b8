package kerneltest

import (
	"testing"

	"golang.org/x/sys/unix"

	"sluice/internal/lab/testnet"
)

const office = `
sets:
  office: [203.0.113.0/24, "2001:db8:77::/48"]
`

func TestWordsOfRules(t *testing.T) {
	runWords(t, []wordTest{
		{
			name: "a section that is left out is not policed",
			policy: `
input: { default: drop }
`,
			tries: `
				stranger > host tcp/80   = silent
				stranger > inside tcp/80 = answered
				host > stranger tcp/80   = answered
				inside > stranger udp/53 = answered
			`,
		},
		{
			name: "default drop, allow by built-in service",
			policy: `
input:
  default: drop
  rules:
    - allow http
    - allow dns
`,
			tries: `
				stranger > host tcp/80  = answered
				stranger > host tcp/53  = answered
				stranger > host udp/53  = answered
				stranger > host udp/80  = silent
				stranger > host tcp/443 = silent
				stranger > host udp/443 = silent
				stranger > host ping    = silent
				host > stranger tcp/443 = answered
				host > stranger udp/443 = answered
				host > stranger ping    = answered
				host > host tcp/443     = answered
			`,
		},
		{
			name: "default reject",
			policy: `
input:
  default: reject
  rules: [allow http]
`,
			tries: `
				stranger > host tcp/80  = answered
				stranger > host tcp/443 = reset
				stranger > host udp/443 = unreachable
				stranger > host ping4   = unreachable
			`,
		},
		{
			name: "default allow, drop and reject by rule",
			policy: `
input:
  default: allow
  rules:
    - drop tcp/80
    - reject tcp/443
    - reject udp/443
    - drop udp/53 ipv6
    - reject tcp/22 ipv4
    - reject ping
`,
			tries: `
				stranger > host tcp/25  = answered
				stranger > host tcp/80  = silent
				stranger > host tcp/443 = reset
				stranger > host udp/443 = unreachable
				stranger > host udp4/53 = answered
				stranger > host udp6/53 = silent
				stranger > host tcp4/22 = reset
				stranger > host tcp6/22 = answered
				stranger > host ping    = unreachable
			`,
		},
		{
			name: "the first rule that matches decides",
			policy: office + `
input:
  default: drop
  rules:
    - drop tcp/80 from office
    - allow tcp/80
    - drop tcp/80
`,
			tries: `
				office > host tcp/80   = silent
				stranger > host tcp/80 = answered
			`,
		},
		{
			name: "from a set, a prefix, a range, not, and a list",
			policy: office + `
input:
  default: drop
  rules:
    - allow tcp/22 from office
    - allow tcp/25 from 203.0.113.0/29
    - allow tcp/53 from 203.0.113.5-203.0.113.7
    - allow tcp/80 from not office
    - allow tcp/443 from [192.0.2.7, 2001:db8:77:1::/64]
    - allow udp/53 from not [203.0.113.8, 2001:db8:99::/48]
`,
			tries: `
				office > host tcp/22     = answered
				stranger > host tcp/22   = silent
				office > host tcp4/25    = answered
				office2 > host tcp4/25   = silent
				office > host tcp6/25    = silent
				office > host tcp4/53    = answered
				office2 > host tcp4/53   = silent
				office > host tcp/80     = silent
				stranger > host tcp/80   = answered
				stranger > host tcp4/443 = answered
				office2 > host tcp4/443  = silent
				office2 > host tcp6/443  = answered
				stranger > host tcp6/443 = silent
				office > host udp/53     = answered
				office2 > host udp4/53   = silent
				office2 > host udp6/53   = answered
				stranger > host udp4/53  = answered
				stranger > host udp6/53  = silent
			`,
		},
		{
			name: "sets: union and except",
			policy: `
sets:
  office: [203.0.113.0/24, "2001:db8:77::/48"]
  strangers: [192.0.2.0/24, "2001:db8:99::/48"]
  bad: [203.0.113.8, "2001:db8:77:1::/64"]
  served: { union: [office, strangers], except: [bad] }
  plain: { addresses: [192.0.2.0/24], except: [bad] }
input:
  default: drop
  rules:
    - allow tcp/80 from served
    - allow tcp/443 from plain
`,
			tries: `
				office > host tcp/80     = answered
				stranger > host tcp/80   = answered
				office2 > host tcp/80    = silent
				villain > host tcp4/80   = answered
				villain > host tcp6/80   = silent
				stranger > host tcp4/443 = answered
				stranger > host tcp6/443 = silent
			`,
		},
		{
			name: "sets: a list by URL, refreshed, as a ban and in a rule",
			policy: `
sets:
  villains: { url: "https://lists.example.net/villains.txt", refresh: 1h }
  strangers: [192.0.2.0/24, "2001:db8:99::/48", "2001:db8:bad::/48"]
  tame: { union: [strangers], except: [villains] }
input:
  default: drop
  rules:
    - reject tcp/80 from villains
    - allow tcp/80
    - allow tcp/443 from tame
`,
			tries: `
				villain > host tcp/80   = reset
				stranger > host tcp/80  = answered
				villain > host tcp/443  = silent
				stranger > host tcp/443 = answered
				office > host tcp/443   = silent
			`,
		},
		{
			name: "to an address of this host",
			policy: `
input:
  default: drop
  rules:
    - allow tcp/80 to [198.51.100.9, 2001:db8:100::9]
`,
			tries: `
				stranger > second tcp/80 = answered
				stranger > host tcp/80   = silent
				inside > second tcp/80   = answered
			`,
		},
		{
			name: "zones by interface, by network, by both; in and from",
			policy: `
zones:
  wan: { interfaces: [default-route] }
  lan: { interfaces: ["lan*"], networks: [10.20.0.0/24, "2001:db8:20::/64"] }
  bureau: { networks: [203.0.113.0/24, "2001:db8:77::/48"] }
input:
  default: drop
  rules:
    - allow tcp/22 from lan
    - allow tcp/25 in lan
    - allow tcp/80 from wan
    - allow tcp/443 from bureau
    - allow udp/53 from not lan
`,
			tries: `
				inside > gateway tcp/22    = answered
				elsewhere > gateway tcp/22 = silent
				office > host tcp/22       = silent
				inside > gateway tcp/25    = answered
				elsewhere > gateway tcp/25 = answered
				office > host tcp/25       = silent
				stranger > host tcp/80     = answered
				inside > host tcp/80       = silent
				office > host tcp/443      = answered
				stranger > host tcp/443    = silent
				inside > gateway udp/53    = silent
				elsewhere > gateway udp/53 = answered
				stranger > host udp/53     = answered
			`,
		},
		{
			name: "services of one's own, lists, port ranges, all ports of a protocol, any",
			policy: office + `
services:
  web: [tcp/80, tcp/443, udp/443]
  high: tcp/8000-9999
input:
  default: drop
  rules:
    - allow web
    - allow high from office
    - allow udp from 192.0.2.7
    - allow [smtp, tcp/22] from 192.0.2.7
    - allow any from 203.0.113.8
`,
			tries: `
				stranger > host tcp/80    = answered
				stranger > host udp/443   = answered
				stranger > host udp6/80   = silent
				office > host tcp/8080    = answered
				office > host tcp/9000    = answered
				stranger > host tcp/8080  = silent
				stranger > host udp4/5432 = answered
				stranger > host tcp4/25   = answered
				stranger > host tcp4/22   = answered
				stranger > host tcp4/5432 = silent
				office2 > host tcp4/5432  = answered
				office2 > host udp4/5432  = answered
				office2 > host ping4      = answered
				office2 > host ping6      = silent
			`,
		},
		{
			name: "rules as mappings",
			policy: office + `
input:
  default: drop
  rules:
    - { allow: http, from: office }
    - { reject: [tcp/443, smtp], from: not office }
`,
			tries: `
				office > host tcp/80    = answered
				stranger > host tcp/80  = silent
				stranger > host tcp/443 = reset
				stranger > host tcp/25  = reset
				office > host tcp/443   = silent
			`,
		},
		{
			name: "icmp by name, in both families",
			policy: office + `
input:
  default: drop
  rules:
    - allow icmp echo-request from office
forward:
  default: drop
  rules:
    - allow ping from office
`,
			tries: `
				office > host ping     = answered
				stranger > host ping   = silent
				office > inside ping   = answered
				stranger > inside ping = silent
				inside > office ping   = silent
				host > stranger ping   = answered
			`,
		},
		{
			name: "forward: in, out, from, to",
			policy: office + `
zones:
  wan: { interfaces: [default-route] }
  lan: { interfaces: [lan0], networks: [10.20.0.0/24, "2001:db8:20::/64"] }
forward:
  default: drop
  rules:
    - allow tcp from lan to wan
    - allow udp in lan out wan
    - allow tcp/5432 from office to [10.20.0.5, 2001:db8:20::5]
    - reject tcp/80 in wan
`,
			tries: `
				inside > stranger tcp/80    = answered
				elsewhere > stranger tcp/80 = silent
				elsewhere > stranger udp/53 = answered
				office > inside tcp/5432    = answered
				office > inside2 tcp/5432   = silent
				stranger > inside tcp/5432  = silent
				stranger > inside tcp/80    = reset
				stranger > inside udp/53    = silent
				stranger > host tcp/80      = answered
				host > inside tcp/443       = answered
			`,
		},
		{
			name: "output: by user, to, out, reject",
			policy: office + `
zones:
  lan: { interfaces: [lan0] }
output:
  default: allow
  rules:
    - allow smtp by user 0
    - reject smtp
    - drop udp/53 out lan
    - drop tcp/22 to not office
    - reject udp/443
`,
			tries: `
				host > stranger tcp/25  = answered
				gateway > inside udp/53 = silent
				host > stranger udp/53  = answered
				host > office tcp/22    = answered
				host > stranger tcp/22  = silent
				host > stranger tcp/80  = answered
				host > stranger udp/443 = unreachable
				stranger > host tcp/22  = answered
				stranger > host udp/443 = answered
			`,
			after: func(t *testing.T, c *town) {
				for _, v6 := range []bool{false, true} {
					r := asNobody(c.host, testnet.TCPTry{To: at(place("stranger", v6), 25), Patience: enough})
					if r.Outcome != testnet.Reset {
						t.Errorf("smtp by nobody: %v", r)
					}
				}
			},
		},
		{
			name: "output: default drop",
			policy: `
output:
  default: drop
  rules:
    - allow dns
`,
			tries: `
				host > stranger udp/53 = answered
				host > stranger tcp/80 = silent
				host > stranger ping   = silent
				stranger > host tcp/80 = answered
				stranger > host ping   = answered
				host > host tcp/80     = answered
			`,
		},
	})
}

// asNobody connects as a user without rights: a socket belongs to whom its
// thread's file access is.
func asNobody(s *testnet.Namespace, try testnet.TCPTry) (r testnet.Result) {
	err := s.Do(func() error {
		if err := unix.Setfsuid(65534); err != nil {
			return err
		}
		r = s.TryTCP(try)
		return unix.Setfsuid(0)
	})
	if err != nil {
		return testnet.Result{Err: err}
	}
	return r
}
