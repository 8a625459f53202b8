package query

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"sluice/internal/base/packet"
	"sluice/internal/base/testseed"
	"sluice/internal/language/geo"
	"sluice/internal/language/policy"
	"sluice/internal/language/resolve"
	"sluice/internal/program"
	"sluice/internal/program/compile"
	"sluice/internal/program/optimize"
	"sluice/internal/prove/reach"
	"sluice/internal/prove/reference"
)

// compiled makes the program of a policy with what every program needs.
func compiled(t testing.TB, r *resolve.Resolved) Compiled {
	t.Helper()
	p, err := compile.Compile(r)
	if err != nil {
		t.Fatal(err)
	}
	var without []string
	for _, pass := range optimize.Passes {
		if !pass.Required {
			without = append(without, pass.Name)
		}
	}
	if err := optimize.Run(p, optimize.Options{Without: without}); err != nil {
		t.Fatal(err)
	}
	return Compiled{Resolved: r, Program: p}
}

// randomPolicy is the parts of a policy that may be changed.
type randomPolicy struct {
	sets, ban, bypass, nat []string
	rules                  map[string][]string
	defaults               map[string]string
}

var sections = []string{"input", "forward", "output"}

func pick[T any](r *rand.Rand, list ...T) T { return list[r.IntN(len(list))] }

func (p randomPolicy) text() string {
	var b strings.Builder
	b.WriteString("version: 1\nzones:\n  wan: { interfaces: [eth0] }\n  lan: { interfaces: [lan0], networks: [10.20.0.0/24, \"2001:db8:20::/64\"] }\n  nets: { networks: [10.30.0.0/16] }\nsets:\n")
	b.WriteString("  office: [203.0.113.0/24, \"2001:db8:77::/48\"]\n  many: [" + strings.Join(p.sets, ", ") + "]\n")
	b.WriteString("ban: [" + strings.Join(p.ban, ", ") + "]\n")
	if len(p.bypass) > 0 {
		b.WriteString("tracking:\n  bypass: [" + strings.Join(p.bypass, ", ") + "]\n")
	}
	for _, s := range sections {
		if p.defaults[s] == "" {
			continue
		}
		b.WriteString(s + ":\n  default: " + p.defaults[s] + "\n  rules:\n")
		for _, r := range p.rules[s] {
			b.WriteString("    - " + r + "\n")
		}
	}
	b.WriteString("nat:\n")
	for _, n := range p.nat {
		b.WriteString("  - " + n + "\n")
	}
	return b.String()
}

func randomRule(r *rand.Rand, section string) string {
	words := []string{pick(r, "allow", "allow", "drop", "reject")}
	if section != "output" && r.IntN(8) == 0 {
		return words[0] + " published " + pick(r, "tcp/8080", "tcp/81", "tcp") + pick(r, "", " from office", " from not many")
	}
	words = append(words, pick(r, "any", "ssh", "http", "tcp/80", "tcp/20-25", "udp", "udp/53", "[ssh, udp/53]", "icmp echo-request", "icmp", "proto/47"))
	if r.IntN(5) == 0 {
		words = append(words, pick(r, "ipv4", "ipv6"))
	}
	who := func(zones ...string) string {
		return pick(r, append(zones, "office", "many", "nets", "203.0.113.0/25", "not office", "not many", "[office, 192.0.2.7]", "2001:db8:77::/49")...)
	}
	if r.IntN(2) == 0 {
		if section == "output" {
			words = append(words, "to", who("wan"))
		} else {
			words = append(words, "from", who("lan", "wan", "not lan"))
		}
	}
	if section == "forward" && r.IntN(2) == 0 {
		words = append(words, "to", who("lan", "wan", "10.20.0.5"))
	}
	if section == "output" && r.IntN(5) == 0 {
		words = append(words, "by user postfix")
	}
	if words[0] == "allow" && r.IntN(8) == 0 {
		words = append(words, pick(r, "limit 10/second", "limit 6/30s per source", "max 5 connections", "log \"a\""))
	}
	return strings.Join(words, " ")
}

