package kerneltest

import (
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"sluice/internal/base/packet"
	"sluice/internal/base/testseed"
	"sluice/internal/lab/drafts"
	"sluice/internal/language/policy"
	"sluice/internal/program"
	"sluice/internal/program/optimize"
	"sluice/internal/prove/reach"
	"sluice/internal/prove/reference"
	"sluice/internal/system/host"
)

// yardFacts is what is known of the host in the yard, without a kernel.
func yardFacts() host.Facts {
	facts := host.Facts{Known: true, DefaultRoute: []string{"wan0"}, EphemeralFrom: 32768, EphemeralTo: 60999, Interfaces: []host.Interface{
		{Name: "lo", Index: 1, Addresses: []netip.Prefix{netip.MustParsePrefix("127.0.0.1/8"), netip.MustParsePrefix("::1/128")}, Up: true},
	}}
	for i, d := range yardDevices {
		one := host.Interface{Name: d.name, Index: i + 2, Up: true}
		for _, text := range d.addresses {
			one.Addresses = append(one.Addresses, netip.MustParsePrefix(text))
		}
		for _, a := range one.Addresses {
			facts.Local = append(facts.Local, netip.PrefixFrom(a.Addr(), a.Addr().BitLen()))
		}
		slices.SortFunc(one.Addresses, func(a, b netip.Prefix) int { return a.Addr().Compare(b.Addr()) })
		facts.Interfaces = append(facts.Interfaces, one)
	}
	return facts
}

// The policies and single packets of TestMeaning, many more policies, against what
// package reach says of the compiled and optimized program: no kernel is asked.
func TestRandomProgramsAgainstReference(t *testing.T) {
	seed := testseed.Of(t)
	actions := map[program.Verdict]policy.Action{program.Accept: policy.Allow, program.Drop: policy.Drop, program.Reject: policy.Reject}
	y := &yard{t: t, facts: yardFacts()}
	merged, rewritten, compared := 0, 0, 0
	rounds := testseed.Rounds(120, 250)
	for round := range rounds {
		r := rand.New(rand.NewPCG(seed, uint64(round)))
		d := drafts.New(r, drafts.Scale{Rules: 1 + r.IntN(40)})
		resolved, compiled := repair(t, d, y.facts)
		if err := optimize.Run(compiled, optimize.Options{Check: true}); err != nil {
			t.Fatal(err)
		}
		if slices.ContainsFunc(compiled.Sets, func(s program.Set) bool { return strings.HasPrefix(s.ID, "rules.") }) {
			merged++
		}
		g := newShooter(r, y, resolved)
		for len(g.shots) < 150 {
			g.shoot()
		}
		for _, s := range g.shots {
			want := reference.Follow(resolved, s.packet, s.way)
			asked := s.packet
			asked.SourceLocal, asked.DestinationLocal = packet.Is(y.local(asked.Source)), packet.Is(y.local(asked.Destination))
			switch {
			case asked.Out != "":
			case s.way != packet.Out:
				asked.Out = want.Packet.Out
			default: // output is asked by the route before rewriting
				asked.Out = reference.InterfaceTo(y.facts, asked.Destination)
			}
			if asked.State = want.Packet.State; asked.State == packet.Untracked || asked.State == packet.New {
				asked.State = "" // the program decides what is tracked
			}
			if isError(s.packet) || s.packet.Protocol == packet.ICMPv6 && asked.State == "" {
				asked.State = want.Packet.State // what the kernel does not track whatever the rules say
			}
			got := reach.Evaluate(compiled, asked, s.way)
			if len(got.Doubts) > 0 || y.local(want.Packet.Destination) && want.Packet.Destination != s.packet.Destination {
				continue // whose an address is, and on which interface, the routing table knows
			}
			compared++
			if got.Packet.Destination != s.packet.Destination {
				rewritten++
			}
			if actions[got.Verdict] != want.Verdict {
				t.Errorf("%s: the program says %s (%s), the reference %s at %s by %s", s, got.Verdict, got.Describe(), want.Verdict, want.Hook, want.Stage)
			}
		}
		if t.Failed() {
			t.Fatalf("policy:\n%s\n%s", d, compiled.Text())
		}
	}
	if merged < rounds/10 || rewritten < rounds*4/5 || compared < 80*rounds {
		t.Errorf("of %d packets compared %d were rewritten; the optimizer merged rules in %d policies", compared, rewritten, merged)
	}
}
