package reference

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"testing"

	"sluice/internal/base/packet"
	"sluice/internal/base/testseed"
	"sluice/internal/language/policy"
	"sluice/internal/language/resolve"
	"sluice/internal/program"
	"sluice/internal/program/compile"
	"sluice/internal/program/optimize"
	"sluice/internal/prove/reach"
)

// Random policies and packets: what Explain says against what package reach says
// of the compiled and optimized program, on all three ways.

const (
	policiesPerRun   = 150
	packetsPerPolicy = 200
)

func TestRandomExplainAgainstProgram(t *testing.T) {
	uncertain := 0
	g := generator{testseed.Rand(t), &uncertain}
	seen := map[string]int{}
	for range policiesPerRun {
		text := g.policy()
		p, err := policy.Parse("policy.yaml", []byte(text))
		if err != nil {
			t.Fatalf("%v\n%s", err, text)
		}
		r, err := resolve.Resolve(p, resolve.Options{Facts: town})
		if err != nil {
			t.Fatal(err)
		}
		plain, optimized := compiled(t, r, optional).BehindRouting(), compiled(t, r, nil).BehindRouting()
		for range packetsPerPolicy {
			p, way := g.packet()
			path := Explain(r, p, way)
			coherent(t, path)
			if short := Follow(r, p, way); short.Verdict != path.Verdict || short.Pos != path.Pos || short.Packet != path.Packet || len(short.Steps) > 0 {
				t.Errorf("%s: Follow has it %+v, Explain %+v", packetText(p), short, path)
			}
			seen[string(path.Hook)+" "+path.Stage+" "+string(path.Verdict)]++
			g.compare(t, plain, "compiled", p, way, path)
		}
		for range packetsPerPolicy {
			p, way := g.packet()
			g.compare(t, optimized, "optimized", p, way, Follow(r, p, way))
		}
		if t.Failed() {
			t.Fatalf("policy:\n%s", text)
		}
	}
	if all := 2 * policiesPerRun * packetsPerPolicy; uncertain > all/10 {
		t.Errorf("%d of %d packets were not compared", uncertain, all)
	}
	t.Logf("%d packets were not compared", uncertain)
	for _, hook := range []string{"input", "forward", "output"} {
		for _, stage := range Stages {
			if stage != "loopback" && stage != "held" && !slices.ContainsFunc([]string{"allow", "drop"}, func(a string) bool { return seen[hook+" "+stage+" "+a] > 0 }) &&
				(stage != "answers" || hook == "output") {
				t.Errorf("no packet was decided by %q of %s: the test shows nothing of it", stage, hook)
			}
		}
	}
}

// optional are the passes that a program is right without.
var optional = func() (names []string) {
	for _, p := range optimize.Passes {
		if !p.Required {
			names = append(names, p.Name)
		}
	}
	return names
}()

