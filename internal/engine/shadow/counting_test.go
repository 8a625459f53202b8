package shadow_test

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"sluice/internal/base/addrset"
	"sluice/internal/base/packet"
	"sluice/internal/base/testseed"
	"sluice/internal/engine/shadow"
	"sluice/internal/language/policy"
	"sluice/internal/language/resolve"
	"sluice/internal/program"
	"sluice/internal/program/optimize"
	"sluice/internal/prove/reach"
	"sluice/internal/prove/reference"
	"sluice/internal/system/host"
)

// judgeable is a copy of which every packet has one verdict: rules in their order, and
// nobody in the sets that packets or commands fill.
func judgeable(p *program.Program) *program.Program {
	out := *p
	// Bans at ingress are those of the filter chains, asked by addresses of the day.
	out.Hooks = slices.DeleteFunc(slices.Clone(p.Hooks), func(h program.Hook) bool { return h.Kind == program.Ingress })
	out.Sets = slices.Clone(p.Sets)
	for i := range out.Sets {
		if s := &out.Sets[i]; s.Life == program.Dynamic {
			s.Life, s.Commands, s.Size = program.Static, false, 0
		}
	}
	out.Chains = slices.Clone(p.Chains)
	for i := range out.Chains {
		c := &out.Chains[i]
		c.Rules = slices.Clone(c.Rules)
		if slices.ContainsFunc(out.Hooks, func(h program.Hook) bool { return h.Chain == c.Name }) {
			shadow.SortStages(c.Rules)
		}
	}
	return &out
}

// asFilter is the counting program where its verdicts are looked for.
func asFilter(p *program.Program) *program.Program {
	out := judgeable(p)
	out.Hooks = nil
	for _, h := range p.Hooks {
		if h.Phase == program.Watching {
			h.Phase = program.Filter
			out.Hooks = append(out.Hooks, h)
		}
	}
	return out
}

// boundaries are the values that a program's conditions name, and their neighbours.
type boundaries struct {
	*rand.Rand
	addresses  []netip.Addr
	ports      []uint64
	protocols  []uint64
	types      []uint64
	interfaces []string
	users      []uint64
}

func boundariesOf(r *rand.Rand, p *program.Program) *boundaries {
	b := &boundaries{
		Rand: r, ports: []uint64{22, 80, 443, 1, 65535}, protocols: []uint64{1, 6, 6, 6, 17, 17, 58, 47, 132}, types: []uint64{0, 3, 8, 128, 135},
		interfaces: []string{"lo", "eth0", "other0"}, users: []uint64{0, 1},
		addresses: []netip.Addr{netip.MustParseAddr("198.18.0.1"), netip.MustParseAddr("2001:db8:ffff::1"), netip.MustParseAddr("127.0.0.1"), netip.MustParseAddr("::1")},
	}
	for i := range p.Sets {
		b.addressesOf(p.Sets[i].Addresses)
		for _, e := range p.Sets[i].Elements {
			for _, v := range e.Parts {
				b.value(p.Sets[i].Key[0], v)
			}
		}
	}
	for i := range p.Chains {
		for _, rule := range p.Chains[i].Rules {
			for _, c := range rule.Match {
				for _, a := range c.Addresses {
					b.addressesOf(addrset.Of(addrset.Range{From: a.From, To: a.To}))
				}
				for _, n := range c.Numbers {
					b.value(c.Field, program.Value{Numbers: n})
				}
				if c.Field == program.InInterface || c.Field == program.OutInterface {
					for _, name := range c.Names {
						b.interfaces = append(b.interfaces, strings.Replace(name, "*", "7", 1))
					}
				}
			}
		}
	}
	return b
}

func (b *boundaries) addressesOf(s addrset.Set) {
	n := 0
	for r := range s.Each() {
		if n++; n > 50 {
			return
		}
		b.addresses = append(b.addresses, r.From, r.To, r.To.Next())
		if before := r.From.Prev(); before.IsValid() {
			b.addresses = append(b.addresses, before)
		}
	}
}

func (b *boundaries) value(f program.Field, v program.Value) {
	switch f {
	case program.Port, program.SourcePort, program.OriginalPort:
		b.ports = append(b.ports, v.Numbers.From, v.Numbers.To, v.Numbers.To+1)
	case program.Protocol:
		b.protocols = append(b.protocols, v.Numbers.From)
	case program.ICMPType, program.ICMPv6Type:
		b.types = append(b.types, v.Numbers.From)
	case program.Owner:
		b.users = append(b.users, v.Numbers.From)
	default:
		if v.Addresses.From.IsValid() {
			b.addressesOf(addrset.Of(addrset.Range{From: v.Addresses.From, To: v.Addresses.To}))
		}
	}
}

func one[T any](r *rand.Rand, list []T) T { return list[r.IntN(len(list))] }

