package kerneltest

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"sluice/internal/base/packet"
	"sluice/internal/base/testseed"
	"sluice/internal/lab/drafts"
	"sluice/internal/language/policy"
	"sluice/internal/program/mutants"
)

// The witness sees what the input hook let through with the state that the packet
// has made, and no answer of the host comes.
func TestMeaningWitness(t *testing.T) {
	y := newYard(t)
	for round := range 2 {
		// A ruleset that asks for states comes and goes, and with it the hooks of
		// connection tracking that it needs.
		y.host.Nft("add table inet t; add chain inet t c { type filter hook input priority 0; }; add rule inet t c ct state established counter reject; add rule inet t c tcp dport 23 reject with tcp reset; add rule inet t c udp dport 23 reject")
		var shots []*shot
		for i, flags := range []uint8{packet.SYN, packet.ACK, packet.SYN, packet.SYN} {
			s := &shot{id: uint32(i + 1), side: wan0, way: packet.In, seq: 1000 + uint32(i), ack: 7 + uint32(i), window: tcpWindow, packet: packet.Packet{
				Source: netip.MustParseAddr("192.0.2.7"), Destination: netip.MustParseAddr("198.51.100.1"), Protocol: packet.TCP,
				SourcePort: 4000 + uint16(round), Port: 22, Flags: flags, HopLimit: hops,
			}}
			switch i {
			case 1: // the answer
				s.side, s.way = fromHost, packet.Out
				s.packet.Source, s.packet.Destination, s.packet.SourcePort, s.packet.Port = s.packet.Destination, s.packet.Source, s.packet.Port, s.packet.SourcePort
				s.packet.Flags, s.seq, s.ack = packet.SYN|packet.ACK, 5000, 1001
			case 2:
				s.seq, s.ack = 1001, 5001
			case 3:
				s.packet.Port = 23
			}
			s.build()
			shots = append(shots, s)
		}
		y.send(shots)
		for i, want := range []string{
			"[taken in from wan0 as tcp 192.0.2.7:%d > 198.51.100.1:22 [S]]",
			"[left by wan0 as tcp 198.51.100.1:22 > 192.0.2.7:%d [SA]]",
			"[left by wan0: unreachable, code 3 of 198.51.100.1]",
			"[left by wan0: reset of 198.51.100.1]",
		} {
			if got := fmt.Sprint(shots[i].seen); got != strings.ReplaceAll(want, "%d", fmt.Sprint(4000+round)) {
				t.Errorf("%s: %s", shots[i], got)
			}
		}
		y.host.Nft("delete table inet t")
	}
}

// comparisons is how many packets the test compares; scripts/fuzz-meaning asks for
// more by SLUICE_MEANING.
const comparisons = 50_000

// firstRound is where a run begins: SLUICE_MEANING_ROUND is the round that a run of
// the same seed ended at, which needs none of the rounds before it.
func firstRound(t *testing.T) int {
	t.Helper()
	text := os.Getenv("SLUICE_MEANING_ROUND")
	if text == "" {
		return 0
	}
	round, err := strconv.Atoi(text)
	if err != nil || round < 0 {
		t.Fatalf("SLUICE_MEANING_ROUND: %q is no round", text)
	}
	return round
}

// scaleOf is how large the policy of a round is and how many packets it gets: most
// are small, and of the largest kinds each run has some.
func scaleOf(r *rand.Rand, round int) (s drafts.Scale, packets int) {
	switch round % 40 {
	case 3:
		return drafts.Scale{Rules: 200 + r.IntN(101)}, 1500
	case 23:
		return drafts.Scale{Rules: 60 + r.IntN(140)}, 800
	case 8:
		return drafts.Scale{Rules: 1 + r.IntN(30), Elements: 100_000 - r.IntN(20_000)}, 2500
	case 18:
		return drafts.Scale{Rules: 1 + r.IntN(30), Elements: 2000 + r.IntN(20_000)}, 1000
	case 28, 38:
		return drafts.Scale{Rules: 1 + r.IntN(20), Elements: 50 + r.IntN(1500)}, 400
	case 5, 13, 21, 29, 33:
		return drafts.Scale{Rules: 12 + r.IntN(50)}, 400
	}
	return drafts.Scale{Rules: 1 + r.IntN(12)}, 220
}