func compiled(t *testing.T, r *resolve.Resolved, without []string) *program.Program {
	t.Helper()
	p, err := compile.Compile(r)
	if err == nil {
		err = optimize.Run(p, optimize.Options{Check: true, Without: without})
	}
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// compare holds what the reference says of a packet against the program.
func (g generator) compare(t *testing.T, prog *program.Program, what string, p packet.Packet, way packet.Way, want Path) {
	t.Helper()
	asked := p
	asked.State = ""
	if state, _ := Begins(p); state != packet.New && want.Packet.State == state {
		asked.State = state // the kernel says so, whatever the program does
	}
	if p.State != "" {
		asked.State = p.State
	}
	got := reach.Evaluate(prog, asked, way)
	if !got.Certain || len(got.Doubts) > 0 {
		*g.uncertain++
		return // what only the routing table knows
	}
	if want.Stage == "ban" && got.Verdict == program.Accept && (want.Packet.State == packet.Established || want.Packet.State == packet.Related) {
		return // there is no such flow: who brings a ban deletes the flows of its addresses
	}
	actions := map[program.Verdict]policy.Action{program.Accept: policy.Allow, program.Drop: policy.Drop, program.Reject: policy.Reject}
	if actions[got.Verdict] != want.Verdict {
		t.Errorf("%s %s: the %s program says %s (%s), the reference %s (%s: %s)", way, packetText(p), what, got.Verdict, got.Describe(), want.Verdict, want.Stage, want.Text+want.Why)
		return
	}
	if got.Verdict == program.Drop && want.Rule != nil && (got.Rule == nil || got.Rule.Origin.Line != want.Pos.Line) {
		t.Errorf("%s %s: the %s program drops by %v, the reference by %s", way, packetText(p), what, got.Describe(), want.Pos)
	}
	a, b := got.Packet, want.Packet
	if a.State != b.State {
		t.Errorf("%s %s: the %s program says it is %s, the reference %s", way, packetText(p), what, a.State, b.State)
	}
	// The program knows no addresses of interfaces, and no new way of what output
	// has led elsewhere.
	if counted := slices.ContainsFunc(got.Done, func(d string) bool { return strings.HasPrefix(d, "count nat_") }); b.SNAT && !counted {
		t.Errorf("%s %s: the %s program gives it no other source, the reference does", way, packetText(p), what)
	}
	unknown := b.SNAT && a.Source == p.Source || way == packet.Out && b.DNAT
	here := b.DNAT && b.DestinationLocal == packet.Yes
	if !unknown && a.Source != b.Source || !here && a.Destination != b.Destination || a.Port != b.Port {
		t.Errorf("%s %s: the %s program makes it %s, the reference %s", way, packetText(p), what, packetText(a), packetText(b))
	}
}

func packetText(p packet.Packet) string {
	return fmt.Sprintf("protocol %d/%d flags %x %s > %s in %q out %q %s", p.Protocol, p.ICMPType, p.Flags,
		netip.AddrPortFrom(p.Source, p.SourcePort), netip.AddrPortFrom(p.Destination, p.Port), p.In, p.Out, p.State)
}

type generator struct {
	*rand.Rand
	uncertain *int // packets that were not compared
}

func pick[T any](g generator, list ...T) T { return list[g.IntN(len(list))] }

var (
	outsiders = []string{"203.0.113.7", "203.0.113.200", "192.0.2.66", "198.51.100.77", "2001:db8:77::7", "2001:db8:99::7", "fe80::9"}
	insiders  = []string{"10.20.0.5", "10.20.0.6", "10.99.0.5", "2001:db8:20::5", "2001:db8:20::6"}
	owns      = []string{"198.51.100.1", "198.51.100.9", "10.20.0.1", "2001:db8:100::1", "2001:db8:20::1"}
)

func (g generator) address(from ...[]string) string { return pick(g, slices.Concat(from...)...) }

// prefix is an address, a prefix or a range about it.
func (g generator) prefix(a string) string {
	ip := netip.MustParseAddr(a)
	bits := ip.BitLen() - g.IntN(24)
	switch {
	case bits == ip.BitLen():
		return ip.String()
	case ip.Is4() && g.IntN(3) == 0:
		to := ip.As4()
		to[3] |= byte(g.IntN(256))
		return a + "-" + netip.AddrFrom4(to).String()
	}
	return netip.PrefixFrom(ip, bits).Masked().String()
}

func (g generator) prefixes(n int) string {
	var out []string
	for range n {
		out = append(out, strconv.Quote(g.prefix(g.address(outsiders, insiders, outsiders))))
	}
	return strings.Join(out, ", ")
}

func (g generator) policy() string {
	var b strings.Builder
	b.WriteString(sides + "  bureau: { networks: [203.0.113.0/24, \"2001:db8:77::/48\"] }\nsets:\n")
	for _, name := range []string{"a", "b", "d"} {
		fmt.Fprintf(&b, "  %s: [%s]\n", name, g.prefixes(1+g.IntN(4)))
	}
	b.WriteString("  c: { union: [a, b], except: [d] }\n")
	b.WriteString("  ends: { endpoints: [\"198.51.100.1 tcp/80\", \"2001:db8:100::1 udp/53\"] }\n")
	if g.IntN(2) == 0 {
		fmt.Fprintf(&b, "ban: [%s]\n", pick(g, "a", "d, 192.0.2.66", "192.0.2.66", "c", "224.0.0.0/4, 198.51.100.0/24, \"fe80::/10\""))
		if g.IntN(2) == 0 {
			fmt.Fprintf(&b, "never-ban: [%s]\n", pick(g, "b", "203.0.113.7", "d"))
		}
	}
	var tracking []string
	if g.IntN(2) == 0 {
		tracking = append(tracking, "bypass: ["+pick(g, "http", "udp/53", "tcp/443, dns", "tcp/80 to ends, udp/53 to ends", "tcp/80 to 198.51.100.1, tcp/22 to 198.51.100.9, 'http to 2001:db8:100::1'", "dns to c")+"]")
	}
	if g.IntN(4) == 0 {
		tracking = append(tracking, "invalid: allow")
	}
	if len(tracking) > 0 {
		fmt.Fprintf(&b, "tracking:\n  %s\n", strings.Join(tracking, "\n  "))
	}
	g.nat(&b)
	for _, section := range []string{"input", "forward", "output"} {
		if g.IntN(6) == 0 {
			continue
		}
		fmt.Fprintf(&b, "%s:\n  default: %s\n  rules:\n", section, pick(g, "drop", "drop", "reject", "allow"))
		for range 1 + g.IntN(10) {
			fmt.Fprintf(&b, "    - %s\n", g.rule(section))
		}
	}
	return b.String()
}

func (g generator) nat(b *strings.Builder) {
	if g.IntN(3) == 0 {
		return
	}
	b.WriteString("nat:\n")
	for range 1 + g.IntN(4) {
		fmt.Fprintf(b, "  - '%s'\n", pick(g,
			"masquerade from lan out wan", "masquerade out wan ipv4", "masquerade from a out wan as 198.51.100.9", "masquerade from not lan out wan as 198.51.100.9", "masquerade from not [lan, b] out wan as 2001:db8:100::1", "masquerade from [10.20.0.5, b] out wan",
			"redirect tcp/8080 in wan to 10.20.0.5:80", "redirect tcp/2222 in wan to :22", "redirect [tcp/443, udp/443] on 198.51.100.9 to 10.20.0.6",
			"redirect tcp/80 on 2001:db8:100::1 to [2001:db8:20::6]:443", "redirect udp/53 on 198.51.100.77 to 203.0.113.7",
			"map 198.51.100.64/28 to 10.20.0.0/28", "map 2001:db8:100:f::/64 to 2001:db8:20::/64",
			"map 198.51.100.96/28 to 10.20.0.0/28 stateless", "map 2001:db8:100:e::/64 to 2001:db8:20::/64 stateless"))
	}
}

func (g generator) rule(section string) string {
	words := []string{
		pick(g, "allow", "allow", "drop", "reject"),
		pick(g, "any", "tcp", "udp", "ssh", "http", "dns", "ping", "vrrp", "tcp/1000-2000", "[tcp/80, tcp/443]", "[udp/53, ping]", "[tcp/80, tcp]", "[http, udp]", "udp/1024-8080", "proto/112", "icmp", "icmp time-exceeded"),
	}
	if section != "output" && g.IntN(8) == 0 {
		words[1] = "published " + pick(g, "tcp/8080", "tcp/2222", "tcp", "any", "udp/53")
	}
	if g.IntN(4) == 0 && !strings.Contains(words[1], "icmp") {
		words = append(words, pick(g, "ipv4", "ipv6"))
	}
	who := func(zones ...string) string {
		not := pick(g, "", "", "", "not ")
		switch g.IntN(4) {
		case 0:
			return not + pick(g, "a", "b", "c", "d")
		case 1:
			return not + "[" + pick(g, "a", "d") + ", " + pick(g, "b", "c") + "]"
		}
		return not + pick(g, append(zones, "a", "c")...)
	}
	if g.IntN(2) == 0 && section != "output" {
		words = append(words, "from", who("lan", "bureau", "wan"))
	}
	if g.IntN(3) == 0 && section != "input" {
		words = append(words, "to", who("lan", "bureau", "wan"))
	}
	if g.IntN(5) == 0 && section != "input" {
		words = append(words, "out", pick(g, "wan", "lan"))
	}
	if g.IntN(5) == 0 && section != "output" {
		words = append(words, "in", pick(g, "wan", "lan"))
	}
	if g.IntN(3) == 0 && section == "output" {
		words = append(words, "by user", pick(g, "25", "[25, 1000]"))
	}
	if g.IntN(6) == 0 {
		words = append(words, pick(g, "limit 10/minute", "max 20 connections", "log \"x\""))
	}
	line := strings.Join(words, " ")
	if strings.Contains(line, "max ") {
		line = strings.Replace(strings.Replace(line, "drop", "allow", 1), "reject", "allow", 1)
	}
	return "'" + line + "'"
}

// packet is a random packet on a way on which it can be.
func (g generator) packet() (packet.Packet, packet.Way) {
	for {
		way := pick(g, packet.In, packet.In, packet.Through, packet.Out)
		p := packet.Packet{Owner: -1, HopLimit: 64, SourcePort: pick[uint16](g, 40000, 40000, 22, 53, 80, 443, 67, 547), Port: pick[uint16](g, 22, 25, 53, 80, 443, 1024, 1500, 2000, 8080, 2222, 68, 546, 40000)}
		var from, to string
		switch way {
		case packet.In:
			p.In, from, to = "wan0", g.address(outsiders), g.address(owns)
			if g.IntN(3) == 0 {
				p.In, from = "lan0", g.address(insiders)
			}
			if g.IntN(30) == 0 {
				to = pick(g, "224.0.0.1", "ff02::1", "255.255.255.255")
			}
		case packet.Through:
			p.In, p.Out, from, to = "wan0", "lan0", g.address(outsiders), g.address(insiders)
			if g.IntN(2) == 0 {
				p.In, p.Out, from, to = "lan0", "wan0", g.address(insiders), g.address(outsiders, []string{"198.51.100.70", "198.51.100.101"})
			}
			if g.IntN(4) == 0 {
				to = pick(g, "198.51.100.70", "198.51.100.101", "2001:db8:100:f::5", "2001:db8:100:e::6")
			}
		case packet.Out:
			p.Out, from, to, p.Owner = "wan0", g.address(owns), g.address(outsiders), pick[int64](g, 0, 25, 1000)
			if g.IntN(3) == 0 {
				p.Out, to = "lan0", g.address(insiders)
			}
			switch g.IntN(20) { // resets in another's name
			case 0:
				from = "10.20.0.5"
			case 1:
				p.Out, from, to = "lan0", "203.0.113.200", "10.20.0.5"
			}
		}
		p.Source, p.Destination = netip.MustParseAddr(from), netip.MustParseAddr(to)
		if p.Source.Is4() != p.Destination.Is4() {
			continue
		}
		g.protocol(&p)
		if way == packet.Out && !slices.Contains(owns, from) {
			p.Protocol, p.Flags = packet.TCP, packet.RST|packet.ACK
		}
		if g.IntN(6) == 0 {
			p.State = pick(g, packet.New, packet.Invalid, packet.Established, packet.Related)
		}
		p.SourceLocal, p.DestinationLocal = packet.Is(Own(town, p.Source)), packet.Is(Own(town, p.Destination))
		if known := p.State == packet.Established || p.State == packet.Related; known && g.IntN(2) == 0 {
			p.Reply = true
		}
		return p, way
	}
}

func (g generator) protocol(p *packet.Packet) {
	v6 := p.Source.Is6()
	switch g.IntN(7) {
	case 0:
		p.Protocol, p.SourcePort, p.Port = packet.ICMP, 0, 0
		p.ICMPType = pick[uint8](g, 8, 8, 0, 3, 11, 5, 13)
		if v6 {
			p.Protocol, p.ICMPType = packet.ICMPv6, pick[uint8](g, 128, 128, 129, 1, 2, 135, 131, 137, 148)
			p.HopLimit = pick[uint8](g, 64, 255)
		}
	case 1:
		p.Protocol, p.SourcePort, p.Port = 112, 0, 0
	case 2, 3:
		p.Protocol = packet.UDP
	default:
		p.Protocol = packet.TCP
		p.Flags = pick[uint8](g, packet.SYN, packet.SYN, packet.ACK, packet.SYN|packet.ACK, packet.RST, packet.RST|packet.ACK, packet.FIN|packet.ACK, packet.PSH|packet.ACK, 0)
	}
}
