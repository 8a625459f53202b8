package optimize

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"sluice/internal/base/addrset"
	"sluice/internal/base/packet"
	"sluice/internal/base/testseed"
	"sluice/internal/program"
	"sluice/internal/prove/reach"
)

func named(f program.Field, n ...string) program.Condition {
	return program.Condition{Field: f, Names: n}
}

func protocols(n ...uint64) program.Condition {
	c := program.Condition{Field: program.Protocol}
	for _, v := range n {
		c.Numbers = append(c.Numbers, program.NumberRange{From: v, To: v})
	}
	return c
}

func prefix(f program.Field, p string) program.Condition {
	r := addrset.FromPrefixes(netip.MustParsePrefix(p))
	c := program.Condition{Field: f}
	for a := range r.Each() {
		c.Addresses = append(c.Addresses, a)
	}
	return c
}

// policed is a random program with the base chains that compile makes: input
// and forward with what always holds before the rules, output, and loopback out
// of tracking at both its ends.
func (m *maker) policed(rules int) *program.Program {
	p := m.make(rules)
	accept := []program.Action{program.Accept}
	always := func(hook string, device program.Field) []program.Rule {
		goesOn := p.Chain("input").Rules[len(p.Chain("input").Rules)-1]
		all := []program.Rule{
			{Stage: program.StageLoopback, Match: []program.Condition{named(device, "lo")}, Actions: accept},
			{Stage: program.StageNeeded, Match: []program.Condition{protocols(1, 58)}, Actions: []program.Action{program.Jump{Chain: hook + "_icmp"}}},
			{Stage: program.StageState, Match: []program.Condition{named(program.State, "established", "related")}, Actions: accept},
			{Stage: program.StageInvalid, Match: []program.Condition{named(program.State, "invalid")}, Actions: []program.Action{program.Drop}},
			{Stage: program.StageAnswers, Match: []program.Condition{protocols(17), {Field: program.SourcePort, Numbers: number(1000)}}, Actions: accept},
			{Stage: program.StageAnswers, Match: []program.Condition{named(program.State, "untracked"), protocols(6)}, Actions: accept},
			goesOn,
		}
		var out []program.Rule
		for _, r := range all {
			if m.IntN(5) > 0 {
				out = append(out, r)
			}
		}
		p.Chains = append(p.Chains, program.Chain{Name: hook + "_icmp", Rules: []program.Rule{
			{Match: []program.Condition{protocols(1), {Field: program.ICMPType, Numbers: number(8)}}, Actions: []program.Action{program.Goto{Chain: "rules"}}},
			{Match: []program.Condition{named(program.State, "invalid")}, Actions: accept},
		}})
		return out
	}
	forward, output := always("forward", program.InInterface), always("output", program.OutInterface)
	p.Chain("input").Rules = always("input", program.InInterface)
	p.Chains = append(p.Chains, program.Chain{Name: "forward", Rules: forward}, program.Chain{Name: "output", Rules: output}, program.Chain{Name: "output_raw"})
	p.Hooks = append(p.Hooks,
		program.Hook{Kind: program.Forward, Phase: program.Filter, Default: pick(m, program.Accept, program.Drop), Chain: "forward"},
		program.Hook{Kind: program.Output, Phase: program.Raw, Default: program.Accept, Chain: "output_raw"},
		program.Hook{Kind: program.Output, Phase: program.Filter, Default: pick(m, program.Accept, program.Drop), Chain: "output"},
	)
	itself := func(device program.Field) program.Rule {
		return program.Rule{
			Stage:   program.StageLoopback,
			Match:   []program.Condition{named(device, "lo"), prefix(program.Source, "127.0.0.0/8"), prefix(program.Destination, "127.0.0.0/8")},
			Actions: []program.Action{program.NoTrack{}, program.Accept},
		}
	}
	p.Chain("raw").Rules = slices.Insert(p.Chain("raw").Rules, 0, itself(program.InInterface))
	p.Chain("output_raw").Rules = []program.Rule{itself(program.OutInterface)}
	if m.IntN(2) == 0 {
		p.Chain("output_raw").Rules = append(p.Chain("output_raw").Rules, program.Rule{
			Stage: program.StageLoopback, Match: []program.Condition{named(program.OutInterface, "lo"), protocols(17)},
			Actions: []program.Action{program.NoTrack{}},
		})
	}
	return p
}

