package check_test

import (
	"net/netip"
	"testing"

	"sluice/internal/system/host"
)

func TestSets(t *testing.T) {
	testCases(t, []testCase{
		{name: "empty sets", policy: `
sets:
  a: []
  b: {union: [c], except: [c]}
  c: [192.0.2.0/24]
  d: {file: empty.txt, counters: true}
  e: {file: empty.txt}
  f: {union: [d, e]}
  g: {url: "https://lists.example.net/none.txt"}
ban: [d]
input:
  default: drop
  rules:
    - allow ssh from e
`, want: []string{
			`3 error empty-set`, `4 warning empty-set: exceptions`, `6 remark empty-set: its file is empty`,
			`7 warning empty-set`, `8 warning empty-set: none of its parts`, `9 remark empty-set: its list is empty`,
		}},
		{name: "one family over an open default", policy: `
sets:
  four: {file: v4.txt}
  both: [192.0.2.0/24, "2001:db8:1::/48"]
input:
  default: allow
  rules:
    - drop any from four
    - drop ssh from four ipv4
    - drop any from both
    - drop any from 198.51.100.0/24
`, want: []string{`8 warning one-family: no IPv6 addresses`, `9 error hidden-rule`}},
		{name: "one family over a rule that is open below", policy: `
sets:
  four: [192.0.2.0/24]
input:
  default: drop
  rules:
    - drop http from four
    - drop ssh from four
    - allow ssh
    - allow http ipv4
`, want: []string{`8 warning one-family`}},
		{name: "everything but one family", policy: `
sets:
  six: ["2001:db8::/32"]
input:
  default: drop
  rules:
    - allow ssh from not six
    - drop http from not six
`, want: []string{`7 warning one-family: every IPv4 address is "not six"`}},
		{name: "one family that opens is closed in the other", policy: `
sets:
  four: [192.0.2.0/24]
input:
  default: drop
  rules:
    - allow ssh from four
`},
	})
}

