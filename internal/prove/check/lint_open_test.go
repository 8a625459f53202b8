package check_test

import (
	"net/netip"
	"testing"

	"sluice/internal/system/host"
)

func TestLintOpen(t *testing.T) {
	quiet := func(f *host.Facts) { f.Forwarding4, f.Forwarding6, f.Published = false, false, nil }
	testLint(t, []testCase{
		{name: "management", facts: quiet, policy: `
zones:
  wan: {interfaces: [default-route]}
  lan: {interfaces: [br0]}
sets:
  europe: {continents: [EU]}
input:
  default: drop
  rules:
    - allow [ssh, docker] in lan
    - allow mysql from europe
    - allow [http, redis] in wan
    - allow rdp limit 5/minute per source
    - allow postgresql limit 5/minute per source
    - allow ssh limit 5/minute
    - allow tcp/27017
services:
  docker: tcp/2375
`, want: []string{
			`12 warning open-management: tcp/6379 (Redis and Valkey)`, `14 warning open-management: tcp/5432 (PostgreSQL)`,
			`15 warning open-management: tcp/22 (Secure Shell)`, `16 warning open-management: MongoDB`,
		}},
		{name: "all but some countries", facts: quiet, policy: `
sets:
  europe: {continents: [EU]}
input:
  default: drop
  rules:
    - allow ssh from not europe
    - drop any from not europe
    - allow tcp/2375
`, want: []string{`7 warning open-management: tcp/22`}},
		{name: "everything", facts: quiet, policy: `
input:
  default: drop
  rules:
    - allow any
`, want: []string{`5 warning open-management: and`}},
		{name: "through this host", policy: `
zones:
  wan: {interfaces: [eth0]}
  lan: {interfaces: [br0]}
forward:
  default: drop
  rules:
    - allow any from lan to wan
    - allow published tcp/5432
    - allow ssh to lan
`, want: []string{`9 warning open-management: tcp/5432`, `10 warning open-management: tcp/22`}},
		{name: "published, where TCP of others is dropped", policy: `
zones:
  wan: {interfaces: [eth0]}
sets:
  office: [203.0.113.0/24]
forward:
  default: drop
  rules:
    - drop tcp from not office
    - allow published tcp/5432
nat:
  - redirect tcp/5432 in wan to 10.20.0.5
`},
		{name: "by another number", policy: `
zones:
  wan: {interfaces: [default-route]}
  lan: {interfaces: [br0]}
sets:
  office: [203.0.113.0/24]
forward:
  default: drop
  rules:
    - allow published tcp/15432
    - allow published tcp/16379 from office
    - allow published [tcp/2222, tcp/13306] limit 5/minute per source
    - allow published tcp/5000
    - allow published tcp/19200
    - allow published [tcp/5432, tcp/10080]
nat:
  - redirect tcp/15432 in wan to 10.20.0.5:5432
  - redirect tcp/16379 in wan to 10.20.0.5:6379
  - redirect tcp/2222 in wan to :22
  - redirect tcp/13306 in wan to 10.20.0.5:3306
  - redirect tcp/5000 in lan to 10.20.0.5:5432
  - redirect tcp/19200 in wan to 10.20.0.5:80
  - redirect tcp/10080 in wan to 10.20.0.5:80
`, want: []string{
			`10 warning open-management: tcp/5432 (PostgreSQL), where the redirect on line 17 sends tcp/15432`,
			`12 warning open-management: tcp/3306 (MySQL and MariaDB), where the redirect on line 20 sends tcp/13306`,
			`15 warning open-management: tcp/5432 (PostgreSQL)`,
		}},
		{name: "this host by another number", facts: quiet, policy: `
zones:
  wan: {interfaces: [default-route]}
input:
  default: drop
  rules:
    - allow published tcp/2222
    - allow published tcp/8443
nat:
  - redirect tcp/2222 in wan to :22
  - redirect tcp/8443 in wan to :443
`, want: []string{`7 warning open-management: tcp/22 (Secure Shell), where the redirect on line 10 sends tcp/2222`}},
		{name: "another tool leads to another number", facts: func(f *host.Facts) {
			f.Published[0] = host.Published{Protocol: "tcp", Port: 15432, To: netip.MustParseAddrPort("172.17.0.2:5432")}
		}, policy: `
input: {default: drop}
forward:
  default: drop
  rules:
    - allow published tcp/15432
`, want: []string{`6 warning open-management: tcp/5432 (PostgreSQL), where another tool sends tcp/15432`}},
		{name: "defaults", policy: `
input: {default: allow}
output: {default: allow}
forward: {default: allow}
`, want: []string{`2 warning default-allow: input`, `4 warning default-allow: this host forwards`}},
		{name: "a forward that nothing passes", facts: quiet, policy: `
input: {default: drop}
forward: {default: allow}
`},
		{name: "sections that are left out", facts: func(*host.Facts) {}, policy: `
input: {default: drop}
`, want: []string{`2 warning not-policed: tcp/8080 to 172.17.0.2:80`}},
		{name: "no input", policy: `
output: {default: allow}
`, want: []string{}},
		{name: "nothing is policed", facts: func(*host.Facts) {}, policy: ``, want: []string{
			`1 warning not-policed: input is missing, and there is no other section`, `1 warning not-policed: forward is missing`,
		}},
		{name: "nothing is policed on a host that forwards nothing", facts: quiet, policy: `
ban: [203.0.113.128/25]
`, want: []string{`1 warning not-policed: input is missing`}},
		{name: "output alone", facts: func(*host.Facts) {}, policy: `
output: {default: allow}
`, want: []string{`2 warning not-policed: forward is missing`, `2 remark not-policed: input is missing`}},
		{name: "families", facts: quiet, policy: `
sets:
  four: [192.0.2.0/24]
input:
  default: allow
  rules:
    - drop http ipv4
    - drop https from four ipv4
    - reject smtp from 0.0.0.0/0
    - drop telnet from [0.0.0.0/0, ::/0]
    - drop udp ipv4
    - drop udp
`, want: []string{`5 warning default-allow`, `7 remark ipv6-open`, `9 warning every-ipv4: over IPv6 the same stays open`, `11 remark redundant-rule`}},
		{name: "closed anyway", facts: quiet, policy: `
input:
  default: reject
  rules:
    - drop http ipv4
    - drop smtp from 0.0.0.0/0
    - allow https from ::/0
`, want: []string{`7 remark every-ipv4: this allows nothing over IPv4`}},
		{name: "published", facts: func(f *host.Facts) {
			f.Published = append(f.Published, host.Published{Protocol: "tcp", Port: 9000, To: netip.MustParseAddrPort("172.17.0.3:9000")}, host.Published{Protocol: "tcp", Port: 5000, To: netip.MustParseAddrPort("127.0.0.1:5000")})
		}, policy: `
forward:
  default: drop
  rules:
    - allow published tcp/8080 from 203.0.113.0/24
`, want: []string{`2 remark not-policed: input is missing`, `3 remark published-closed: tcp/9000 to 172.17.0.3:9000`}},
		{name: "published and allowed by the inner address", facts: func(*host.Facts) {}, policy: `
input: {default: drop}
forward:
  default: drop
  rules:
    - allow tcp/80 to 172.17.0.0/16
`},
		{name: "a redirect that nobody gets through, in both families", policy: `
zones:
  wan: {interfaces: [eth0]}
input: {default: drop}
forward:
  default: drop
  rules:
    - drop published tcp/8443
    - allow tcp/25 to 10.20.0.5
nat:
  - redirect tcp/8443 in wan to 10.20.0.5:443
  - redirect tcp/2525 in wan to 10.20.0.5:25
  - redirect tcp/9443 in wan to [2001:db8:9::5]:443
  - redirect tcp/2222 in wan to 198.51.100.1:22
`, want: []string{
			`11 warning redirect-closed: no rule allows the packets that this line redirects: forward refuses it`,
			`13 warning redirect-closed: no rule allows the packets that this line redirects: forward refuses it`,
			`14 warning redirect-closed: no rule allows the packets that this line redirects: input refuses it`,
		}},
		{name: "rules of input for what is published", facts: func(f *host.Facts) {
			f.Published = append(f.Published, host.Published{Protocol: "udp", Port: 5353, Address: netip.MustParseAddr("198.51.100.1"), To: netip.MustParseAddrPort("172.17.0.3:53")})
		}, policy: `
zones:
  containers: {interfaces: [docker0]}
input:
  default: drop
  rules:
    - allow tcp/8080 in containers
    - drop tcp/8080 from 203.0.113.0/24
    - drop tcp/8080 ipv6
    - allow [http, tcp/8080]
    - drop tcp/8000-9000
    - drop udp/5353
    - drop published tcp/8080
forward:
  default: drop
  rules:
    - allow published [tcp/8080, udp/5353]
`, want: []string{
			`8 warning input-published: another tool rewrites these packets before input is evaluated: tcp/8080 to 172.17.0.2:80 is decided by forward`,
			`10 warning input-published: another tool rewrites`,
			`11 remark hidden-part: a part of this rule is hidden`,
		}},
		{name: "another firewall", facts: func(f *host.Facts) { f.Firewalls = flushing }, policy: `
input: {default: drop}
forward:
  default: drop
  rules:
    - allow published tcp/8080
`, want: []string{`2 warning other-firewall: nftables.service starts at every boot and flushes all rules, those of this policy too`}},
		{name: "small packets", policy: `
zones:
  lan: {interfaces: [br0]}
  tunnel: {interfaces: [wg0]}
forward:
  default: drop
  rules:
    - clamp mss from lan to tunnel
    - allow any from lan to tunnel
    - allow udp from tunnel
`},
		{name: "small packets from elsewhere", policy: `
zones:
  lan: {interfaces: [br0]}
  tunnel: {interfaces: [wg0]}
forward:
  default: drop
  rules:
    - clamp mss from lan to tunnel
    - allow tcp from tunnel out tunnel
    - allow http in lan
`, want: []string{}},
	})
}