// Every word of the language, in random policies, against the kernel: each packet
// must end as the reference says, with the header that it says.
//
// TCP is sent within and outside of its windows, with window scaling and selective
// acknowledgements, and both ends may open at once. What stays out, and why:
//
//   - Connections of masquerade whose own port bypasses tracking or is another's: the
//     kernel draws their port by lot. TestWordMasqueradeKeepsOutOfBypassedPorts has them.
//   - UDP-Lite with its own sum, which tracking takes for a wrong one: TestFactUDPLite.
//     It is sent with the sum of UDP, and short.
//   - AH before a protocol that tracking knows, behind which it looks in IPv6:
//     TestFactAuthentication. It is sent with a protocol of nobody behind it.
//   - DCCP other than requests: up to Linux 6.15 tracking read it closely, and data of
//     no connection was invalid; 6.18 takes it for new.
//   - Limits by source and "max": a model of "max" without a source was tried with
//     12,000 packets and no difference, but the kernel looks for connections that have
//     ended at most once a jiffy (nf_conncount.c), so what counts depends on the machine.
//     word_limits_test.go and word_limit_*_test.go have them. Of rates there is the burst.
//   - Conversations of UDP-Lite, DCCP, GRE and AH: a tracker of theirs comes and goes with
//     the kernel, and with it what tells two flows between the same ends apart.
func TestMeaning(t *testing.T) {
	y := newYard(t)
	seed, want := testseed.Of(t), comparisons
	if testing.Short() {
		want = 3000
	}
	if text := os.Getenv("SLUICE_MEANING"); text != "" {
		n, err := strconv.Atoi(text)
		if err != nil {
			t.Fatalf("SLUICE_MEANING: %v", err)
		}
		want = n
	}
	from := time.Now()
	met := outcomes{}
	done, round := 0, firstRound(t)
	for ; done < want; round++ {
		c := y.trial(seed, round)
		done += len(c.shots)
		if differs := y.run(c); len(differs) > 0 {
			small := y.shrink(c)
			for _, s := range small.shots {
				t.Log(report(s, y.difference(s)))
			}
			t.Fatalf("round %d: %d of %d packets differ, the first of them:\n%s\nsmallest case that was found, with the packets above:\n%s",
				round, len(differs), len(c.shots), strings.Join(differs[:min(len(differs), 3)], "\n"), small.draft)
		}
		met.add(c.shots)
		if round%500 == 499 {
			t.Logf("%d comparisons, %.0f a second", done, float64(done)/time.Since(from).Seconds())
		}
	}
	t.Logf("%d comparisons in %d policies, %.0f a second\n%s", done, round, float64(done)/time.Since(from).Seconds(), met)
	if want >= comparisons {
		met.check(t)
	}
}

// A seed gives the same policies and packets each time.
func TestMeaningRepeats(t *testing.T) {
	y := &yard{t: t, facts: yardFacts()}
	for _, round := range []int{1, 5, 28} {
		a, b := y.trial(7, round), y.trial(7, round)
		if a.draft.String() != b.draft.String() {
			t.Errorf("round %d: another policy", round)
		}
		for i := range a.shots {
			if i >= len(b.shots) || a.shots[i].String() != b.shots[i].String() {
				t.Errorf("round %d: packet %d is another", round, i)
				break
			}
		}
	}
}