func TestBypass(t *testing.T) {
	published := func(f *host.Facts) {
		f.Published = []host.Published{{Protocol: "tcp", Port: 8080, To: netip.MustParseAddrPort("172.17.0.2:80")}}
	}
	testCases(t, []testCase{
		{name: "ephemeral ports", policy: `
tracking:
  bypass: [http, tcp/60000-61000, "udp/1024-32767", udp/40000]
`, want: []string{`3 error bypass-ephemeral: ports 60000-60999 are`, `3 error bypass-ephemeral: port 40000 is`}},
		{name: "ephemeral ports of an unknown host", facts: func(f *host.Facts) { *f = host.Facts{} }, policy: `
tracking:
  bypass: tcp/50000
`, want: []string{`3 warning bypass-ephemeral: the kernel's usual`}},
		{name: "a redirect of what is bypassed", policy: `
zones:
  wan: {interfaces: [eth0]}
tracking:
  bypass: [http, https]
nat:
  - redirect tcp/443 in wan to 10.20.0.5:443
  - redirect tcp/81 in wan to 10.20.0.5:80
`, want: []string{`5 error bypass-nat: "redirect tcp/443 in wan to 10.20.0.5:443" on line 7`}},
		{name: "a redirect of another address", policy: `
sets:
  web: {endpoints: ["198.51.100.200 tcp/80"]}
tracking:
  bypass: http to web
nat:
  - redirect tcp/80 on 198.51.100.1 to 10.20.0.5
`},
		{name: "a redirect on addresses that are not known", facts: func(f *host.Facts) { *f = host.Facts{} }, policy: `
zones:
  wan: {interfaces: [eth0]}
tracking:
  bypass: http to 198.51.100.200
nat:
  - redirect tcp/80 in wan to 10.20.0.5
`},
		{name: "a redirect of all addresses of an unknown host", facts: func(f *host.Facts) { *f = host.Facts{} }, policy: `
zones:
  wan: {interfaces: [eth0]}
tracking:
  bypass: http
nat:
  - redirect tcp/80 in wan to 10.20.0.5
`, want: []string{`5 error bypass-nat`}},
		{name: "a redirect to a bypassed port of this host", policy: `
zones:
  wan: {interfaces: [eth0]}
tracking:
  bypass: tcp/8080
nat:
  - redirect tcp/80 in wan to :8080
`, want: []string{`5 error bypass-nat: answers would leave with the wrong port`}},
		{name: "a map of this host's own address", policy: `
tracking:
  bypass: [http]
nat:
  - map 198.51.100.200/32 to 10.20.1.1/32
  - map 198.51.100.64/28 to 10.20.1.64/28
`, want: []string{`3 error bypass-nat: "map 198.51.100.200`}},
		{name: "a map of another address", policy: `
tracking:
  bypass: http to 198.51.100.200
nat:
  - map 198.51.100.64/28 to 10.20.1.64/28
`},
		{name: "a port that another tool publishes", facts: published, policy: `
tracking:
  bypass: [tcp/8080]
`, want: []string{`3 error bypass-nat: tcp/8080 to 172.17.0.2:80`}},
		{name: "another tool's masquerade", facts: func(f *host.Facts) {
			f.ForeignChains = []host.ForeignChain{{Family: "ip", Table: "nat", Name: "POSTROUTING", Type: "nat", Hook: "postrouting", Rewrites: true}}
		}, policy: `
tracking:
  bypass: [ntp]
`, want: []string{`3 remark bypass-nat: (nat, chain POSTROUTING)`}},
		{name: "another tool's empty chain", facts: func(f *host.Facts) {
			f.ForeignChains = []host.ForeignChain{{Family: "ip", Table: "nat", Name: "POSTROUTING", Type: "nat", Hook: "postrouting"}}
		}, policy: `
tracking:
  bypass: [ntp]
`},
		{name: "another port than the published one", facts: published, policy: `
tracking:
  bypass: [http, udp/8080]
`},
		{name: "connections and limits", policy: `
tracking:
  bypass: [http]
input:
  default: drop
  rules:
    - allow [http, smtp] max 20 connections per source
    - allow smtp max 20 connections
    - allow http limit 100/second
    - allow ssh limit 10/minute
`, want: []string{`7 error bypass-connections`, `9 warning bypass-limit`}},
		{name: "bans by what can be forged", policy: `
services:
  both: [tcp/5060, udp/5060]
tracking:
  bypass: [http]
never-ban: [203.0.113.0/24]
input:
  default: drop
  rules:
    - allow ssh limit 10/minute per source then ban 10m
    - allow udp/5060 from 203.0.113.7 limit 6/30s per source then ban 10m
    - allow udp/5060 limit 6/30s per source
    - allow udp/5061 limit 6/30s per source then ban 10m
    - allow icmp echo-request limit 6/30s per source then ban 10m widen
    - allow http limit 600/30s per source then ban 10m
    - allow both from 192.0.2.0/24 limit 6/30s per source then ban 10m
    - reject tcp/23 limit 6/30s per source then ban 10m
    - allow any from 198.51.100.0/24 limit 6/30s per source then ban 10m
forward:
  default: drop
  rules:
    - clamp mss
    - allow smtp limit 10/minute per source then ban 10m
    - allow smtp to 10.20.1.0/24 limit 10/minute per source then ban 10m
    - drop tcp/23 from 2001:db8:77::/48 limit 6/30s per source then ban 10m
nat:
  - map 198.51.100.16/28 to 10.20.1.0/28 stateless
`, want: []string{
			`13 remark unproven-ban: the source of UDP`, `14 remark unproven-ban: all of its network banned by this limit: no handshake proves the source of ICMP`, `15 warning bypass-limit`,
			`15 remark unproven-ban: the source of untracked TCP`, `16 remark unproven-ban: the source of UDP`,
			`17 remark unproven-ban: the source of refused packets`,
			`18 warning bypass-limit`, `18 remark unproven-ban: the source of UDP, ICMP, protocols other than TCP and untracked TCP`,
			`23 remark unproven-ban: the source of untracked TCP`, `24 remark unproven-ban: the source of untracked TCP`,
			`25 remark unproven-ban: the source of refused packets`,
		}},
		{name: "an address of another host", policy: `
tracking:
  bypass: http to 192.0.2.7
`, want: []string{`3 error foreign-address`}},
	})
}

