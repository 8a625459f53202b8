package peers

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"sluice/internal/base/addrset"
	"sluice/internal/base/packet"
	"sluice/internal/base/testgolden"
	"sluice/internal/base/testseed"
	"sluice/internal/importer"
	"sluice/internal/importer/loaded"
	"sluice/internal/lab/measure"
	"sluice/internal/lab/testnet"
	"sluice/internal/language/policy"
	"sluice/internal/language/resolve"
	"sluice/internal/program"
	"sluice/internal/prove/reach"
	"sluice/internal/prove/reference"
	"sluice/internal/system/host"
)

// lab is what the resolver knows of a lab of package measure.
var lab = host.Facts{
	Known: true, DefaultRoute: []string{"eth0"},
	Interfaces: []host.Interface{{Name: "eth0", Index: 2, Addresses: []netip.Prefix{netip.MustParsePrefix("198.51.100.1/24"), netip.MustParsePrefix("2001:db8:0:1::1/64")}}},
	Local:      []netip.Prefix{netip.MustParsePrefix("198.51.100.1/32"), netip.MustParsePrefix("2001:db8:0:1::1/128")},
}

func resolved(t *testing.T, text string) *resolve.Resolved {
	t.Helper()
	p, err := policy.Parse("policy.yaml", []byte(text))
	if err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	r, err := resolve.Resolve(p, resolve.Options{Facts: lab})
	if err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	return r
}

const wholePolicy = `version: 1
zones:
  wan: {interfaces: [default-route]}
  vms: {interfaces: ["virbr*"], networks: [10.20.0.0/16]}
sets:
  office: [203.0.113.0/24, "2001:db8:77::/48"]
  served: [1.0.0.0/24, 1.0.4.0/22, 8.0.0.0/7, 23.1.2.3, 23.1.2.8-23.1.2.12, 203.0.113.0/25, "2400::/30", "2400:8::/31", "2a00:1::/32", "2a00:4::1", "2a02::/20", "2a02:8000::/21"]
  banned: [192.0.2.1, 192.0.2.7, 192.0.2.9, 192.0.2.30, 192.0.2.33, 192.0.2.77, "2001:db8:bad::1", "2001:db8:bad::2", "2001:db8:bad::4", "2001:db8:bad::6", "2001:db8:bad::8"]
  listeners: {endpoints: ["198.51.100.1 tcp/8443", "198.51.100.1 udp/8443", "198.51.100.2 tcp/8444", "[2001:db8:0:1::1] tcp/8443", "[2001:db8:0:1::2] tcp/8444"]}
services:
  web: [tcp/80, tcp/443, udp/443]
ban: [banned]
never-ban: [192.0.2.77]
tracking:
  bypass: ["web", "[tcp/8443, tcp/8444, udp/8443] to listeners"]
input:
  default: drop log "in"
  rules:
    - allow web from served
    - allow [tcp/8443, udp/8443] from not served
    - allow ssh from office limit 10/minute per source
    - allow ssh limit 6/30s per source then ban 10m
    - allow [smtp, imaps] max 20 connections per source
    - allow icmp echo-request limit 20/second
    - allow tcp/9090 from office in wan
    - reject tcp/25 log "smtp"
    - reject ipv4 to 198.51.100.1 in vms
    - drop udp ipv6
output:
  default: drop
  rules:
    - allow smtp by user 0
    - allow dns
forward:
  default: reject
  rules:
    - clamp mss from vms to wan
    - allow any from vms to wan
    - allow tcp/5432 from served to 10.20.0.5
nat:
  - masquerade from 10.20.0.0/16 out wan ipv4
  - redirect tcp/8080 in wan to 10.20.0.5:80
  - map 198.51.100.16/28 to 10.20.1.0/28
`

// What each peer loads is readable in a diff.
func TestTexts(t *testing.T) {
	meaning := FromPolicy(resolved(t, wholePolicy))
	web := FromPolicy(resolved(t, `version: 1
sets:
  served: [1.0.0.0/24, 1.0.4.0/22, 8.0.0.0/7, 23.1.2.3, 203.0.113.0/25, "2400::/30", "2a00:4::1", "2a02::/20"]
  banned: [192.0.2.1, 192.0.2.7, "2001:db8:bad::1"]
ban: [banned]
input:
  default: drop
  rules:
    - allow [http, https] from served
    - reject smtp
    - drop any from not 203.0.113.0/24 in side
    - allow ping
zones:
  side: {interfaces: [eth1]}
`))
	for _, p := range Every() {
		m := meaning
		if p.Name == "firewalld" {
			m = web
		}
		var text strings.Builder
		for _, r := range p.Cannot(m) {
			fmt.Fprintf(&text, "# cannot say: %s\n", r)
		}
		for _, r := range p.Without(m) {
			fmt.Fprintf(&text, "# without: %s\n", r)
		}
		text.WriteString(p.Text(m))
		testgolden.File(t, filepath.Join("testdata", identifier(goldenOf(p))+".golden"), []byte(text.String()))
	}
}