// anyPacket is a packet of any state and way. What comes in by loopback has
// left by it, and is as that left it.
func (m *maker) anyPacket() (packet.Packet, reach.Way) {
	pkt := m.packet()
	way := pick(m, reach.In, reach.In, reach.Through, reach.Out)
	pkt.State = pick(m, "", "", packet.New, packet.Established, packet.Related, packet.Invalid, packet.Untracked)
	switch m.IntN(6) {
	case 0:
		pkt.Protocol, pkt.ICMPType = packet.ICMP, uint8(pick(m, 0, 8))
	case 1:
		pkt.Protocol, pkt.ICMPType = packet.ICMPv6, 128
	}
	pkt.Out = pick(m, "eth0", "eth1")
	switch way {
	case reach.In:
		pkt.Out = ""
		if m.IntN(6) == 0 {
			pkt.In, pkt.State = "lo", packet.Untracked
			pkt.Source, pkt.Destination = netip.MustParseAddr("127.0.0.1"), netip.MustParseAddr("127.0.0.53")
		}
	case reach.Through:
		pkt.DestinationLocal = packet.No
	case reach.Out:
		pkt.In = ""
		if m.IntN(4) == 0 {
			pkt.Out, pkt.State = "lo", ""
			pkt.Source, pkt.Destination = netip.MustParseAddr("127.0.0.1"), netip.MustParseAddr("127.0.0.53")
		}
	}
	return pkt, way
}

// everything is all that a program does to a packet.
func everything(p *program.Program, pkt packet.Packet, way reach.Way) string {
	r := reach.Evaluate(p, pkt, way)
	done := slices.Clone(r.Done)
	slices.Sort(done)
	return fmt.Sprintf("%s at %s, mark %d, %s; %s", r.Verdict, r.Hook, r.Packet.Mark, r.Packet.State, strings.Join(done, "; "))
}

// Each pass that moves or drops rules, and all passes in turn, leave what
// happens to every packet as it was.
func TestOrderAgainstPackets(t *testing.T) {
	m := newMaker(t)
	changed := map[string]int{}
	for range testseed.Rounds(60, 150) {
		p := m.policed(10 + m.IntN(30))
		profile := m.profile(p)
		for _, names := range [][]string{{"hidden"}, {"terminal"}, {"reorder"}, {"dispatch"}, {"base-chains"}, slices.DeleteFunc(allPasses(), func(n string) bool { return n == "ban-stage" })} {
			after := copyOf(p)
			for _, name := range names {
				w := &work{Program: after, options: &Options{Profile: profile}}
				Named(name).run(w)
				if len(w.did) > 0 && len(names) == 1 {
					changed[name]++
				}
				if err := after.Check(); err != nil {
					t.Fatalf("pass %s left a broken program: %v\n%s", name, err, after.Text())
				}
			}
			for range 60 {
				pkt, way := m.anyPacket()
				if want, got := everything(p, pkt, way), everything(after, pkt, way); want != got {
					t.Fatalf("passes %v, %s packet %+v\nbefore: %s\nafter:  %s\n%s\n--- after\n%s", names, way, pkt, want, got, p.Text(), after.Text())
				}
			}
		}
	}
	t.Log("programs that passes changed:", changed)
	for _, name := range []string{"hidden", "terminal", "reorder", "dispatch", "base-chains"} {
		if changed[name] < 3 {
			t.Errorf("pass %s found something to do in %d programs of 150", name, changed[name])
		}
	}
}

func allPasses() []string {
	var out []string
	for _, p := range Passes {
		out = append(out, p.Name)
	}
	return out
}

