package reach

import (
	"net/netip"
	"slices"
	"testing"

	"sluice/internal/base/addrset"
	"sluice/internal/base/packet"
	"sluice/internal/program"
)

func of(h []program.Hook, chains ...program.Chain) *program.Program {
	return &program.Program{Hooks: h, Chains: chains}
}

func hookOf(k program.HookKind, ph program.Phase, def program.Verdict, chain string) program.Hook {
	return program.Hook{Kind: k, Phase: ph, Default: def, Chain: chain}
}

func nums(f program.Field, a, b uint64, not bool) program.Condition {
	return program.Condition{Field: f, Not: not, Numbers: []program.NumberRange{{From: a, To: b}}}
}

func doing(a program.Action, c ...program.Condition) program.Rule {
	return program.Rule{Match: c, Actions: []program.Action{a}}
}

func mustDiffer(t *testing.T, a, b *program.Program) {
	t.Helper()
	u := NewUniverse(Options{}, a, b)
	if d := u.Compare(a, b, true); len(d) == 0 {
		t.Error("taken to be equal")
	} else {
		t.Log(d[0])
	}
}

func mustEqual(t *testing.T, a, b *program.Program) {
	t.Helper()
	u := NewUniverse(Options{}, a, b)
	if d := u.Compare(a, b, true); len(d) > 0 {
		t.Error("taken to differ:", d[0])
	}
}

// TestFragmentsAreToldApart: a later fragment carries no ports, so that neither "port 22" nor "not port 22" holds of it.
func TestFragmentsAreToldApart(t *testing.T) {
	in := []program.Hook{hookOf(program.Input, program.Filter, program.Accept, "in")}
	tcp := nums(program.Protocol, 6, 6, false)
	a := of(in, program.Chain{Name: "in", Rules: []program.Rule{doing(program.Drop, tcp, nums(program.Port, 22, 22, false)), doing(program.Accept, tcp)}})
	b := of(in, program.Chain{Name: "in", Rules: []program.Rule{doing(program.Accept, tcp, nums(program.Port, 22, 22, true)), doing(program.Drop, tcp)}})
	mustDiffer(t, a, b)
}

// TestFragmentsArePutTogether where connections are tracked, but at ingress.
func TestFragmentsArePutTogether(t *testing.T) {
	tcp := nums(program.Protocol, 6, 6, false)
	hooks := []program.Hook{hookOf(program.Ingress, program.Early, program.Accept, "early"), hookOf(program.Input, program.Filter, program.Accept, "in")}
	p := of(hooks, program.Chain{Name: "early", Rules: []program.Rule{doing(program.Count{Counter: "early"}, tcp, nums(program.Port, 22, 22, false))}},
		program.Chain{Name: "in", Rules: []program.Rule{
			doing(program.Accept, program.Condition{Field: program.State, Names: []string{"established"}}),
			doing(program.Drop, tcp, nums(program.Port, 22, 22, false)),
			doing(program.Drop, tcp, nums(program.Port, 22, 22, true)),
		}})
	u := NewUniverse(Options{}, p)
	later := Question{Way: In, States: []packet.State{packet.New}, Match: [][]program.Condition{{tcp, nums(program.Fragment, 1, 1, false)}}}
	some := false
	for _, o := range u.Outcomes(p, In) {
		if r := u.And(o.Region, u.Region(later)); !u.Empty(r) {
			some = true
			if witness := u.Witness(In, r); o.Verdict != program.Drop || slices.Contains(o.Effects, "count early") || Evaluate(p, witness, In).Verdict != o.Verdict {
				t.Errorf("%s %v of a later fragment: %+v", o.Verdict, o.Effects, witness)
			}
		}
	}
	if !some {
		t.Error("later fragments are not told apart")
	}
}