func TestWayBack(t *testing.T) {
	testCases(t, []testCase{
		{name: "a rule without ports over bypassed traffic", policy: `
tracking:
  bypass: [http]
input:
  default: drop
  rules:
    - allow any from 203.0.113.0/24
output:
  default: drop
  rules:
    - allow dns
`, want: []string{`7 warning no-way-back: bypasses tracking`, `9 remark host-needs`}},
		{name: "a rule with ports is mirrored", policy: `
tracking:
  bypass: [http]
input:
  default: drop
  rules:
    - allow http from 203.0.113.0/24
    - allow ssh from 203.0.113.0/24
output:
  default: drop
`, want: []string{`10 remark host-needs`}},
		{name: "the bypassed part was decided before", policy: `
tracking:
  bypass: [http]
input:
  default: drop
  rules:
    - allow http
    - allow any from 203.0.113.0/24
output:
  default: drop
`, want: []string{`10 remark host-needs`}},
		{name: "output is open", policy: `
tracking:
  bypass: [http]
input:
  default: drop
  rules:
    - allow any from 203.0.113.0/24
output:
  default: allow
  rules:
    - reject smtp
`},
		{name: "output has the rule", policy: `
tracking:
  bypass: [http]
input:
  default: drop
  rules:
    - allow tcp from 203.0.113.0/24
output:
  default: drop
  rules:
    - allow tcp to 203.0.113.0/24
`, want: []string{`9 remark host-needs`}},
		{name: "output is open except for them", policy: `
tracking:
  bypass: [http]
input:
  default: drop
  rules:
    - allow tcp from 203.0.113.0/24
output:
  default: allow
  rules:
    - drop any to 203.0.113.7
`, want: []string{`7 warning no-way-back`}},
		{name: "a stateless map", policy: `
zones:
  wan: {interfaces: [eth0]}
forward:
  default: drop
  rules:
    - allow any from 10.20.1.0/28 to wan
    - allow tcp/80 to 10.20.1.1
    - allow any from 10.20.2.0/28 to wan
nat:
  - map 198.51.100.16/28 to 10.20.1.0/28 stateless
`, want: []string{`7 warning no-way-back: is mapped statelessly`}},
		{name: "a stateless map with its way back", policy: `
zones:
  wan: {interfaces: [eth0]}
forward:
  default: drop
  rules:
    - allow any from 10.20.1.0/28 to wan
    - allow any from wan to 10.20.1.0/28
nat:
  - map 198.51.100.16/28 to 10.20.1.0/28 stateless
`},
	})
}