// goldenOf names the text that a peer has: both flavours of iptables read the same, and
// the story's host before its remedy is rules for each address.
func goldenOf(p Peer) string {
	name, _, _ := strings.Cut(p.Name, " (iptables-")
	if name == "ipset-story-before" {
		return "iptables-linear"
	}
	return name
}

// TestLayouts holds what every peer loads, and the program that loads it, to what its
// name promises: bans, the set of a rule, endpoints that bypass tracking.
func TestLayouts(t *testing.T) {
	meaning := FromPolicy(resolved(t, wholePolicy))
	words := map[string]string{
		"a rule a ban":       "-A PREROUTING -s 192.0.2.1 -j DROP",
		"bans per /8":        "-A PREROUTING -s 192.0.0.0/8 -j ",
		"bans in a set":      "--match-set bans4 src -j DROP",
		"a rule a member":    "--dports 80,443 -s 1.0.0.0/24 -j ACCEPT",
		"members per /8":     "-s 1.0.0.0/8 -j ",
		"members in a set":   "--dport 443 -m set --match-set served4 src -j ACCEPT",
		"a rule a listener":  "-d 198.51.100.1 -p tcp --dport 8443 -j CT --notrack",
		"listeners in a set": "--match-set listeners4 dst,dst -j CT --notrack",

		"nft: a rule a ban":      "\tip saddr 192.0.2.1 drop",
		"nft: bans per /8":       "ip saddr & 255.0.0.0 vmap { 192.0.0.0 : jump",
		"nft: bans in a set":     "ip saddr @bans4 drop",
		"nft: bans by length":    "@bans_by_4_32 drop",
		"nft: a rule a member":   "} ip saddr 1.0.0.0/24 accept",
		"nft: members per /8":    "ip saddr & 255.0.0.0 vmap { 1.0.0.0 : goto",
		"nft: members in a set":  "ip saddr @served4 accept",
		"nft: members by length": "@served_by_4_24 ",
	}
	for group, want := range map[string][]string{
		"nftables-set":            {"nft: bans in a set", "nft: members in a set"},
		"nftables-linear":         {"nft: a rule a ban", "nft: a rule a member"},
		"chain-per-/8 (nftables)": {"nft: bans per /8", "nft: members per /8"},
		"hash-per-length":         {"nft: bans by length", "nft: members by length"},
		"chain-per-/8":            {"bans per /8", "members per /8", "a rule a listener"},
		"ipset":                   {"bans in a set", "members in a set", "listeners in a set"},
		"iptables-linear":         {"a rule a ban", "a rule a member", "a rule a listener"},
		"ipset-story":             {"bans in a set", "a rule a member", "a rule a listener"},
		"ipset-story-before":      {"a rule a ban", "a rule a member", "a rule a listener"},
	} {
		for flavour, programs := range map[string][]string{
			"": {"nft"}, " (iptables-legacy)": {"iptables-legacy-restore", "ip6tables-legacy-restore"}, " (iptables-nft)": {"iptables-nft-restore", "ip6tables-nft-restore"},
		} {
			if (flavour == "") != strings.HasPrefix(want[0], "nft: ") {
				continue
			}
			i := slices.IndexFunc(Every(), func(p Peer) bool { return p.Name == group+flavour })
			if i < 0 {
				t.Errorf("no peer is called %s%s", group, flavour)
				continue
			}
			if slices.Contains(want, "bans in a set") {
				programs = append([]string{"ipset"}, programs...)
			}
			var loaded strings.Builder
			var ran []string
			err := Every()[i].load(t.Context(), nil, meaning, func(_ context.Context, _ *testnet.Namespace, input, name string, _ ...string) error {
				loaded.WriteString(input)
				ran = append(ran, name)
				return nil
			})
			if err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(programs, ran); d != "" {
				t.Errorf("programs of %s%s:\n%s", group, flavour, d)
			}
			for what, text := range words {
				if has := strings.Contains(loaded.String(), text); has != slices.Contains(want, what) {
					t.Errorf("%s%s has %q (%s): %v", group, flavour, text, what, has)
				}
			}
		}
	}
}