// TestTranslations: each is seen, and makes the kernel track connections, for which it
// puts fragments together (nf_defrag_ipv4_enable), so that each has its ports.
func TestTranslations(t *testing.T) {
	address, prefix := netip.MustParseAddr("192.0.2.1"), netip.MustParsePrefix("192.0.2.0/24")
	tcp := nums(program.Protocol, 6, 6, false)
	hooks := []program.Hook{hookOf(program.Prerouting, program.NAT, program.Accept, "nat"), hookOf(program.Input, program.Filter, program.Accept, "in")}
	for _, test := range []struct {
		action          program.Action
		tracks, changes bool
	}{
		{program.DNAT{To: address}, true, true},
		{program.DNATPrefix{From: prefix, To: netip.MustParsePrefix("10.0.0.0/24")}, true, true},
		{program.Redirect{Port: 80}, true, true},
		{program.SNAT{To: address}, true, true},
		{program.SNATPrefix{From: prefix, To: netip.MustParsePrefix("10.0.0.0/24")}, true, true},
		{program.Masquerade{}, true, true},
		{program.ConnectionLimit{Name: "n", Max: 1}, true, true},
		{program.Offload{Flowtable: "f"}, true, true},
		{program.Count{Counter: "c"}, false, true},
		{program.Log{Prefix: "x"}, false, true},
		{program.Limit{Name: "l"}, false, true},
		{program.SetLabel{Bit: 1}, false, true},
		{program.SetMark{Value: 1}, false, true},
		{program.MapSource{From: prefix, To: netip.MustParsePrefix("10.0.0.0/24")}, false, true},
		{program.MapDestination{From: prefix, To: netip.MustParsePrefix("10.0.0.0/24")}, false, true},
		{program.ClampMSS{}, false, true},
		{program.NoTrack{}, false, false},
		{program.Accept, false, false},
	} {
		with := func(actions ...program.Action) *program.Program {
			return of(hooks, program.Chain{Name: "nat", Rules: []program.Rule{{Actions: actions}}}, program.Chain{Name: "in", Rules: []program.Rule{
				doing(program.Drop, tcp, nums(program.Port, 22, 22, false)),
			}})
		}
		u := NewUniverse(Options{}, with(test.action))
		if apart := u.by[program.Fragment] != nil; apart == test.tracks {
			t.Errorf("%s: later fragments are told apart: %v", program.ActionText(test.action), apart)
		}
		a, b := with(test.action), with(program.Accept)
		if d := NewUniverse(Options{}, a, b).Compare(a, b, true); (len(d) > 0) != test.changes {
			t.Errorf("%s instead of accept: %v", program.ActionText(test.action), d)
		}
	}
}

// TestMasqueradeEnds: what is translated meets no other rule of the chain.
func TestMasqueradeEnds(t *testing.T) {
	out := []program.Hook{hookOf(program.Postrouting, program.NAT, program.Accept, "nat")}
	mustEqual(t, of(out, program.Chain{Name: "nat", Rules: []program.Rule{doing(program.Masquerade{}), doing(program.Count{Counter: "c"})}}),
		of(out, program.Chain{Name: "nat", Rules: []program.Rule{doing(program.Masquerade{})}}))
}

// TestRewritingWithStateIsAnother: a stateless map of prefixes is not a translation.
func TestRewritingWithStateIsAnother(t *testing.T) {
	h := []program.Hook{hookOf(program.Prerouting, program.NAT, program.Accept, "n"), hookOf(program.Prerouting, program.Mangle, program.Accept, "m")}
	p := netip.MustParsePrefix
	from := program.Condition{Field: program.Destination, Addresses: []addrset.Range{{From: netip.MustParseAddr("192.0.2.0"), To: netip.MustParseAddr("192.0.2.255")}}}
	st := program.Condition{Field: program.State, Names: []string{"new"}}
	a := of(h, program.Chain{Name: "n", Rules: []program.Rule{doing(program.DNATPrefix{From: p("192.0.2.0/24"), To: p("10.0.0.0/24")}, from, st)}}, program.Chain{Name: "m"})
	b := of(h, program.Chain{Name: "n"}, program.Chain{Name: "m", Rules: []program.Rule{doing(program.MapDestination{From: p("192.0.2.0/24"), To: p("10.0.0.0/24")}, from, st)}})
	mustDiffer(t, a, b)
}

// TestLateNoTrack: what is tracked already stays tracked.
func TestLateNoTrack(t *testing.T) {
	h := []program.Hook{hookOf(program.Prerouting, program.Raw, program.Accept, "r"), hookOf(program.Prerouting, program.Mangle, program.Accept, "m")}
	a := of(h, program.Chain{Name: "r", Rules: []program.Rule{doing(program.NoTrack{}, nums(program.Protocol, 6, 6, false))}}, program.Chain{Name: "m"})
	b := of(h, program.Chain{Name: "r"}, program.Chain{Name: "m", Rules: []program.Rule{doing(program.NoTrack{}, nums(program.Protocol, 6, 6, false))}})
	mustDiffer(t, a, b)
	mustEqual(t, b, of(h, program.Chain{Name: "r"}, program.Chain{Name: "m"}))
}

