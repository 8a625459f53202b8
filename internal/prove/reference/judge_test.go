package reference

import (
	"net/netip"
	"testing"

	"sluice/internal/base/packet"
	"sluice/internal/language/policy"
	"sluice/internal/language/resolve"
	"sluice/internal/system/host"
)

const text = `
version: 1
zones:
  wan: { interfaces: [default-route] }
  lan: { interfaces: ["lan*"], networks: [10.20.0.0/24, "2001:db8:20::/64"] }
sets:
  office: [203.0.113.0/24, "2001:db8:77::/48"]
  banned: [192.0.2.0/24, 203.0.113.9, "2001:db8:bad::/48"]
ban: [banned]
never-ban: [203.0.113.9]
input:
  default: reject
  rules:
    - allow ssh from office
    - drop ssh
    - allow [http, ping] ipv6
    - allow dns from lan
    - allow published tcp/8080
output:
  default: drop
  rules: [allow smtp by user 25]
forward:
  default: drop
  rules:
    - clamp mss from lan to wan
    - allow any from lan to wan
    - allow tcp/443 to 10.20.0.5
    - reject udp in wan out lan
`

func load(t *testing.T, text string) *resolve.Resolved {
	t.Helper()
	p, err := policy.Parse("policy.yaml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	r, err := resolve.Resolve(p, resolve.Options{Facts: host.Facts{Known: true, DefaultRoute: []string{"wan0"}}})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func pkt(in, out, from, to string, proto uint8, port uint16, more ...func(*packet.Packet)) packet.Packet {
	p := packet.Packet{
		In: in, Out: out, Source: netip.MustParseAddr(from), Destination: netip.MustParseAddr(to),
		Protocol: proto, Port: port, SourcePort: 40000, State: packet.New, Owner: -1, HopLimit: 64,
	}
	if proto == packet.TCP {
		p.Flags = packet.SYN
	}
	for _, change := range more {
		change(&p)
	}
	return p
}

func state(s packet.State) func(*packet.Packet) { return func(p *packet.Packet) { p.State = s } }

func icmp(kind, hops uint8) func(*packet.Packet) {
	return func(p *packet.Packet) { p.ICMPType, p.HopLimit = kind, hops }
}

func TestJudge(t *testing.T) {
	r := load(t, text)
	const (
		in, through, out = policy.Input, policy.Forward, policy.Output
		stranger, host   = "198.51.100.7", "198.51.100.1"
		far6, host6      = "2001:db8:99::7", "2001:db8::1"
	)
	published := func(p *packet.Packet) {
		p.DNAT, p.Original = true, packet.Tuple{Destination: netip.MustParseAddr(host), Port: 8080}
	}
	for _, c := range []struct {
		name string
		hook policy.Hook
		p    packet.Packet
		want policy.Action
	}{
		{"the first rule that matches", in, pkt("wan0", "", "203.0.113.5", host, 6, 22), policy.Allow},
		{"the second", in, pkt("wan0", "", stranger, host, 6, 22), policy.Drop},
		{"the default", in, pkt("wan0", "", stranger, host, 6, 23), policy.Reject},
		{"the family", in, pkt("wan0", "", far6, host6, 6, 80), policy.Allow},
		{"the other family", in, pkt("wan0", "", stranger, host, 6, 80), policy.Reject},
		{"echo request", in, pkt("wan0", "", far6, host6, 58, 0, icmp(128, 64)), policy.Allow},
		{"loopback", in, pkt("lo", "", "127.0.0.1", "127.0.0.1", 6, 23), policy.Allow},
		{"a banned source", in, pkt("wan0", "", "192.0.2.1", host, 6, 22), policy.Drop},
		{"a banned source that is never banned", in, pkt("wan0", "", "203.0.113.9", host, 6, 22), policy.Allow},
		{"a banned destination", out, pkt("", "wan0", host, "192.0.2.1", 6, 25, func(p *packet.Packet) { p.Owner = 25 }), policy.Drop},
		{"a banned address in a known flow", in, pkt("wan0", "", "192.0.2.1", host, 6, 22, state(packet.Established)), policy.Drop},
		{"a reply", in, pkt("wan0", "", stranger, host, 17, 5000, state(packet.Established)), policy.Allow},
		{"a repeated question", in, pkt("wan0", "", stranger, host, 1, 0, icmp(8, 64), state(packet.Established)), policy.Reject},
		{"an invalid packet", in, pkt("wan0", "", "203.0.113.5", host, 6, 22, state(packet.Invalid)), policy.Drop},
		{"an invalid ICMP error", in, pkt("wan0", "", stranger, host, 1, 0, icmp(3, 64), state(packet.Invalid)), policy.Drop},
		{"an ICMP error about a known flow", in, pkt("wan0", "", stranger, host, 1, 0, icmp(3, 64), state(packet.Related)), policy.Allow},
		{"neighbour discovery", in, pkt("wan0", "", far6, host6, 58, 0, icmp(135, 255), state(packet.Untracked)), policy.Allow},
		{"neighbour discovery from afar", in, pkt("wan0", "", far6, host6, 58, 0, icmp(135, 64), state(packet.Untracked)), policy.Reject},
		{"a ban holds for what looks like neighbour discovery and is forwarded", through, pkt("lan0", "wan0", "2001:db8:20::5", "2001:db8:bad::1", 58, 0, icmp(135, 255)), policy.Drop},
		{"neighbour discovery is never forwarded", through, pkt("wan0", "lan0", far6, host6, 58, 0, icmp(135, 255)), policy.Drop},
		{"DHCP", in, pkt("wan0", "", stranger, host, 17, 68, func(p *packet.Packet) { p.SourcePort = 67 }), policy.Allow},
		{"a zone needs interface and network", in, pkt("lan0", "", "10.20.0.7", host, 17, 53), policy.Allow},
		{"the network alone", in, pkt("wan0", "", "10.20.0.7", host, 17, 53), policy.Reject},
		{"the interface alone", in, pkt("lan0", "", "10.99.0.7", host, 17, 53), policy.Reject},
		{"published, by the port before", in, pkt("wan0", "", stranger, "10.0.0.1", 6, 80, published), policy.Allow},
		{"not published", in, pkt("wan0", "", stranger, host, 6, 8080), policy.Reject},
		{"the user", out, pkt("", "wan0", host, stranger, 6, 25, func(p *packet.Packet) { p.Owner = 25 }), policy.Allow},
		{"another user", out, pkt("", "wan0", host, stranger, 6, 25, func(p *packet.Packet) { p.Owner = 0 }), policy.Drop},
		{"clamp decides nothing", through, pkt("lan0", "wan0", "10.99.0.1", stranger, 6, 80), policy.Drop},
		{"from and to zones", through, pkt("lan0", "wan0", "10.20.0.1", stranger, 6, 80), policy.Allow},
		{"to an address", through, pkt("wan0", "lan0", stranger, "10.20.0.5", 6, 443), policy.Allow},
		{"in and out", through, pkt("wan0", "lan0", stranger, "10.20.0.5", 17, 443), policy.Reject},
	} {
		if got := Judge(r, c.p, c.hook); got.Action != c.want {
			t.Errorf("%s: %s (%s), want %s", c.name, got.Action, got.Why, c.want)
		}
	}
	unpoliced := load(t, "version: 1\nban: [192.0.2.1]\n")
	if got := Judge(unpoliced, pkt("wan0", "", stranger, host, 6, 22), in); got.Action != policy.Allow {
		t.Errorf("a section that is left out: %v", got)
	}
	if got := Judge(unpoliced, pkt("wan0", "", "192.0.2.1", host, 6, 22), in); got.Action != policy.Drop {
		t.Errorf("a ban without sections: %v", got)
	}
}
