package check_test

import (
	"net/netip"
	"strings"
	"testing"

	"sluice/internal/base/packet"
	"sluice/internal/language/policy"
	"sluice/internal/prove/reference"
	"sluice/internal/system/host"
)

// Story 3: who answers the host is asked of the reference, for every way in
// which a policy can have rules decide on it.
func TestLintAnswers(t *testing.T) {
	testLint(t, []testCase{
		{name: "a rule about countries is no danger", policy: `
sets:
  europe: {continents: [EU]}
input:
  default: drop
  rules:
    - drop any from not europe
    - allow http
`},
		{name: "ntpd behind a bypass, allowed for some", policy: `
tracking: {bypass: [ntp]}
input:
  default: drop
  rules:
    - drop any from 192.0.2.0/24
    - allow ntp
`, want: []string{`2 warning replies-cut: "drop any from 192.0.2.0/24" on line 6`}},
		{name: "a time server that is allowed", policy: `
tracking: {bypass: [ntp]}
input:
  default: drop
  rules:
    - allow ntp
`},
		{name: "chrony asks from any port", facts: func(f *host.Facts) { f.Servers[1].FromPort = 0; f.Forwarding4, f.Forwarding6 = false, false }, policy: `
tracking: {bypass: [ntp]}
input:
  default: drop
  rules:
    - allow ntp from 10.20.0.0/16
`},
		{name: "a bypass on another address than the host's way out", policy: `
tracking: {bypass: [ntp to 10.20.0.1]}
input:
  default: drop
  rules:
    - allow ntp from 10.20.0.0/16
`, want: []string{`2 warning replies-cut`}},
		{name: "tunnels ask from their own port", policy: `
sets:
  europe: {continents: [EU]}
tracking: {bypass: [wireguard]}
input:
  default: drop
  rules:
    - allow wireguard from europe
`, want: []string{`4 error bypass-ephemeral`, `4 remark replies-cut: WireGuard sends from port 51820`}},
		{name: "tunnels from everybody", policy: `
tracking: {bypass: [udp/500]}
input:
  default: drop
  rules:
    - allow udp/500
`},
		{name: "a client of the host at a bypassed port, in both families", facts: func(f *host.Facts) {
			f.Servers, f.Forwarding4, f.Forwarding6, f.Published = nil, false, false, nil
			f.Askers = []host.Asker{{Name: "ntpd", Protocol: "udp", Port: 123, Peers: []netip.AddrPort{
				netip.MustParseAddrPort("192.0.2.9:123"), netip.MustParseAddrPort("[2001:db8:7::9]:123"), netip.MustParseAddrPort("10.20.0.9:123"),
			}}}
		}, policy: `
tracking: {bypass: [ntp]}
input:
  default: drop
  rules:
    - allow ntp from 10.20.0.0/16
`, want: []string{`2 warning replies-cut: answers of the peer 192.0.2.9 of ntpd and the peer 2001:db8:7::9 of ntpd would be refused`}},
		{name: "a client of the host whose peers are not known", facts: func(f *host.Facts) {
			f.Servers, f.Forwarding4, f.Forwarding6, f.Published = nil, false, false, nil
			f.Askers = []host.Asker{{Name: "WireGuard (wg1)", Protocol: "udp", Port: 443}}
		}, policy: `
tracking: {bypass: [udp/443]}
input:
  default: drop
  rules:
    - allow udp/443 from 10.20.0.0/16
`, want: []string{`2 remark replies-cut: WireGuard (wg1) sends from port 443`}},
		{name: "clients of two bypassed ports", facts: func(f *host.Facts) {
			f.Forwarding4, f.Forwarding6, f.Published = false, false, nil
			f.Askers = []host.Asker{{Name: "charon", Protocol: "udp", Port: 500, Peers: []netip.AddrPort{netip.MustParseAddrPort("203.0.113.77:500")}}}
		}, policy: `
services: {both: [udp/123, udp/500]}
tracking: {bypass: [both]}
input:
  default: drop
  rules:
    - allow both from 10.20.0.0/16
`, want: []string{`3 warning replies-cut: answers of the time server 192.0.2.123`, `3 warning replies-cut: answers of the peer 203.0.113.77 of charon`}},
		{name: "a map over the host's own address", policy: `
forward:
  default: drop
  rules:
    - clamp mss
    - allow ssh to 10.20.1.0/24
nat:
  - map 198.51.100.0/28 to 10.20.1.0/28 stateless
`, want: []string{`6 warning open-management`, `8 warning replies-cut: 198.51.100.1`}},
		{name: "a map with state leaves answers alone", policy: `
forward:
  default: drop
  rules:
    - clamp mss
    - allow http to 10.20.1.0/24
nat:
  - map 198.51.100.0/28 to 10.20.1.0/28
`},
		{name: "a resolver in front of a map", policy: `
forward:
  default: drop
  rules:
    - clamp mss
    - allow dns to 10.20.1.0/24
nat:
  - map 192.0.2.48/28 to 10.20.1.0/28 stateless
`, want: []string{`8 warning replies-cut: the name server 192.0.2.53`}},
		{name: "output that blocks countries", policy: `
sets:
  europe: {continents: [EU]}
output:
  default: allow
  rules:
    - allow ntp
    - reject any to not europe
`, want: []string{`8 warning requests-cut: this rule refuses this host's own requests to the name server 192.0.2.53 and the package mirror deb.example.net (192.0.2.80)`}},
		{name: "output for one user", policy: `
output:
  default: drop
  rules:
    - allow [dns, ntp] by user unbound
    - allow https by user root
`},
		{name: "a name server over TLS", policy: `
output:
  default: drop
  rules:
    - allow [dot, ntp, https]
`},
		{name: "an output without names", policy: `
output:
  default: drop
  rules:
    - allow [ntp, https]
`, want: []string{`3 warning requests-cut: the default refuses this host's own requests to the name server 192.0.2.53`}},
		{name: "a limit that bans", policy: `
never-ban: [192.0.2.53]
input:
  default: drop
  rules:
    - allow udp/5060 limit 6/30s per source then ban 10m
`, want: []string{`6 warning forged-ban: the package mirror deb.example.net (192.0.2.80) and the time server 192.0.2.123`, `6 remark unproven-ban`}},
		{name: "a neighbour of a mirror in its /64", facts: func(f *host.Facts) {
			f.Resolvers, f.Servers = nil, f.Servers[:1]
			f.Servers[0].Addresses = []netip.Addr{netip.MustParseAddr("2001:db8:53::53")}
			f.Forwarding4, f.Forwarding6 = false, false
		}, policy: `
input:
  default: drop
  rules:
    - drop any from 2001:db8:53::53
    - allow udp/5060 limit 6/30s per source then ban 10m
`, want: []string{`6 warning forged-ban: (2001:db8:53::53)`, `6 remark unproven-ban`}},
		{name: "a limit that cannot meet them", policy: `
input:
  default: drop
  rules:
    - drop any from 192.0.2.0/24
    - allow udp/5060 limit 6/30s per source then ban 10m
`, want: []string{`6 remark unproven-ban`}},
		{name: "a limit of TCP, which nobody can forge", policy: `
input:
  default: drop
  rules:
    - allow tcp/2222 limit 6/30s per source then ban 10m
`, want: []string{}},
		{name: "bans of servers", policy: `
ban: [192.0.2.53, 192.0.2.80, 192.0.2.123]
input:
  default: drop
`, want: []string{`2 warning ban-resolver`, `2 warning ban-server: deb.example.net`, `2 warning ban-server: time server`}},
		{name: "nothing of an unknown host", facts: func(f *host.Facts) { f.Known = false }, policy: `
ban: [192.0.2.53, 192.0.2.80, 192.0.2.123]
tracking: {bypass: [ntp]}
input:
  default: drop
  rules:
    - allow ntp from 10.20.0.0/16
    - allow ssh limit 6/30s per source then ban 10m
output:
  default: drop
`, want: []string{`10 remark host-needs`}},
	})
}