func (b *boundaries) packet(way reach.Way) packet.Packet {
	p := packet.Packet{Protocol: uint8(one(b.Rand, b.protocols)), HopLimit: uint8(one(b.Rand, []int{64, 255})), Length: 100, Owner: -1}
	p.Source = one(b.Rand, b.addresses)
	for p.Destination = one(b.Rand, b.addresses); !p.Destination.IsValid() || p.Destination.Is4() != p.Source.Is4() || p.Destination == p.Source; {
		p.Source, p.Destination = one(b.Rand, b.addresses), one(b.Rand, b.addresses)
	}
	if !p.Source.IsValid() || p.Protocol == packet.ICMP && p.Source.Is6() || p.Protocol == packet.ICMPv6 && p.Source.Is4() {
		return b.packet(way)
	}
	p.SourceLocal, p.DestinationLocal = packet.No, packet.No
	switch way {
	case reach.In:
		p.In, p.DestinationLocal = one(b.Rand, b.interfaces), packet.Yes
	case reach.Through:
		p.In, p.Out = one(b.Rand, b.interfaces), one(b.Rand, b.interfaces)
	case reach.Out:
		p.Out, p.SourceLocal, p.Owner = one(b.Rand, b.interfaces), packet.Yes, int64(one(b.Rand, b.users))
	}
	switch {
	case p.HasPorts():
		p.SourcePort, p.Port = uint16(one(b.Rand, b.ports)), uint16(one(b.Rand, b.ports))
		if p.Protocol == packet.TCP {
			p.Flags = uint8(one(b.Rand, []int{packet.SYN, packet.SYN | packet.ACK, packet.ACK, packet.RST}))
		}
	case p.Protocol == packet.ICMP || p.Protocol == packet.ICMPv6:
		p.ICMPType = uint8(one(b.Rand, b.types))
	}
	return p
}

// verdictOf is what a counting program counted a packet as.
func verdictOf(l *shadow.Legend, done []string) (lines []shadow.Line) {
	for _, line := range l.Lines {
		if slices.Contains(done, "count "+line.Counter) {
			lines = append(lines, line)
		}
	}
	return lines
}

// TestCountsAreTheCandidatesVerdicts asks the candidate and its counting form about the
// same packets: the same verdict, counted once, on the line that decided.
func TestCountsAreTheCandidatesVerdicts(t *testing.T) {
	tries := 1500
	if testing.Short() {
		tries = 200
	}
	for name, tried := range candidates(t) {
		t.Run(name, func(t *testing.T) {
			r := testseed.Rand(t) // of the policy's own name: they come in any order
			p := tried.program
			program1, legend := counting(t, p)
			if err := optimize.Run(program1, optimize.Options{Check: true, Without: []string{"base-chains", "terminal"}}); err != nil {
				t.Fatal(err)
			}
			if err := shadow.Checked(program1); err != nil {
				t.Fatal(err)
			}
			c := comparison{T: t, candidate: judgeable(p), shadow: asFilter(program1), legend: legend, resolved: tried.resolved}
			b := boundariesOf(r, p)
			for range tries {
				for _, way := range []reach.Way{reach.In, reach.Through, reach.Out} {
					if p.Base(program.HookKind(way), program.Filter) != nil {
						c.packet(b.packet(way), way, one(r, []packet.State{packet.New, packet.New, packet.Established, packet.Related, packet.Invalid, packet.Untracked}))
					}
				}
				if t.Failed() {
					return
				}
			}
			if c.judged == 0 {
				t.Error("no packet was judged")
			}
			t.Logf("%d judged, %d not", c.judged, c.unjudged)
		})
	}
}

// ordinary says that the addresses are such as travel between hosts: about others the
// reference knows more than a program does.
func ordinary(p packet.Packet) bool {
	for _, a := range []netip.Addr{p.Source, p.Destination} {
		if a.IsLoopback() || a.IsMulticast() || a.IsUnspecified() || a.IsLinkLocalUnicast() || a == netip.MustParseAddr("255.255.255.255") {
			return false
		}
	}
	return p.In != "lo" && p.Out != "lo"
}

type comparison struct {
	*testing.T
	candidate, shadow *program.Program
	legend            *shadow.Legend
	resolved          *resolve.Resolved
	judged, unjudged  int
}