// Of a packet that is left out, here to the address of every router, the reference
// keeps nothing: it takes no token of a rate.
func TestMeaningLeftOut(t *testing.T) {
	y := &yard{t: t, facts: yardFacts()}
	resolved, err := resolveFile(policyFile(t, `
forward: { default: drop, rules: [allow udp/53 limit 1/day burst 1] }
nat: ["map 2001:db8:100:f::/64 to 2001:db8:20::/64"]
`), y.facts)
	if err != nil {
		t.Fatal(err)
	}
	g := newShooter(rand.New(rand.NewPCG(1, 1)), y, resolved)
	for _, c := range []struct {
		to      string
		sent    bool
		verdict policy.Action
	}{{"2001:db8:100:f::", false, policy.Allow}, {"2001:db8:100:f::5", true, policy.Allow}, {"2001:db8:100:f::6", true, policy.Drop}} {
		s := &shot{side: wan0, way: packet.Through, packet: packet.Packet{
			Source: netip.MustParseAddr("2001:db8:99::7"), Destination: netip.MustParseAddr(c.to), Protocol: packet.UDP, SourcePort: 4000, Port: 53, Owner: -1,
		}}
		if sent := g.add(s); sent != c.sent || s.want.Verdict != c.verdict {
			t.Errorf("%s: sent %v, %s", s, sent, s.want.Verdict)
		}
	}
}

// The same by the real command, from policy to policy, as a host has them: what one
// leaves behind must not change what the next one means.
func TestMeaningApplied(t *testing.T) {
	binary, err := built()
	if err != nil {
		t.Fatal(err)
	}
	y := newYard(t)
	seed, state := testseed.Of(t), t.TempDir()
	const policies = 6
	for round := range policies {
		r := rand.New(rand.NewPCG(seed, uint64(round)))
		c := trial{draft: drafts.New(r, drafts.Scale{Rules: 1 + r.IntN(30)})}
		for _, list := range []*[]string{&c.draft.Sets, &c.draft.Ban, &c.draft.Never} {
			*list = slices.DeleteFunc(*list, func(line string) bool { return strings.HasPrefix(line, "listed") }) // nobody serves it
		}
		c.draft.Allowed, c.draft.Added = nil, nil                // which no policy says
		c.draft.Invalid = append(c.draft.Invalid, "grace: none") // of the first load, in which more passes
		repair(t, c.draft, y.facts)
		y.applied(c.draft, binary, state)
		y.aim(r, &c, 220)
		if differs := y.hold(c); len(differs) > 0 {
			t.Fatalf("round %d: %d of %d packets differ:\n%s\n%s", round, len(differs), len(c.shots), strings.Join(differs[:min(len(differs), 4)], "\n"), c.draft)
		}
	}
}

// A pass of the optimizer that is wrong is noticed: for each of five, some random
// policy with the wrong program loaded in its place ends packets otherwise than the
// reference says.
func TestMeaningCatchesWrongPasses(t *testing.T) {
	y := newYard(t)
	seed := testseed.Of(t)
	const policies = 60
	for _, pass := range mutants.Passes {
		t.Run(pass.Name, func(t *testing.T) {
			changed := 0
			for round := range policies {
				c := y.trial(seed, 40*round) // a small policy
				_, done, err := y.load(c.compiled, &pass)
				if err != nil {
					t.Fatalf("%v\n%s", err, c.draft)
				}
				if !done {
					continue
				}
				changed++
				if differs := y.hold(c); len(differs) > 0 {
					// It is the pass that makes the difference.
					if before := y.run(y.trial(seed, 40*round)); len(before) > 0 {
						t.Fatalf("without the pass: %s\n%s", before[0], c.draft)
					}
					t.Logf("found with %d policies, of which the pass changed %d, in %d of %d packets:\n%s", round+1, changed, len(differs), len(c.shots), differs[0])
					return
				}
			}
			t.Errorf("nothing was noticed in %d policies, of which the pass changed %d", policies, changed)
		})
	}
}

// trial makes the policy and the packets of one round, by the seed and the round
// alone.
func (y *yard) trial(seed uint64, round int) trial {
	y.t.Helper()
	r := rand.New(rand.NewPCG(seed, uint64(round)))
	size, packets := scaleOf(r, round)
	c := trial{draft: drafts.New(r, size)}
	y.aim(r, &c, packets)
	return c
}

