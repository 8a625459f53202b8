package nftables

import (
	"context"
	"strings"
	"testing"

	"sluice/internal/backend"
	"sluice/internal/base/addrset"
	"sluice/internal/base/testseed"
	"sluice/internal/program"
)

// banning is a program with bans by command before a flowtable, in a chain of
// their own, in one that has more, and in one that a goto leads to.
func banning(t testing.TB) *artifact {
	t.Helper()
	drop := func(f program.Field) program.Rule {
		return program.Rule{Match: conditions{setOn(f, "ban.command")}, Actions: actions{program.Count{Counter: "banned"}, program.Drop}}
	}
	to := func(a program.Action) program.Rule { return program.Rule{Actions: actions{a}} }
	spared := program.Rule{Match: conditions{protocolIs(58)}, Actions: actions{program.Return}}
	return mustLower(t, &program.Program{
		Owner: "sluice",
		Hooks: []program.Hook{
			{Kind: program.Ingress, Phase: program.Early, Devices: []string{"lo"}, Default: program.Accept, Chain: "early"},
			{Kind: program.Input, Phase: program.Filter, Default: program.Drop, Chain: "input"},
			{Kind: program.Forward, Phase: program.Filter, Default: program.Accept, Chain: "forward"},
			{Kind: program.Output, Phase: program.Filter, Default: program.Accept, Chain: "output"},
		},
		Chains: []program.Chain{
			{Name: "early", Rules: []program.Rule{{Match: conditions{protocolIs(58)}, Actions: actions{program.Accept}}, drop(program.Source)}},
			{Name: "input", Rules: []program.Rule{
				to(program.Jump{Chain: "banned"}), to(program.Jump{Chain: "more"}),
				{Match: conditions{setOn(program.Source, "ban.command"), protocolIs(6)}, Actions: actions{program.Jump{Chain: "rest"}}},
				to(program.Accept),
			}},
			{Name: "forward", Rules: []program.Rule{to(program.Jump{Chain: "banned"})}},
			{Name: "output", Rules: []program.Rule{to(program.Goto{Chain: "held"})}},
			{Name: "banned", Rules: []program.Rule{spared, drop(program.Source), drop(program.Destination)}},
			{Name: "more", Rules: []program.Rule{drop(program.Source), {Match: conditions{protocolIs(17)}, Actions: actions{program.Drop}}}},
			{Name: "held", Rules: []program.Rule{drop(program.Destination)}},
			{Name: "rest", Rules: []program.Rule{spared, to(program.Drop)}},
		},
		Counters: []program.Counter{{Name: "banned"}},
		Sets: []program.Set{
			{ID: "ban.command", Key: []program.Field{program.Source}, Life: program.Dynamic, Counters: true, Commands: true, Never: addrset.MustParse("127.0.0.0/8", "fe80::/10")},
		},
	})
}

// What no rule asks costs nothing: rules, chains and hooks go that are there for
// bans alone.
func TestNothingIsAskedWhileNothingIsBanned(t *testing.T) {
	a := banning(t)
	text := a.Text()
	for _, gone := range []string{"ban.command", "chain banned", "chain rest", "chain early", "chain forward", "jump banned"} {
		if strings.Contains(text, gone) {
			t.Errorf("%q is there:\n%s", gone, text)
		}
	}
	for _, stays := range []string{"jump more", "chain held", "goto held"} {
		if !strings.Contains(text, stays) {
			t.Errorf("%q is gone:\n%s", stays, text)
		}
	}
	all := askingFor(a, askedSets{Exact4: true, Exact6: true, Ranges4: sideB, Ranges6: sideA}).Text()
	for _, there := range []string{"ban.command_v4", "ban.command_v6", "ban.command_net4_b", "ban.command_net6_a", "chain rest", "chain early", "chain forward"} {
		if !strings.Contains(all, there) {
			t.Errorf("%q is not there:\n%s", there, all)
		}
	}
	if strings.Contains(all, "net4_a") || strings.Contains(all, "net6_b") {
		t.Errorf("both sides are asked:\n%s", all)
	}
	if s := New().(backend.Banner).BanStore(a, nil).(*banStore); !s.Never().Equal(addrset.MustParse("127.0.0.0/8", "fe80::/10")) || len(s.sets) != 6 {
		t.Errorf("commands are told %+v", s)
	}
}

func askingFor(a *artifact, which askedSets) *artifact {
	return (&banStore{asked: which}).Asking(a).(*artifact)
}

// From everything that may be asked to everything else, by a transaction made of
// what is kept for the commands: the kernel then holds what a load would.
func TestAsk(t *testing.T) {
	k := kernelHost(t)
	a := banning(t)
	banner := New().(backend.Banner)
	kept, err := banner.BanStore(a, nil).Encode()
	if err != nil {
		t.Fatal(err)
	}
	decoded, err := banner.DecodeBanStore(kept)
	if err != nil {
		t.Fatal(err)
	}
	store := decoded.(*banStore)
	k.load(t, New(), a)
	random := testseed.Rand(t)
	sides := []side{neither, sideA, sideB}
	for range 30 {
		from, to := store.asked, askedSets{Exact4: random.IntN(2) > 0, Exact6: random.IntN(2) > 0, Ranges4: sides[random.IntN(3)], Ranges6: sides[random.IntN(3)]}
		turn := store.plan(&filling{asked: to}).Turn
		text := ""
		if turn != nil {
			text = turn.Text()
		}
		if (text == "") != (from == to) {
			t.Fatalf("from %+v to %+v: %q", from, to, text)
		}
		if text != "" {
			if err := k.Do(func() error { return turn.Take(context.Background()) }); err != nil {
				t.Fatalf("from %+v to %+v: %v\n%s", from, to, err, text)
			}
		}
		want := askingFor(a, to)
		if d := k.compare(t, want, true); len(d) > 0 {
			t.Fatalf("from %+v to %+v:%s\n%s", from, to, differences(d), text)
		}
		if got := askedOf(banner.BanStoreIn(a, k.read(t, false))); got != to {
			t.Fatalf("the kernel asks %+v, read as %+v", to, got)
		}
		store.asked = to
	}
	// And by a load, from wherever it is.
	k.load(t, New(), a)
	k.holds(t, "after a load", a)
}
