package reference

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"sluice/internal/base/packet"
	"sluice/internal/language/policy"
	"sluice/internal/language/resolve"
	"sluice/internal/system/host"
)

// town is a host with two sides.
var town = host.Facts{
	Known: true, DefaultRoute: []string{"wan0"},
	Local: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8"), netip.MustParsePrefix("::1/128")},
	Interfaces: []host.Interface{
		{Name: "lan0", Index: 3, Addresses: []netip.Prefix{netip.MustParsePrefix("10.20.0.1/24"), netip.MustParsePrefix("2001:db8:20::1/64")}, Up: true},
		{Name: "lo", Index: 1, Addresses: []netip.Prefix{netip.MustParsePrefix("127.0.0.1/8"), netip.MustParsePrefix("::1/128")}, Up: true},
		{Name: "wan0", Index: 2, Addresses: []netip.Prefix{
			netip.MustParsePrefix("198.51.100.1/24"), netip.MustParsePrefix("198.51.100.9/24"),
			netip.MustParsePrefix("2001:db8:100::1/64"), netip.MustParsePrefix("fe80::1/64"),
		}, Up: true},
	},
}

const sides = `
version: 1
zones:
  wan: { interfaces: [default-route] }
  lan: { interfaces: [lan0], networks: [10.20.0.0/24, "2001:db8:20::/64"] }
`