func newRandomPolicy(r *rand.Rand) randomPolicy {
	p := randomPolicy{rules: map[string][]string{}, defaults: map[string]string{}}
	for range 5 {
		p.sets = append(p.sets, fmt.Sprintf("192.0.2.%d/%d", 16*r.IntN(16), 28+r.IntN(5)))
	}
	p.sets = slices.Compact(slices.Sorted(slices.Values(p.sets)))
	p.ban = []string{pick(r, "192.0.2.66", "203.0.113.64/26", "many")}
	if r.IntN(3) == 0 {
		p.bypass = []string{pick(r, "http", "udp/53")}
	}
	for _, s := range sections {
		if p.defaults[s] = pick(r, "drop", "drop", "allow", "reject", ""); p.defaults[s] == "" {
			continue
		}
		for range 1 + r.IntN(5) {
			p.rules[s] = append(p.rules[s], randomRule(r, s))
		}
	}
	for _, n := range []string{
		"masquerade from lan out wan ipv4",
		"redirect tcp/8080 in wan to 10.20.0.5:80",
		"redirect tcp/81 in wan to :80",
		pick(r, "map 198.51.100.16/28 to 10.20.0.16/28", "map 198.51.100.16/28 to 10.20.0.16/28 stateless"),
	} {
		if r.IntN(3) == 0 {
			p.nat = append(p.nat, n)
		}
	}
	return p
}

// changed is the policy with a few things done otherwise.
func (p randomPolicy) changed(r *rand.Rand) randomPolicy {
	out := randomPolicy{slices.Clone(p.sets), slices.Clone(p.ban), slices.Clone(p.bypass), slices.Clone(p.nat), map[string][]string{}, map[string]string{}}
	for _, s := range sections {
		out.rules[s], out.defaults[s] = slices.Clone(p.rules[s]), p.defaults[s]
	}
	for range 1 + r.IntN(3) {
		s := pick(r, sections...)
		rules := out.rules[s]
		switch r.IntN(7) {
		case 0:
			out.sets = append(out.sets, pick(r, "192.0.2.7", "198.51.100.128/25", "\"2001:db8:9::/48\""))
		case 1:
			out.ban = []string{pick(r, "192.0.2.66", "203.0.113.64/26", "many", "office")}
		case 2:
			out.defaults[s] = pick(r, "drop", "allow", "reject")
		case 3:
			if len(rules) > 1 {
				i := r.IntN(len(rules) - 1)
				rules[i], rules[i+1] = rules[i+1], rules[i]
			}
		case 4:
			if len(rules) > 1 {
				out.rules[s] = slices.Delete(rules, 0, 1)
			}
		case 5:
			if len(out.nat) > 0 {
				out.nat = out.nat[1:]
			}
		default:
			out.rules[s] = slices.Insert(rules, r.IntN(len(rules)+1), randomRule(r, s))
			if out.defaults[s] == "" {
				out.defaults[s] = "drop"
			}
		}
	}
	return out
}

// parsed reads a random policy; false where the language refuses it.
func parsed(t testing.TB, name string, p randomPolicy) (*resolve.Resolved, bool) {
	t.Helper()
	if _, err := policy.LoadData(name, []byte(p.text())); err != nil {
		return nil, false
	}
	return resolved(t, name, p.text()), true
}