// TestMarkWritten: a mark that was written is asked as it was written.
func TestMarkWritten(t *testing.T) {
	in := []program.Hook{hookOf(program.Input, program.Filter, program.Accept, "in")}
	m := program.Condition{Field: program.Mark, Mask: 1, Numbers: []program.NumberRange{{From: 1, To: 1}}}
	set := doing(program.SetMark{Value: 1, Mask: ^uint32(0)})
	a := of(in, program.Chain{Name: "in", Rules: []program.Rule{set, doing(program.Drop, m)}})
	b := of(in, program.Chain{Name: "in", Rules: []program.Rule{doing(program.Drop, m), set}})
	mustDiffer(t, a, b)
	whole := program.Condition{Field: program.Mark, Numbers: []program.NumberRange{{From: 5, To: 5}}}
	part := doing(program.SetMark{Value: 1, Mask: 1})
	a = of(in, program.Chain{Name: "in", Rules: []program.Rule{part, doing(program.Drop, whole)}})
	b = of(in, program.Chain{Name: "in", Rules: []program.Rule{doing(program.Drop, whole), part}})
	if u := NewUniverse(Options{}, a, b); len(u.Opaque()) == 0 {
		t.Error("a mark that is half known is taken to be known")
	}
}

// TestTranslationOfOneFamily: a translation to an IPv4 address is none of an IPv6 packet.
func TestTranslationOfOneFamily(t *testing.T) {
	h := []program.Hook{hookOf(program.Prerouting, program.NAT, program.Accept, "n")}
	four := doing(program.DNAT{To: netip.MustParseAddr("10.0.0.5")})
	six := doing(program.DNAT{To: netip.MustParseAddr("2001:db8::5")})
	a := of(h, program.Chain{Name: "n", Rules: []program.Rule{four, six}})
	b := of(h, program.Chain{Name: "n", Rules: []program.Rule{four}})
	mustDiffer(t, a, b)
}

// TestTableBehindRewriting: a table is asked for the address that the packet has at that place.
func TestTableBehindRewriting(t *testing.T) {
	h := []program.Hook{hookOf(program.Prerouting, program.Mangle, program.Accept, "r"), hookOf(program.Prerouting, program.NAT, program.Accept, "n"), hookOf(program.Prerouting, program.Filter, program.Accept, "f")}
	to := program.Condition{Field: program.Destination, Set: "dyn"}
	nat := doing(program.DNAT{To: netip.MustParseAddr("10.0.0.5")}, nums(program.Family, 4, 4, false))
	mk := func(r, f []program.Rule) *program.Program {
		p := of(h, program.Chain{Name: "r", Rules: r}, program.Chain{Name: "n", Rules: []program.Rule{nat}}, program.Chain{Name: "f", Rules: f})
		p.Sets = []program.Set{{ID: "dyn", Key: []program.Field{program.Source}, Life: program.Dynamic}}
		return p
	}
	d := []program.Rule{doing(program.Drop, to)}
	mustDiffer(t, mk(d, nil), mk(nil, d))
}

// TestOriginalPortInAMap: of a flow that others have rewritten, the port that it was for
// is another than the one that it is for.
func TestOriginalPortInAMap(t *testing.T) {
	by := func(f program.Field) *program.Program {
		p := of([]program.Hook{hookOf(program.Input, program.Filter, program.Accept, "in")},
			program.Chain{Name: "in", Rules: []program.Rule{doing(program.VerdictMap{Set: "m", Key: []program.Field{f}},
				nums(program.Protocol, 6, 6, false), program.Condition{Field: program.State, Names: []string{"new"}})}})
		web := program.Value{Numbers: program.NumberRange{From: 80, To: 80}}
		p.Sets = []program.Set{{ID: "m", Key: []program.Field{f}, Life: program.Static, Verdicts: true, Elements: []program.Element{{Parts: []program.Value{web}, Verdict: program.Drop}}}}
		return p
	}
	mustDiffer(t, by(program.OriginalPort), by(program.Port))
}