func (c *comparison) packet(p packet.Packet, way reach.Way, state packet.State) {
	p.State = ""
	neverTracked := p.Protocol == packet.ICMPv6 && (p.ICMPType >= 130 && p.ICMPType <= 136 || p.ICMPType == 143)
	if neverTracked {
		p.State, state = packet.Untracked, packet.Untracked
	}
	first := reach.Evaluate(c.candidate, p, way)
	p.State = state
	counted := reach.Evaluate(c.shadow, p, way)
	lines := verdictOf(c.legend, counted.Done)
	fail := func(text string) {
		c.Helper()
		c.Errorf("%s\npacket %+v %s\ncandidate %+v\nshadow %+v\nlines %+v", text, p, way, first, counted, lines)
	}
	switch {
	case !first.Certain || !counted.Certain:
		return // what it asks nobody can tell from a packet alone
	case counted.Verdict != program.Accept:
		fail("the shadow does not accept")
		return
	case len(lines) != 1:
		fail("not one line")
		return
	}
	untracked := first.Packet.State == packet.Untracked
	rewritten := first.Packet.Destination != p.Destination || first.Packet.Port != p.Port || first.Packet.DNAT
	if lines[0].Verdict == shadow.Unjudged {
		c.unjudged++
		if !rewritten && (untracked || state != packet.Untracked) {
			fail("nothing keeps it from being judged")
		}
		return
	}
	if rewritten && state == packet.New {
		fail("judged by an address that the candidate would rewrite")
		return
	}
	if rewritten && state == packet.Untracked {
		return // decided before the state is asked, which addresses had no part in
	}
	want := first
	switch {
	case untracked:
	case state == packet.Untracked:
		// Decided before the state is asked: whatever it is, the verdict is one.
		p.State = packet.Established
		if other := reach.Evaluate(c.candidate, p, way); !rewritten && other.Verdict != first.Verdict {
			fail("judged by a state that the candidate does not see")
		}
	default:
		want = reach.Evaluate(c.candidate, p, way)
	}
	c.judged++
	is := map[shadow.Verdict]program.Verdict{shadow.Allow: program.Accept, shadow.Drop: program.Drop, shadow.Reject: program.Reject}[lines[0].Verdict]
	if is != want.Verdict {
		first = want
		fail("another verdict")
		return
	}
	if !rewritten && ordinary(p) {
		asked := p
		if untracked {
			asked.State = ""
		}
		if neverTracked || state == packet.Untracked {
			asked.State = packet.Untracked
		}
		path := reference.Follow(c.resolved, asked, way)
		if map[policy.Action]program.Verdict{policy.Allow: program.Accept, policy.Drop: program.Drop, policy.Reject: program.Reject}[path.Verdict] != is {
			fail(fmt.Sprintf("the reference says %s at %s: %+v", path.Verdict, path.Stage, path))
			return
		}
	}
	line, unwritten := strings.CutPrefix(lines[0].Counter, string(lines[0].Hook)+".")
	if strings.HasPrefix(line, "unwritten.") || line == "end" {
		return
	}
	if !unwritten || !slices.Contains(want.Done, "count "+line) {
		first = want
		fail("counted on another line")
	}
}

// What commands ban would be dropped by every policy, and what is never banned by none.
func TestBansByCommandAreCounted(t *testing.T) {
	p := candidates(t)["bans"].program
	banned := addrset.FromPrefixes(netip.MustParsePrefix("198.18.7.0/24"), netip.MustParsePrefix("169.254.0.0/16"))
	out, legend, err := shadow.Counting(p, banned)
	if err != nil {
		t.Fatal(err)
	}
	for source, want := range map[string]bool{"198.18.7.255": true, "198.18.8.0": false, "169.254.1.1": false} {
		r := reach.Evaluate(asFilter(out), packet.Packet{
			In: "eth0", Source: netip.MustParseAddr(source), Destination: netip.MustParseAddr("198.18.0.9"), Protocol: packet.UDP, SourcePort: 1000, Port: 9,
			State: packet.New, SourceLocal: packet.No, DestinationLocal: packet.Yes, HopLimit: 64, Length: 60, Owner: -1,
		}, reach.In)
		lines := verdictOf(legend, r.Done)
		if len(lines) != 1 || (lines[0].Counter == "input.ban_by_command") != want || lines[0].Counter == "input.ban_by_command" && lines[0].Verdict != shadow.Drop {
			t.Errorf("%s: %+v", source, lines)
		}
	}
}

// Limits that count completed handshakes where they are enforced count what begins
// connections here, in the same buckets and with the same bans, and no label of a
// connection is set or asked: those are the running firewall's.
func TestHandshakesAreCountedAsConnectionsBegin(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "policy.yaml"), []byte(`version: 1
input: { default: drop, rules: [allow ssh limit 6/30s per source then ban 10m, allow tcp/80 limit 10/minute per source] }
forward: { default: drop, rules: [allow tcp/443 limit 7/minute per source] }
`), 0o600); err != nil {
		t.Fatal(err)
	}
	p, _ := compiled(t, dir, host.Facts{})
	out, legend := counting(t, p)
	limits := map[uint64]program.Limit{}
	for i := range out.Chains {
		for _, r := range out.Chains[i].Rules {
			if text := fmt.Sprint(r.Match); strings.Contains(text, "label-") || strings.Contains(text, program.Socket) {
				t.Errorf("chain %s asks %s", out.Chains[i].Name, text)
			}
			for _, a := range r.Actions {
				if l, is := a.(program.Limit); is {
					limits[l.Rate.Packets] = l
					if l.Asks || l.Per != program.PerSource || l.Over == "" && l.Ban != "" {
						t.Errorf("chain %s: %+v", out.Chains[i].Name, l)
					}
				}
			}
		}
	}
	if len(limits) != 3 || limits[6].BanTimeout != 600_000 || limits[10].Ban != "" || limits[7].Ban != "" {
		t.Errorf("limits: %+v", limits)
	}
	if !slices.ContainsFunc(legend.Notes, func(n string) bool { return strings.Contains(n, "handshakes that are completed") }) {
		t.Errorf("notes: %q", legend.Notes)
	}
}