func randomPacket(r *rand.Rand) (packet.Packet, reach.Way) {
	six := r.IntN(3) == 0
	far := func() netip.Addr {
		if six {
			return netip.MustParseAddr(pick(r, "2001:db8:77::1", "2001:db8:77:8000::1", "2001:db8:78::1", "2001:db8:20::5", "2001:db8:9::9", "fe80::7"))
		}
		return netip.MustParseAddr(pick(r, "203.0.113.1", "203.0.113.127", "203.0.113.128", "203.0.113.70", "192.0.2.7", "192.0.2.66", "192.0.2.40",
			fmt.Sprintf("192.0.2.%d", r.IntN(256)), "10.20.0.5", "10.20.0.17", "198.51.100.17", "10.30.1.1", "198.51.100.200", "8.8.8.8"))
	}
	here := netip.MustParseAddr("198.51.100.1")
	if six {
		here = netip.MustParseAddr("2001:db8::1")
	}
	p := packet.Packet{Source: far(), Destination: far(), Owner: -1, HopLimit: pick[uint8](r, 64, 255), SourceLocal: packet.No, DestinationLocal: packet.No}
	way := pick(r, reach.In, reach.Through, reach.Out)
	switch way {
	case reach.In:
		// A packet does not say whether its destination is of the interface that
		// it comes in by, so here it always is.
		p.In, p.Destination, p.DestinationLocal = "eth0", here, packet.Yes
		if !six && r.IntN(3) == 0 {
			p.In, p.Destination = "lan0", netip.MustParseAddr("10.20.0.1")
		}
	case reach.Through:
		p.In, p.Out = pick(r, "eth0", "lan0", "wg0"), pick(r, "eth0", "lan0", "wg0")
	case reach.Out:
		p.Out, p.Source, p.SourceLocal, p.Owner = pick(r, "eth0", "lan0"), here, packet.Yes, pick[int64](r, -1, 0, 1000)
	}
	p.State = pick(r, packet.New, packet.New, packet.New, packet.New, packet.Established, packet.Related, packet.Invalid)
	p.Protocol = pick[uint8](r, packet.TCP, packet.TCP, packet.UDP, packet.ICMP, 47, 132)
	if p.Protocol == packet.ICMP && six {
		p.Protocol = packet.ICMPv6
	}
	switch p.Protocol {
	case packet.TCP:
		p.Flags = pick[uint8](r, packet.SYN, packet.ACK, packet.SYN|packet.ACK, packet.RST)
	case packet.ICMP:
		p.ICMPType = pick[uint8](r, 8, 3, 0, 13)
	case packet.ICMPv6:
		p.ICMPType = pick[uint8](r, 128, 1, 129, 133)
	}
	if p.HasPorts() {
		ports := []uint16{19, 20, 22, 25, 26, 53, 80, 81, 8080, 40000}
		p.Port, p.SourcePort = pick(r, ports...), pick(r, append(ports, 40000, 40000)...)
	}
	return p, way
}

// TestDiffAgainstReference holds the classes of a difference to single packets of
// which the reference, which knows nothing of programs and classes, says what
// the two policies mean: those that it treats otherwise are in a class of that
// kind, and no others are.
func TestDiffAgainstReference(t *testing.T) {
	seed := testseed.Of(t)
	r := rand.New(rand.NewPCG(seed, 1))
	pairs, packets, moved := 30, 400, 0
	if testing.Short() {
		pairs = 15
	}
	for n := 0; n < pairs; {
		a := newRandomPolicy(r)
		b := a.changed(r)
		oldPolicy, ok1 := parsed(t, "old.yaml", a)
		newPolicy, ok2 := parsed(t, "new.yaml", b)
		if !ok1 || !ok2 {
			continue
		}
		n++
		d, err := Compare(t.Context(), compiled(t, oldPolicy), compiled(t, newPolicy), geo.Snapshot)
		if err != nil {
			t.Fatalf("%v\n--- old\n%s--- new\n%s", err, a.text(), b.text())
		}
		wholeBrief(t, d)
		for range packets {
			p, way := randomPacket(r)
			was, is := Follow(oldPolicy, p, way), Follow(newPolicy, p, way)
			if settled(p, was) || settled(p, is) {
				continue
			}
			want := Kind("")
			if was.Verdict != is.Verdict {
				moved++
				want = verdictKind(verdictOf[was.Verdict], verdictOf[is.Verdict])
			}
			told := leaves(p, was, is)
			if resets := way == reach.Out && p.Protocol == packet.TCP && p.Flags&packet.RST != 0; told.Begins() && !resets {
				told.State = packet.New // what another flow expects is told of with it
			}
			got := d.kindOf(told, way)
			if got != want {
				t.Fatalf("packet %s %+v\nwas %s, is %s: want %q, the classes say %q\n--- old\n%s--- new\n%s", way, p, was.Verdict, is.Verdict, want, got, a.text(), b.text())
			}
		}
	}
	if moved < pairs {
		t.Errorf("only %d packets were treated otherwise", moved)
	}
}