func TestHost(t *testing.T) {
	testCases(t, []testCase{
		{name: "interfaces", policy: `
zones:
  a: {interfaces: [eth0, "wg*"]}
  b: {interfaces: [ehh0]}
  c: {interfaces: [tap0]}
  d: {interfaces: ["tap*"]}
  e: {interfaces: [br0]}
`, want: []string{`4 warning unknown-interface: "ehh0"`, `5 error bridge-port: port of bridge "br0"`, `6 warning bridge-port`}},
		{name: "of an unknown host nothing is said", facts: func(f *host.Facts) { *f = host.Facts{} }, policy: `
zones:
  b: {interfaces: [ehh0, tap0]}
sets:
  much: [198.51.100.0/24, 203.0.113.0/24, 8.8.0.0/16]
ban: much
input:
  default: drop
  rules:
    - allow ssh to 192.0.2.7
    - allow http
`},
		{name: "addresses of other hosts", policy: `
sets:
  mine: [198.51.100.1, 192.0.2.1]
input:
  default: drop
  rules:
    - allow ssh to 192.0.2.7
    - allow http to 198.51.100.200
    - allow https to mine
    - allow dns to 224.0.0.251
    - allow ntp to 10.20.255.255
    - allow smtp to not 192.0.2.7
    - allow published tcp/8080 to 192.0.2.7
output:
  default: allow
  rules:
    - reject smtp from 192.0.2.7
    - reject smtp to 192.0.2.7
`, want: []string{`7 error foreign-address: 192.0.2.7`, `17 error foreign-address`}},
		{name: "an address that moves", facts: func(f *host.Facts) { f.NonLocalBind = true }, policy: `
input:
  default: drop
  rules:
    - allow ssh to 192.0.2.7
`, want: []string{`5 warning foreign-address`}},
		{name: "bans of the host and its friends", policy: `
sets:
  bad: [198.51.100.0/24, 203.0.113.0/24, 8.8.0.0/16]
  fine: [192.0.2.0/24, 127.0.0.0/8, "fe80::/10"]
ban: [bad, fine]
`, want: []string{`5 warning ban-management: 203.0.113.9`, `5 warning ban-own: 198.51.100.1`, `5 warning ban-resolver: 8.8.8.8`}},
		{name: "a ban of where a tunnel comes from", facts: func(f *host.Facts) {
			f.OuterFlows = []host.OuterFlow{
				{Peer: netip.MustParseAddr("10.8.0.2"), Tunnel: "wg0", Protocol: 17, Remote: netip.MustParseAddrPort("192.0.2.66:40000")},
				{Peer: netip.MustParseAddr("10.8.0.2"), Tunnel: "wg0", Protocol: 17, Remote: netip.MustParseAddrPort("[2001:db8:66::1]:40000")},
				{Peer: netip.MustParseAddr("10.8.0.2"), Tunnel: "tun0", Unknown: "no process that can be seen holds it"},
			}
		}, policy: `
sets:
  bad: [192.0.2.0/24, "2001:db8:66::/48"]
ban: [bad]
`, want: []string{`4 warning ban-management: 192.0.2.66`, `4 warning ban-management: 2001:db8:66::1`}},
		{name: "spared from the ban", policy: `
sets:
  bad: [203.0.113.0/24]
  worse: [192.0.2.0/24]
ban: [bad, worse]
never-ban: [203.0.113.9, 192.0.2.0/24]
`, want: []string{`5 remark never-banned: 203.0.113.9`, `5 warning never-banned: covers all of it`}},
		{name: "masquerades", policy: `
zones:
  wan: {interfaces: [eth0]}
  vms: {interfaces: [br0]}
  old: {networks: [10.0.0.0/8]}
nat:
  - masquerade from vms out wan
  - masquerade from vms out wan ipv4
  - masquerade from old out wan
  - masquerade from vms out wan as 198.51.100.200
`, want: []string{`7 remark masquerade-ipv6`}},
		{name: "what the host itself has to send", policy: `
output:
  default: drop
  rules:
    - allow [dns, ntp]
`, want: []string{`3 remark host-needs: DHCP renewals, DHCPv6 and IGMP`}},
		{name: "some of what the host itself has to send", policy: `
output:
  default: reject
  rules:
    - allow dhcp to 198.51.100.0/24
    - drop proto/2 ipv4
    - drop any to 192.0.2.0/24
`, want: []string{`3 remark host-needs: to send: DHCPv6`}},
		{name: "all of what the host itself has to send", policy: `
output:
  default: drop
  rules:
    - allow [dhcp, dhcpv6, proto/2]
`},
	})
}