// Every word that a peer writes is one that its program takes.
func TestTextsLoad(t *testing.T) {
	meaning := FromPolicy(resolved(t, wholePolicy))
	net := testnet.New(t)
	for i, p := range Every() {
		if p.Group == "ufw" || p.Group == "firewalld" {
			continue // they take seconds, and have no words for much of it
		}
		t.Run(p.Name, func(t *testing.T) {
			testnet.Require(t, p.Needs()...)
			l, err := measure.NewLab(net, fmt.Sprintf("text%d", i))
			if err != nil {
				t.Fatal(err)
			}
			err = p.Load(t.Context(), l.Namespace, meaning)
			var cannot *CannotError
			if err != nil && !errors.As(err, &cannot) {
				t.Fatal(err)
			}
		})
	}
}

// TestPeersMeanThePolicy gives every peer random policies and holds it to what the
// reference says of packets, and what importer reads of it to the same.
func TestPeersMeanThePolicy(t *testing.T) {
	measure.Require(t)
	random := testseed.Rand(t)
	net := testnet.New(t)
	labs := 0
	for round := range 2 {
		g := &generator{Rand: random}
		text := g.policy()
		r := resolved(t, text)
		m := FromPolicy(r)
		asked := g.traffics(t, r)
		defer func() {
			for _, a := range asked {
				a.source.Close()
			}
		}()
		for _, p := range Every() {
			daemon := p.Group == "ufw" || p.Group == "firewalld"
			if daemon && round > 0 {
				continue // they take seconds
			}
			t.Run(p.Name, func(t *testing.T) {
				testnet.Require(t, p.Needs()...)
				labs++
				l, err := measure.NewLab(net, fmt.Sprintf("peer%d", labs))
				if err != nil {
					t.Fatal(err)
				}
				err = p.Load(t.Context(), l.Namespace, m)
				var cannot *CannotError
				switch {
				case errors.As(err, &cannot) && daemon:
					t.Logf("%v", err) // its rules are fewer, and the second try asks for those
					text := g.plain()
					r := resolved(t, text)
					if err := p.Load(t.Context(), l.Namespace, FromPolicy(r)); err != nil {
						t.Fatalf("%v\n%s", err, text)
					}
					read := imported(t, l) // of which not all is for such packets
					for _, a := range g.traffics(t, r) {
						a.hold(t, l, p, read, text)
						a.source.Close()
					}
					return
				case err != nil:
					t.Fatalf("%v\n%s", err, text)
				}
				read := imported(t, l)
				if !daemon {
					whole(t, read)
				}
				for _, a := range asked {
					a.hold(t, l, p, read, text)
				}
			})
		}
	}
}

// traffic is packets of one family and protocol, with what the policy says of each.
type traffic struct {
	source  *measure.Source
	packets []packet.Packet
	want    []bool
}

// hold sends the packets, and asks about them what importer has read of the peer.
func (a traffic) hold(t *testing.T, l *measure.Lab, p Peer, rulesets []*importer.Ruleset, text string) {
	t.Helper()
	_, err := measure.Compare(t.Context(), measure.Plan{Rounds: 1, Packets: 2 * len(a.want)}, []measure.Cell{
		{Name: p.Name, Lab: l, Source: a.source, Survives: func(i int) bool { return a.want[i] }},
	})
	if err != nil {
		t.Errorf("%v\npolicy:\n%s", err, text)
	}
	for i, one := range a.packets {
		passes, certain := true, true
		for _, r := range rulesets {
			if family := map[string]int{"ip": 4, "ip6": 6}[r.Family]; family == one.Family() || family == 0 {
				got := reach.Evaluate(r.Program, one, reach.In)
				passes, certain = passes && got.Verdict == program.Accept, certain && got.Certain
			}
		}
		if passes != a.want[i] || !certain {
			t.Errorf("%s: what is read of it lets %+v pass: %v, certain: %v; want %v\npolicy:\n%s", p.Name, one, passes, certain, a.want[i], text)
			return
		}
	}
}