var verdictOf = map[policy.Action]program.Verdict{policy.Allow: program.Accept, policy.Drop: program.Drop, policy.Reject: program.Reject}

// settled says that the packet is of a flow of a banned address: apply deletes
// these, so there are none, and nobody asks what happens to their packets.
func settled(p packet.Packet, path reference.Path) bool {
	return (p.State == packet.Established || p.State == packet.Related) && path.Stage == "ban"
}

// leaves is the packet with the interface that it leaves by, where it is for this
// host and led elsewhere.
func leaves(p packet.Packet, paths ...reference.Path) packet.Packet {
	for _, path := range paths {
		if p.Out == "" && path.Hook == policy.Forward {
			p.Out = path.Packet.Out
		}
	}
	return p
}

// kindOf is the change of the verdict that a packet is in, by the classes and by
// the addresses that their words name. What changes over a limit alone is told of
// packets that no limit refuses, as the reference takes all to be.
func (d *Diff) kindOf(p packet.Packet, way reach.Way) Kind {
	over := func(how string) bool { return strings.HasSuffix(how, " over it") }
	for _, c := range d.Changes {
		if slices.ContainsFunc(c.New.How, over) {
			continue
		}
		if !slices.Contains([]Kind{Opened, Closed, Rejected, Silenced}, c.Kind) || (c.Hook == string(reach.Out)) != (way == reach.Out) || !d.universe.Holds(c.region, p) {
			continue
		}
		if c.From != nil && !c.From.set.Contains(p.Source) || c.To != nil && !c.To.set.Contains(p.Destination) {
			return "the words leave the packet out"
		}
		return c.Kind
	}
	return ""
}

// TestQueryAgainstReference holds every class of a query to single packets too:
// each packet is in classes of its own verdict alone, and in one at least.
func TestQueryAgainstReference(t *testing.T) {
	seed := testseed.Of(t)
	r := rand.New(rand.NewPCG(seed, 2))
	for n := 0; n < 20; {
		a := newRandomPolicy(r)
		meant, ok := parsed(t, "policy.yaml", a)
		if !ok {
			continue
		}
		n++
		states := []packet.State{packet.New, packet.Established, packet.Related, packet.Invalid}
		answers, u, err := query(compiled(t, meant), Words{States: states}, nil, geo.Snapshot)
		if err != nil {
			t.Fatalf("%v\n%s", err, a.text())
		}
		for range 300 {
			p, way := randomPacket(r)
			path := Follow(meant, p, way)
			if section := map[policy.Hook]*policy.Section{policy.Input: meant.Policy.Input, policy.Forward: meant.Policy.Forward, policy.Output: meant.Policy.Output}[path.Hook]; section == nil {
				continue // not asked about
			}
			found := map[string]bool{}
			for _, c := range answers {
				if c.Hook == string(path.Hook) && u.Holds(c.region, leaves(p, path)) {
					found[c.Verdict] = true
				}
			}
			if want := path.Verdict.Done(); len(found) != 1 || !found[want] {
				t.Fatalf("packet %s %+v\nis %s by %s, the classes say %v\n%s", way, p, want, path.Why, found, a.text())
			}
		}
	}
}