// TestOverALimit: a source over a limit goes on in the chain that the limit names.
func TestOverALimit(t *testing.T) {
	in := []program.Hook{hookOf(program.Input, program.Filter, program.Accept, "in")}
	l := program.Limit{Name: "x", Rate: program.Rate{Packets: 1, Per: 1000, Burst: 1}, Ban: "b"}
	o := l
	o.Over = "over"
	mk := func(l program.Limit) *program.Program {
		p := of(in, program.Chain{Name: "in", Rules: []program.Rule{{Actions: []program.Action{l, program.Accept}}}}, program.Chain{Name: "over", Rules: []program.Rule{doing(program.Accept)}})
		p.Sets = []program.Set{{ID: "b", Key: []program.Field{program.Source}, Life: program.Dynamic}}
		return p
	}
	a := mk(o)
	u := NewUniverse(Options{}, a)
	for _, x := range u.Outcomes(a, In) {
		if x.Verdict == program.Drop {
			t.Error("drops", x)
		}
	}
}

// TestEffectsAreSaidWhole: time-outs and counters of a table tell actions apart.
func TestEffectsAreSaidWhole(t *testing.T) {
	in := []program.Hook{hookOf(program.Input, program.Filter, program.Accept, "in")}
	mk := func(x program.Action) *program.Program {
		p := of(in, program.Chain{Name: "in", Rules: []program.Rule{{Actions: []program.Action{x, program.Accept}}}})
		p.Sets = []program.Set{{ID: "b", Key: []program.Field{program.Source}, Life: program.Dynamic}}
		return p
	}
	mustDiffer(t, mk(program.SetAdd{Set: "b", Key: program.PerSource, Timeout: 1000}), mk(program.SetAdd{Set: "b", Key: program.PerSource, Timeout: 3600000}))
	l := program.Limit{Name: "x", Rate: program.Rate{Packets: 1, Per: 1000, Burst: 1}, Per: program.PerSource, Table: "b"}
	f := l
	f.FullCounter = "full"
	mustDiffer(t, mk(l), mk(f))
}

// TestManyMaps: many maps of prefixes draw few boundaries.
func TestManyMaps(t *testing.T) {
	h := []program.Hook{hookOf(program.Prerouting, program.NAT, program.Accept, "n"), hookOf(program.Input, program.Filter, program.Accept, "in")}
	var rules []program.Rule
	for i := range 120 {
		f := netip.PrefixFrom(netip.AddrFrom4([4]byte{10, byte(i), 0, 0}), 16)
		to := netip.PrefixFrom(netip.AddrFrom4([4]byte{172, byte(i), 0, 0}), 16)
		rules = append(rules, doing(program.DNATPrefix{From: f, To: to}, program.Condition{Field: program.Destination, Addresses: []addrset.Range{{From: f.Addr(), To: netip.AddrFrom4([4]byte{10, byte(i), 255, 255})}}}))
	}
	all := program.Condition{Field: program.Destination, Addresses: []addrset.Range{{From: netip.MustParseAddr("10.0.0.0"), To: netip.MustParseAddr("10.255.255.255")}}}
	a := of(h, program.Chain{Name: "n", Rules: rules}, program.Chain{Name: "in", Rules: []program.Rule{doing(program.Drop, all)}})
	u := NewUniverse(Options{}, a)
	if n := len(u.by[program.Destination].blocks.sets); n > 500 {
		t.Errorf("%d sets to tell apart", n)
	}
	if d := u.Compare(a, a, true); len(d) > 0 {
		t.Error(d[0])
	}
}

// TestEveryPlaceIsFollowed: a base chain at a place where no policy has one is a
// base chain; of one that no packet is led to nothing is proved.
func TestEveryPlaceIsFollowed(t *testing.T) {
	for _, kind := range []program.HookKind{program.Prerouting, program.Input, program.Forward, program.Output, program.Postrouting} {
		for _, phase := range []program.Phase{program.Raw, program.Mangle, program.Watching, program.Filter, program.Behind} {
			mustDiffer(t, of(nil), of([]program.Hook{hookOf(kind, phase, program.Drop, "c")}, program.Chain{Name: "c"}))
		}
	}
	if u := NewUniverse(Options{}, of([]program.Hook{hookOf(program.Egress, program.Filter, program.Drop, "c")}, program.Chain{Name: "c"})); len(u.Opaque()) == 0 {
		t.Error("a chain at egress is left out")
	}
}