// What is banned in no state, and flows that are banned and exist, are as
// before; the others are told by their bans.
func TestBanStageAgainstPackets(t *testing.T) {
	m := newMaker(t)
	early := 0
	for range 100 {
		p := m.policed(6)
		m.ban(p)
		after := copyOf(p)
		w := &work{Program: after, options: &Options{}}
		for _, name := range []string{"ban-stage", "stages"} {
			Named(name).run(w)
		}
		orderStages(p)
		if err := after.Check(); err != nil {
			t.Fatalf("%v\n%s", err, after.Text())
		}
		for range 80 {
			pkt, way := m.anyPacket()
			established := pkt.State == packet.Established && (pkt.Protocol == packet.TCP || pkt.Protocol == packet.UDP)
			if established && (way != reach.Through || m.IntN(2) == 0) {
				continue // its flow ended when it was banned
			}
			if established {
				pkt.State = packet.Related
			}
			if pkt.In == "lo" || pkt.Out == "lo" {
				continue
			}
			want, got := everything(p, pkt, way), everything(after, pkt, way)
			if r := reach.Evaluate(after, pkt, way); r.Hook == program.Prerouting && slices.Contains(r.Done, "count ban") && reach.Evaluate(p, pkt, way).Verdict != program.Accept {
				early++ // what other rules before its ban did to it is not done any more
				continue
			}
			if want != got {
				t.Fatalf("%s packet %+v\nbefore: %s\nafter:  %s\n%s\n--- after\n%s", way, pkt, want, got, p.Text(), after.Text())
			}
		}
	}
	if early == 0 {
		t.Error("nothing was banned before tracking")
	}
}

// ban writes bans down as compile does.
func (m *maker) ban(p *program.Program) {
	local := func(f program.Field) program.Condition {
		return program.Condition{Field: f, Not: true, Names: []string{"local"}}
	}
	drop := []program.Action{program.Count{Counter: "ban"}, program.Drop}
	p.Counters = append(p.Counters, program.Counter{Name: "ban"})
	neighbours := program.Rule{
		Match:   []program.Condition{protocols(58), {Field: program.ICMPv6Type, Numbers: number(135)}},
		Actions: []program.Action{program.Return},
	}
	from := program.Rule{Match: []program.Condition{{Field: program.Source, Set: "living"}, local(program.SourceType)}, Actions: drop}
	to := program.Rule{Match: []program.Condition{{Field: program.Destination, Set: "living"}, local(program.DestinationType)}, Actions: drop}
	p.Chains = append(p.Chains,
		program.Chain{Name: "banned", Rules: []program.Rule{neighbours, from, to}},
		program.Chain{Name: "banned_to", Rules: []program.Rule{neighbours, to}},
	)
	for _, hook := range []string{"input", "forward", "output"} {
		chain := p.Chain(hook)
		target := "banned"
		if hook == "output" {
			target = "banned_to"
		}
		chain.Rules = slices.Insert(chain.Rules, 0, program.Rule{Stage: program.StageBan, Actions: []program.Action{program.Jump{Chain: target}}})
	}
}

// The order after a profile is the same whatever order maps are walked in, and
// no profile changes nothing.
func TestReorderIsDeterministic(t *testing.T) {
	m := newMaker(t)
	for range 20 {
		p := m.policed(30)
		before := p.Text()
		same := copyOf(p)
		reorder(&work{Program: same, options: &Options{}})
		if same.Text() != before {
			t.Fatal("rules changed places without a profile")
		}
		profile := map[string]uint64{}
		for _, c := range p.Counters {
			profile[c.Name] = uint64(m.IntN(5))
		}
		first := ""
		for range 3 {
			again := copyOf(p)
			reorder(&work{Program: again, options: &Options{Profile: maps.Clone(profile)}})
			if first == "" {
				first = again.Text()
			}
			if again.Text() != first {
				t.Fatal("one profile gave two orders")
			}
		}
	}
}