// imported is what importer reads of a peer.
func imported(t *testing.T, l *measure.Lab) []*importer.Ruleset {
	t.Helper()
	var rulesets []*importer.Ruleset
	if err := l.Namespace.Do(func() error {
		var errs []error
		rulesets, errs = loaded.Read(t.Context(), "measure") // whose rules count and end all
		return errors.Join(errs...)
	}); err != nil {
		t.Fatal(err)
	}
	if len(rulesets) == 0 {
		t.Error("nothing is read")
	}
	return rulesets
}

// generator makes policies and the packets that ask about them.
type generator struct {
	*rand.Rand
	edges []netip.Addr
}

func (g *generator) set(n int) string {
	var out []string
	for _, f := range []addrset.Family{addrset.IPv4, addrset.IPv6} {
		for _, a := range measure.ByAddress(measure.Usable(addrset.All()), f, n, g.Uint64()) {
			p, _ := a.Prefix(a.BitLen() - g.IntN(a.BitLen()-6))
			r := addrset.PrefixRange(p)
			g.edges = append(g.edges, r.From, r.To, r.From.Prev(), r.To.Next())
			out = append(out, fmt.Sprintf("%q", r))
		}
	}
	return strings.Join(out, ", ")
}

func (g *generator) policy() string { return g.write(true) }

// plain is a policy that every program can say.
func (g *generator) plain() string { return g.write(false) }

func (g *generator) write(all bool) string {
	g.Shuffle(len(g.edges), func(i, j int) { g.edges[i], g.edges[j] = g.edges[j], g.edges[i] })
	var b strings.Builder
	fmt.Fprintf(&b, "version: 1\nsets:\n  one: [%s]\n  two: [%s]\n  banned: [%s]\n  few: [%s]\nban: [banned]\nnever-ban: [few]\n", g.set(40), g.set(12), g.set(8), g.set(1))
	if all {
		b.WriteString("tracking: {bypass: [tcp/1001, udp/1002]}\n")
	}
	fmt.Fprintf(&b, "input:\n  default: %s\n  rules:\n", g.one("drop", "reject", "allow"))
	for range 3 + g.IntN(8) {
		rule := g.one("allow", "drop", "reject") + " " + g.one("any", "tcp", "udp", "tcp/1001", "[tcp/1001, udp/1002, tcp/1003]", "udp/1000-1002")
		if g.IntN(4) == 0 {
			rule += " " + g.one("ipv4", "ipv6")
		}
		if g.IntN(4) > 0 {
			not := ""
			if all && g.IntN(3) == 0 {
				not = "not "
			}
			rule += " from " + not + g.one("one", "two", "few", "[two, few]")
		}
		fmt.Fprintf(&b, "    - %q\n", rule)
	}
	return b.String()
}

func (g *generator) one(of ...string) string { return of[g.IntN(len(of))] }

// traffics are packets of both families and of TCP and UDP.
func (g *generator) traffics(t *testing.T, r *resolve.Resolved) (out []traffic) {
	t.Helper()
	usable := measure.Usable(addrset.All())
	for _, f := range []addrset.Family{addrset.IPv4, addrset.IPv6} {
		for _, protocol := range []uint8{packet.TCP, packet.UDP} {
			flows := measure.Traffic{Flags: map[uint8]string{packet.TCP: "S"}[protocol]}
			var packets []packet.Packet
			var want []bool
			for _, a := range append(slices.Clone(g.edges), measure.ByAddress(usable, f, 400, g.Uint64())...) {
				if !a.IsValid() || a.Is4() != (f == addrset.IPv4) || !usable.Contains(a) {
					continue
				}
				to := measure.Target(f, uint16(1000+g.IntN(5)))
				flows.Flows = append(flows.Flows, measure.Flow{From: netip.AddrPortFrom(a, measure.SourcePort), To: to})
				p := packet.Packet{
					In: "eth0", Source: a, Destination: to.Addr(), Protocol: protocol, SourcePort: measure.SourcePort, Port: to.Port(),
					DestinationLocal: packet.Yes, SourceLocal: packet.No, Owner: -1,
				}
				if protocol == packet.TCP {
					p.Flags = packet.SYN
				}
				packets = append(packets, p)
				want = append(want, reference.Follow(r, p, packet.In).Verdict == policy.Allow)
			}
			s, err := measure.Load(flows)
			if err != nil {
				t.Fatal(err)
			}
			out = append(out, traffic{s, packets, want})
		}
	}
	return out
}