func loadIn(t *testing.T, f host.Facts, text string) *resolve.Resolved {
	t.Helper()
	p, err := policy.Parse("policy.yaml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	r, err := resolve.Resolve(p, resolve.Options{Facts: f})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// comes is a packet that comes in, or leaves where in is "", of state unknown.
func comes(in, from, to string, proto uint8, port uint16, more ...func(*packet.Packet)) packet.Packet {
	return pkt(in, "", from, to, proto, port, append([]func(*packet.Packet){state("")}, more...)...)
}

func flags(f uint8) func(*packet.Packet) { return func(p *packet.Packet) { p.Flags = f } }

func sourcePort(n uint16) func(*packet.Packet) { return func(p *packet.Packet) { p.SourcePort = n } }

func TestExplainRewriting(t *testing.T) {
	nat := func(lines string) string { return sides + "nat:\n" + lines }
	for _, c := range []struct {
		name, text string
		p          packet.Packet
		way        packet.Way
		hook       policy.Hook
		want       policy.Action
		source, to string // as it leaves
		out        string
	}{
		{
			"masquerade", nat("  - masquerade from lan out wan ipv4\n"),
			comes("lan0", "10.20.0.5", "203.0.113.7", 6, 443), packet.Through, policy.Forward, policy.Allow, "198.51.100.1:40000", "203.0.113.7:443", "wan0",
		},
		{
			"masquerade of the other family", nat("  - masquerade from lan out wan ipv4\n"),
			comes("lan0", "2001:db8:20::5", "2001:db8:99::7", 6, 443), packet.Through, policy.Forward, policy.Allow, "[2001:db8:20::5]:40000", "[2001:db8:99::7]:443", "wan0",
		},
		{
			"masquerade of IPv6 takes no link-local address", nat("  - masquerade out wan\n"),
			comes("lan0", "2001:db8:20::5", "2001:db8:99::7", 6, 443), packet.Through, policy.Forward, policy.Allow, "[2001:db8:100::1]:40000", "[2001:db8:99::7]:443", "wan0",
		},
		{
			"masquerade as an address, of the host's own too", nat("  - masquerade out wan as 198.51.100.9\n"),
			comes("", "198.51.100.1", "203.0.113.7", 6, 443), packet.Out, policy.Output, policy.Allow, "198.51.100.9:40000", "203.0.113.7:443", "wan0",
		},
		{
			"masquerade from a zone is not about the host's own", nat("  - masquerade from lan out wan as 198.51.100.9\n"),
			comes("", "198.51.100.1", "203.0.113.7", 6, 443), packet.Out, policy.Output, policy.Allow, "198.51.100.1:40000", "203.0.113.7:443", "wan0",
		},
		{
			"redirect in a zone", nat("  - redirect tcp/8080 in wan to 10.20.0.5:80\n"),
			comes("wan0", "203.0.113.7", "198.51.100.9", 6, 8080), packet.In, policy.Forward, policy.Allow, "203.0.113.7:40000", "10.20.0.5:80", "lan0",
		},
		{
			"redirect is not about other addresses of the host", nat("  - redirect tcp/8080 in wan to 10.20.0.5:80\n"),
			comes("lan0", "10.20.0.6", "10.20.0.1", 6, 8080), packet.In, policy.Input, policy.Allow, "10.20.0.6:40000", "10.20.0.1:8080", "",
		},
		{
			"hairpin", nat("  - redirect tcp/8080 in wan to 10.20.0.5:80\n"),
			comes("lan0", "10.20.0.6", "198.51.100.1", 6, 8080), packet.In, policy.Forward, policy.Allow, "10.20.0.1:40000", "10.20.0.5:80", "lan0",
		},
		{
			"redirect from the host itself", nat("  - redirect tcp/8080 on 198.51.100.77 to 10.20.0.5\n"),
			comes("", "198.51.100.1", "198.51.100.77", 6, 8080), packet.Out, policy.Output, policy.Allow, "198.51.100.1:40000", "10.20.0.5:8080", "lan0",
		},
		{
			"redirect to the host itself", nat("  - redirect tcp/2222 in wan to :22\n"),
			comes("wan0", "203.0.113.7", "198.51.100.1", 6, 2222), packet.In, policy.Input, policy.Allow, "203.0.113.7:40000", "198.51.100.1:22", "",
		},
		{
			"redirect of a forwarded packet to the host", nat("  - redirect tcp/2222 on 10.99.0.1 to 10.20.0.1:22\n"),
			comes("wan0", "203.0.113.7", "10.99.0.1", 6, 2222), packet.Through, policy.Input, policy.Allow, "203.0.113.7:40000", "10.20.0.1:22", "",
		},
		{
			"the first line holds", nat("  - redirect tcp/80 on 198.51.100.1 to 10.20.0.5\n  - redirect tcp in wan to 10.20.0.6\n"),
			comes("wan0", "203.0.113.7", "198.51.100.1", 6, 80), packet.In, policy.Forward, policy.Allow, "203.0.113.7:40000", "10.20.0.5:80", "lan0",
		},
		{
			"map inwards", nat("  - map 198.51.100.32/28 to 10.20.0.0/28\n"),
			comes("wan0", "203.0.113.7", "198.51.100.37", 17, 53), packet.Through, policy.Forward, policy.Allow, "203.0.113.7:40000", "10.20.0.5:53", "lan0",
		},
		{
			"map outwards", nat("  - map 2001:db8:100:f::/64 to 2001:db8:20::/64\n"),
			comes("lan0", "2001:db8:20::5", "2001:db8:99::7", 17, 53), packet.Through, policy.Forward, policy.Allow, "[2001:db8:100:f::5]:40000", "[2001:db8:99::7]:53", "wan0",
		},
		{
			"map leaves the host's own packets", nat("  - map 198.51.100.32/28 to 10.20.0.0/28\n"),
			comes("", "10.20.0.1", "203.0.113.7", 17, 53), packet.Out, policy.Output, policy.Allow, "10.20.0.1:40000", "203.0.113.7:53", "wan0",
		},
		{
			"stateless map inwards", nat("  - map 198.51.100.32/28 to 10.20.0.0/28 stateless\n"),
			comes("wan0", "203.0.113.7", "198.51.100.37", 17, 53), packet.Through, policy.Forward, policy.Allow, "203.0.113.7:40000", "10.20.0.5:53", "lan0",
		},
		{
			"stateless map outwards", nat("  - map 198.51.100.32/28 to 10.20.0.0/28 stateless\n"),
			comes("lan0", "10.20.0.5", "203.0.113.7", 6, 443, flags(packet.ACK)), packet.Through, policy.Forward, policy.Allow, "198.51.100.37:40000", "203.0.113.7:443", "wan0",
		},
		{
			"a stateless map leaves what is for the host", nat("  - map 198.51.100.32/28 to 10.20.0.0/28 stateless\n"),
			comes("lan0", "10.20.0.5", "10.20.0.1", 6, 443), packet.In, policy.Input, policy.Allow, "10.20.0.5:40000", "10.20.0.1:443", "",
		},
		{
			"what is refused keeps its source", nat("  - masquerade from lan out wan\n") + "forward: { default: reject }\n",
			comes("lan0", "10.20.0.5", "203.0.113.7", 6, 443), packet.Through, policy.Forward, policy.Reject, "10.20.0.5:40000", "203.0.113.7:443", "wan0",
		},
		{
			"forward sees the inner address", nat("  - redirect tcp/8080 in wan to 10.20.0.5:80\n") + "forward: { default: drop, rules: [allow tcp/80 to 10.20.0.5 out lan] }\ninput: { default: drop }\n",
			comes("wan0", "203.0.113.7", "198.51.100.1", 6, 8080), packet.In, policy.Forward, policy.Allow, "203.0.113.7:40000", "10.20.0.5:80", "lan0",
		},
		{
			"published goes by what the outside sees", nat("  - redirect tcp/2222 in wan to :22\n") + "input: { default: drop, rules: [allow published tcp/2222] }\n",
			comes("wan0", "203.0.113.7", "198.51.100.1", 6, 2222), packet.In, policy.Input, policy.Allow, "203.0.113.7:40000", "198.51.100.1:22", "",
		},
		{
			"published is not about others", nat("  - redirect tcp/2222 in wan to :22\n") + "input: { default: drop, rules: [allow published tcp/22] }\n",
			comes("wan0", "203.0.113.7", "198.51.100.1", 6, 2222), packet.In, policy.Input, policy.Drop, "203.0.113.7:40000", "198.51.100.1:22", "",
		},
	} {
		got := Explain(loadIn(t, town, c.text), c.p, c.way)
		p := got.Packet
		from, to := netip.AddrPortFrom(p.Source, p.SourcePort).String(), netip.AddrPortFrom(p.Destination, p.Port).String()
		if got.Hook != c.hook || got.Verdict != c.want || from != c.source || to != c.to || p.Out != c.out {
			t.Errorf("%s: %s in %s, %s > %s by %q, want %s in %s, %s > %s by %q\n%v", c.name, got.Verdict, got.Hook, from, to, p.Out, c.want, c.hook, c.source, c.to, c.out, got.Steps)
		}
	}
}

// TestWaysOfRouting: what is forwarded goes by each interface that routing may choose.
func TestWaysOfRouting(t *testing.T) {
	router := func(host.Trip) host.Way { return host.Way{Leads: host.Onward, Out: []string{"wan0", "wan1"}} }
	var out []string
	for _, path := range Ways(loadIn(t, town, sides), comes("lan0", "10.20.0.5", "203.0.113.7", 6, 443), packet.Through, router) {
		out = append(out, path.Packet.Out)
	}
	if !slices.Equal(out, []string{"wan0", "wan1"}) {
		t.Errorf("leaves by %q", out)
	}
}

// TestPublishedByOthers: what another tool publishes is one port, not its neighbours.
func TestPublishedByOthers(t *testing.T) {
	r := loadIn(t, town, sides)
	r.Facts.Published = []host.Published{{Protocol: "tcp", Port: 8080, To: netip.MustParseAddrPort("10.20.0.5:80")}}
	for port, want := range map[uint16]string{8080: "10.20.0.5:80", 8081: "198.51.100.1:8081"} {
		p := Explain(r, comes("wan0", "203.0.113.7", "198.51.100.1", 6, port), packet.In).Packet
		if got := netip.AddrPortFrom(p.Destination, p.Port).String(); got != want {
			t.Errorf("port %d leads to %s, want %s", port, got, want)
		}
	}
}

func BenchmarkFollow(b *testing.B) {
	text := sides + "sets:\n  a: [203.0.113.0/24]\ninput:\n  default: drop\n  rules:\n"
	for i := range 300 {
		text += fmt.Sprintf("    - allow tcp/%d from a\n", 1000+i)
	}
	p, err := policy.Parse("policy.yaml", []byte(text))
	if err != nil {
		b.Fatal(err)
	}
	r, err := resolve.Resolve(p, resolve.Options{Facts: town})
	if err != nil {
		b.Fatal(err)
	}
	packet := comes("wan0", "198.51.100.77", "198.51.100.1", 6, 22)
	b.Run("Follow", func(b *testing.B) {
		for b.Loop() {
			Follow(r, packet, "input")
		}
	})
	b.Run("Explain", func(b *testing.B) {
		for b.Loop() {
			Explain(r, packet, "input")
		}
	})
}

// A fragment is judged as the packet that it is of: the kernel puts packets
// together before Sluice's first hook (TestAlwaysFragments asks the kernel).
func TestExplainFragments(t *testing.T) {
	r := loadIn(t, town, "version: 1\ntracking: { bypass: [http] }\ninput: { default: drop, rules: [allow http, allow udp/53] }\n")
	for _, c := range []struct {
		proto uint8
		port  uint16
		want  policy.Action
	}{{6, 80, policy.Allow}, {17, 53, policy.Allow}, {17, 54, policy.Drop}} {
		p := comes("wan0", "203.0.113.7", "198.51.100.1", c.proto, c.port)
		p.Fragment = true
		if got := Explain(r, p, packet.In); got.Verdict != c.want {
			t.Errorf("a fragment of protocol %d to port %d: %s (%s)", c.proto, c.port, got.Verdict, got.Why)
		}
	}
}

func TestAddressOfMasquerade(t *testing.T) {
	f := town
	f.Interfaces = []host.Interface{{Name: "eth0", Addresses: []netip.Prefix{
		netip.MustParsePrefix("10.1.0.1/16"), netip.MustParsePrefix("10.2.0.5/16"), netip.MustParsePrefix("10.2.0.9/16"),
		netip.MustParsePrefix("2001:db8:5::1/64"), netip.MustParsePrefix("2001:db8:9::1/64"), netip.MustParsePrefix("fd00:7::1/64"), netip.MustParsePrefix("fe80::1/64"),
	}}}
	f.Interfaces = append(f.Interfaces, host.Interface{Name: "eth1", Addresses: f.Interfaces[0].Addresses, Order: []netip.Prefix{
		netip.MustParsePrefix("10.2.0.9/16"), netip.MustParsePrefix("10.2.0.5/16"), netip.MustParsePrefix("10.1.0.1/16"),
		netip.MustParsePrefix("2001:db8:9::1/64"), netip.MustParsePrefix("2001:db8:5::1/64"),
	}})
	w := walk{Resolved: &resolve.Resolved{Facts: f}}
	for to, want := range map[string]string{
		"10.2.7.7": "10.2.0.5", "10.1.7.7": "10.1.0.1", "203.0.113.7": "10.1.0.1",
		"2001:db8:9:1::7": "2001:db8:9::1", "2001:db8:5::7": "2001:db8:5::1", "fd12::7": "fd00:7::1", "fe80::7": "fe80::1",
	} {
		if got := w.addressOf("eth0", netip.MustParseAddr(to)); got.String() != want {
			t.Errorf("to %s: %s, want %s", to, got, want)
		}
	}
	for to, want := range map[string]string{"10.2.7.7": "10.2.0.9", "203.0.113.7": "10.2.0.9", "2001:db8:ff::7": "2001:db8:9::1", "fe80::7": "invalid IP"} {
		if got := w.addressOf("eth1", netip.MustParseAddr(to)); got.String() != want {
			t.Errorf("in the kernel's order, to %s: %s, want %s", to, got, want)
		}
	}
	w.Facts.Gateways = []netip.Addr{netip.MustParseAddr("10.1.0.254")}
	if got := w.addressOf("eth1", netip.MustParseAddr("203.0.113.7")); got.String() != "10.1.0.1" {
		t.Errorf("by a router: %s", got)
	}
	if got := w.addressOf("eth2", netip.MustParseAddr("10.2.7.7")); got.IsValid() {
		t.Errorf("an interface that is not known has %s", got)
	}
}

// A path tells its stages in order, one of which decides, and the sets that were
// asked with the element that holds the address.
func TestExplainSteps(t *testing.T) {
	r := loadIn(t, town, sides+`
sets:
  office: [203.0.113.0/24, "2001:db8:77::/48"]
  banned: [192.0.2.0/24, 203.0.113.200]
ban: [banned, 198.51.100.200]
never-ban: [192.0.2.1]
tracking: { invalid: drop }
input:
  default: drop
  rules:
    - allow ssh from office
    - reject http from not office
`)
	type line struct{ hook, stage, text string }
	for _, c := range []struct {
		p     packet.Packet
		steps []line
		asked string // of all steps
	}{
		{
			comes("wan0", "203.0.113.7", "198.51.100.1", 6, 22),
			[]line{{"prerouting", "tracking", ""}, {"input", "ban", ""}, {"input", "state", ""}, {"input", "rules", "allow ssh from office"}},
			"banned no, office 203.0.113.0/24",
		},
		{
			comes("wan0", "192.0.2.1", "198.51.100.1", 6, 80),
			[]line{{"prerouting", "tracking", ""}, {"input", "ban", "ban: banned"}, {"input", "state", ""}, {"input", "rules", "allow ssh from office"}, {"input", "rules", "reject http from not office"}},
			"banned 192.0.2.0/24, literal 192.0.2.1, office no",
		},
		{
			comes("wan0", "203.0.113.200", "198.51.100.1", 6, 22),
			[]line{{"prerouting", "tracking", ""}, {"input", "ban", "ban: banned"}},
			"banned 203.0.113.200",
		},
		{
			comes("wan0", "203.0.113.7", "198.51.100.1", 6, 22, flags(packet.RST)),
			[]line{{"prerouting", "tracking", ""}, {"input", "ban", ""}, {"input", "state", ""}, {"input", "invalid", "invalid: drop"}},
			"banned no",
		},
		{
			comes("lo", "127.0.0.1", "127.0.0.1", 6, 22),
			[]line{{"prerouting", "tracking", ""}, {"input", "loopback", ""}},
			"",
		},
	} {
		path := Explain(r, c.p, packet.In)
		var got []line
		var asked []string
		for _, s := range path.Steps {
			got = append(got, line{s.Hook, s.Stage, s.Text})
			for _, m := range s.Asked {
				name, element := m.Set, "no"
				if name == "" {
					name = "literal"
				}
				if m.In {
					element = m.Element.String()
				}
				asked = append(asked, name+" "+element)
			}
		}
		if !slices.Equal(got, c.steps) || strings.Join(asked, ", ") != c.asked {
			t.Errorf("%s: %v, asked %v, want %v, %s", packetText(c.p), got, asked, c.steps, c.asked)
		}
		coherent(t, path)
	}
	clamped := loadIn(t, town, sides+"forward:\n  default: drop\n  rules: [clamp mss from lan to wan, allow any from lan to wan]\n")
	for f, want := range map[uint8]int{packet.SYN: 1, packet.SYN | packet.ACK: 1, packet.ACK: 0} {
		n := 0
		for _, s := range Explain(clamped, comes("lan0", "10.20.0.5", "203.0.113.7", 6, 443, flags(f)), packet.Through).Steps {
			if s.Stage == "rewrite" && s.Text == "clamp mss from lan to wan" && s.Hook == "forward" {
				n++
			}
		}
		if n != want {
			t.Errorf("a packet of flags %#x is clamped %d times", f, n)
		}
	}
}

// coherent fails where a path contradicts itself.
func coherent(t *testing.T, path Path) {
	t.Helper()
	order := []string{"prerouting", "input", "forward", "output", "postrouting"}
	at, deciding := 0, 0
	for _, s := range path.Steps {
		here := slices.Index(order, s.Hook)
		if here < at || s.Reason == "" || (s.Text != "") != (s.Pos.Line != 0) {
			t.Errorf("step %+v of %+v", s, path)
		}
		at = here
		if s.Decides {
			deciding++
			if s.Stage != path.Stage || s.Pos != path.Pos || s.Text != path.Text || s.Reason != path.Why || s.Hook != string(path.Hook) {
				t.Errorf("the deciding step %+v is not %+v", s, path)
			}
		}
	}
	if deciding != 1 || !slices.Contains(Stages, path.Stage) || path.Rule != nil && path.Rule.Pos != path.Pos {
		t.Errorf("%d steps decide: %+v", deciding, path)
	}
}