// aim makes packets for the draft, which is repaired where the language refuses it.
func (y *yard) aim(r *rand.Rand, c *trial, packets int) {
	y.t.Helper()
	resolved, compiled := repair(y.t, c.draft, y.facts)
	g := newShooter(r, y, resolved)
	for len(g.shots) < packets {
		if r.IntN(4) == 0 {
			g.converse()
		} else {
			g.shoot()
		}
	}
	c.compiled, c.shots = compiled, g.shots
}

// run holds one policy against the kernel, and gives every difference.
func (y *yard) run(c trial) (out []string) {
	y.t.Helper()
	y.forget()
	if _, _, err := y.load(c.compiled, nil); err != nil {
		y.t.Fatalf("%v\n%s", err, c.draft)
	}
	return y.hold(c)
}

// forget empties the host's connection table.
func (y *yard) forget() {
	y.t.Helper()
	y.try(y.host.Links().ConntrackTableFlush(netlink.ConntrackTable))
}

// hold sends the packets to a host without flows, and compares.
func (y *yard) hold(c trial) (out []string) {
	y.t.Helper()
	y.forget()
	y.send(c.shots)
	crowd(c.shots)
	for _, s := range c.shots {
		if text := y.difference(s); text != "" {
			out = append(out, report(s, text)+c.before(s))
		}
	}
	return out
}

// before is what was said before in the conversation that a packet is part of.
func (c trial) before(s *shot) string {
	var b strings.Builder
	for _, o := range c.shots {
		if o == s || s.flow == "" {
			break
		}
		if talkOf(o) == talkOf(s) {
			fmt.Fprintf(&b, "\n  before: %s: %s, %s; seen: %v", o, o.want.Verdict, o.want.Packet.State, o.seen)
		}
	}
	return b.String()
}

// outcomes counts what the packets of a run met.
type outcomes map[string]int

func (o outcomes) add(shots []*shot) {
	for _, s := range shots {
		w := s.want
		o[fmt.Sprintf("%s %s by %s", w.Verdict, w.Hook, w.Stage)]++
		o["state "+string(w.Packet.State)]++
		switch p := w.Packet; {
		case w.Verdict != policy.Allow:
		case p.DNAT && !p.Reply:
			o["destination rewritten"]++
		case p.SNAT && !p.Reply:
			o["source rewritten"]++
		case p.Reply && (p.DNAT || p.SNAT):
			o["reply rewritten"]++
		case p.State == packet.Untracked && (p.Source != s.packet.Source || p.Destination != s.packet.Destination):
			o["rewritten without state"]++
		}
		if s.packet.Quoted != nil {
			o["ICMP error"]++
		}
		if s.pieces > 0 {
			o["fragments"]++
		}
		if s.packet.Source.Is6() {
			o["IPv6"]++
		} else {
			o["IPv4"]++
		}
	}
}

func (o outcomes) String() string {
	var b strings.Builder
	for _, name := range slices.Sorted(maps.Keys(o)) {
		fmt.Fprintf(&b, "%8d %s\n", o[name], name)
	}
	return b.String()
}

// check fails where a run has left out a stage of a section or a kind of packet: the
// random policies or packets are then not what they should be.
func (o outcomes) check(t *testing.T) {
	t.Helper()
	want := []string{
		"IPv4", "IPv6", "ICMP error", "fragments", "destination rewritten", "source rewritten", "reply rewritten", "rewritten without state",
		"state new", "state established", "state related", "state invalid", "state untracked", "allow input by needed", "allow input by answers",
	}
	for _, hook := range []string{"input", "forward", "output"} {
		for _, verdict := range []string{"allow", "drop", "reject"} {
			want = append(want, verdict+" "+hook+" by rules", verdict+" "+hook+" by default")
		}
		want = append(want, "drop "+hook+" by ban", "allow "+hook+" by state", "drop "+hook+" by invalid", "allow "+hook+" by open")
	}
	for _, name := range want {
		if o[name] < 5 {
			t.Errorf("%d packets met %q", o[name], name)
		}
	}
}

func talkOf(s *shot) string { return strings.TrimSuffix(s.flow, ", error") }