// What no policy can remove is asked of the reference: answers by their
// state, from a blocked country and past rules that refuse everything, and ICMP
// errors in every section. A ban alone can.
func TestAnswersHoldByThemselves(t *testing.T) {
	_, r := lintText(t, `
ban: [192.0.2.128/25]
tracking: {bypass: [dns, ntp]}
input:
  default: drop
  rules:
    - drop icmp
    - drop any
output:
  default: drop
forward:
  default: drop
  rules:
    - drop any
`, host.Facts{})
	answer := packet.Packet{
		In: "eth0", Source: netip.MustParseAddr("192.0.2.53"), Destination: netip.MustParseAddr("198.51.100.1"), DestinationLocal: packet.Yes,
		Protocol: packet.UDP, SourcePort: 53, Port: 40000, State: packet.Established, Owner: -1,
	}
	if got := reference.Judge(r, answer, policy.Input); got.Action != policy.Allow {
		t.Errorf("an answer of a resolver gets %v", got)
	}
	tooBig := answer
	tooBig.Protocol, tooBig.ICMPType, tooBig.ICMPCode = packet.ICMP, 3, 4
	for _, state := range []packet.State{packet.Related, packet.Invalid, packet.Untracked} {
		for _, hook := range []policy.Hook{policy.Input, policy.Forward, policy.Output} {
			tooBig.State = state
			passes := state == packet.Related || hook != policy.Forward // what bypasses tracking is not forwarded
			if got := reference.Judge(r, tooBig, hook); (got.Action == policy.Allow) != passes {
				t.Errorf("fragmentation needed at %s, %s, gets %v", hook, state, got)
			}
			banned := tooBig
			banned.Source = netip.MustParseAddr("192.0.2.254")
			if got := reference.Judge(r, banned, hook); hook != policy.Output && !strings.HasPrefix(got.Why, "ban") {
				t.Errorf("fragmentation needed from a banned router at %s gets %v", hook, got)
			}
		}
	}
}
