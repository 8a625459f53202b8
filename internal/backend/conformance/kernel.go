package conformance

import (
	"context"
	"net/netip"
	"slices"
	"testing"
	"time"

	"sluice/internal/backend"
	"sluice/internal/base/addrset"
	"sluice/internal/program"
)

// wantMark wants the kernel to bear a mark.
func (s suite) wantMark(t *testing.T, want string, confirmed bool, when string) {
	t.Helper()
	err := s.host.Do(func() error {
		mark, is, err := s.b.Mark(context.Background())
		if mark != want || is != confirmed {
			t.Errorf("%s: the mark is %q (confirmed %v), want %q (%v)", when, mark, is, want, confirmed)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// marks: a mark comes with the switch and goes with the next, and changes no rule.
func (s suite) marks(t *testing.T) {
	one, other := backend.MarkPrefix+"1_aaaa", backend.MarkPrefix+"2_bbbb"
	s.to(t, nil)
	a, b := s.lower(t, s.programs[0]), s.lower(t, s.programs[1])
	load := func(want backend.Artifact, mark, before string) {
		t.Helper()
		steps := s.b.Marked(s.steps(t, want, true), mark)
		last := 0
		for i, step := range steps {
			if step.Purpose == backend.Switch {
				last = i
			}
		}
		for i, step := range steps {
			if i == last {
				s.wantMark(t, before, false, "before the switch")
			}
			s.take(t, step)
		}
		s.wantMark(t, mark, false, "behind the switch")
		s.holds(t, want, "marked")
	}
	load(a, one, "")
	load(a, other, one)
	load(b, one, other)
	if err := s.host.Do(func() error { return s.b.Confirm(context.Background()) }); err != nil {
		t.Fatal(err)
	}
	s.wantMark(t, one, true, "confirmed")
	s.holds(t, b, "confirmed")
	for _, step := range s.b.Marked(s.steps(t, a, true), other) {
		s.take(t, step)
	}
	s.wantMark(t, other, false, "behind another switch")
	load(nil, "", other)
}

// fingerprints: every transaction gives another one, and those of this process are known.
func (s suite) fingerprints(t *testing.T) {
	now := func() (out backend.Fingerprint) {
		t.Helper()
		if err := s.host.Do(func() (err error) { out, err = s.b.Fingerprint(); return err }); err != nil {
			t.Fatal(err)
		}
		return out
	}
	s.to(t, nil)
	before := now()
	s.to(t, s.lower(t, s.programs[1]))
	after := now()
	if after.Number == before.Number || !after.Alone(before) {
		t.Errorf("a load leads from %+v to %+v", before, after)
	}
	if again := now(); again != after {
		t.Errorf("without a load it is %+v and then %+v", after, again)
	}
	s.to(t, nil)
	other := now()
	other.Own = after.Own
	if other.Alone(after) {
		t.Errorf("what somebody else did is taken for one's own: %+v, %+v", after, other)
	}
}

// banning lets commands ban what begins a flow.
func banning() *program.Program {
	p := closed()
	p.Sets = append(p.Sets, program.Set{
		ID: "ban.command", Key: source, Life: program.Dynamic, Commands: true, Never: span("192.0.2.9", "192.0.2.9"),
	})
	rules := &p.Chains[0].Rules
	*rules = slices.Insert(*rules, 1, program.Rule{Match: []program.Condition{in(program.Source, "ban.command")}, Actions: []program.Action{program.Drop}, Origin: at(9)})
	return p
}

// bansByCommand: a store holds what it was filled with and edited to, rules ask for it by
// a load and without one, and it survives the disk.
func (s suite) bansByCommand(t *testing.T) {
	banner, can := s.b.(backend.Banner)
	if !can {
		t.Skip("this backend holds no bans")
	}
	s.to(t, nil)
	a := s.lower(t, Named{"bans by command", banning})
	store := banner.BanStore(a, nil)
	if !store.Room() || !store.Never().Contains(netip.MustParseAddr("192.0.2.9")) {
		t.Errorf("it has room: %v, and never bans %v", store.Room(), store.Never())
	}
	if other := banner.BanStore(s.lower(t, s.programs[0]), nil); other.Room() {
		t.Error("a policy without bans has room for them")
	}
	s.to(t, store.Asking(a))

	now := time.Now()
	first, second := netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("2001:db8::1")
	wide := backend.BannedRange{Range: addrset.Range{From: netip.MustParseAddr("198.51.100.0"), To: netip.MustParseAddr("198.51.100.127")}}
	want := backend.Bans{}
	want.IPv4.Single = []backend.BannedAddress{{Addr: first}}
	plan := s.plan(t, func() (backend.BanPlan, error) { return store.Fill(context.Background(), want, now) })
	if plan.Fill == nil || plan.Turn == nil {
		t.Fatalf("to ban takes %+v", plan)
	}
	s.take(t, backend.Step{Purpose: backend.Fill, Name: "bans", Transaction: plan.Fill})
	s.to(t, plan.After.Asking(a))
	s.wantHeld(t, banner.BanStoreIn(a, s.read(t, false)), 1, 0)

	encoded, err := plan.After.Encode()
	if err != nil {
		t.Fatal(err)
	}
	if store, err = banner.DecodeBanStore(encoded); err != nil {
		t.Fatal(err)
	}
	edit := func(e backend.BanEdit) {
		t.Helper()
		e.All = func() (backend.Bans, error) { return want, nil }
		plan := s.plan(t, func() (backend.BanPlan, error) { return store.Edit(context.Background(), e, now) })
		for _, transaction := range []backend.Transaction{plan.Fill, plan.Turn} {
			if transaction != nil {
				s.take(t, backend.Step{Purpose: backend.Edit, Name: "bans", Transaction: transaction})
			}
		}
		store = plan.After
		s.holds(t, banner.BanStore(a, store).Asking(a), "rules that ask for other bans")
		again := s.plan(t, func() (backend.BanPlan, error) {
			return store.Edit(context.Background(), backend.BanEdit{Doubt: true, All: e.All}, now)
		})
		if again.Fill != nil || again.Turn != nil || len(again.Differences) > 0 {
			t.Errorf("what is held is not what was banned: %+v", again.Differences)
		}
	}
	want.IPv6.Single = []backend.BannedAddress{{Addr: second}}
	edit(backend.BanEdit{Add: []backend.BannedRange{{Range: addrset.Range{From: second, To: second}}}})
	s.wantHeld(t, store, 2, 0)
	want.IPv4.Ranges = []backend.BannedRange{wide}
	edit(backend.BanEdit{Add: []backend.BannedRange{wide}})
	s.wantHeld(t, store, 2, 1)
	want.IPv4.Single = nil
	edit(backend.BanEdit{Lift: []addrset.Range{{From: first, To: first}}})
	s.wantHeld(t, store, 1, 1)
	s.to(t, nil)
}

func (s suite) plan(t *testing.T, planned func() (backend.BanPlan, error)) (plan backend.BanPlan) {
	t.Helper()
	if err := s.host.Do(func() (err error) { plan, err = planned(); return err }); err != nil {
		t.Fatal(err)
	}
	return plan
}

func (s suite) wantHeld(t *testing.T, store backend.BanStore, single, ranges int) {
	t.Helper()
	err := s.host.Do(func() error {
		held, err := store.Held(context.Background())
		if err == nil && (len(held.Single) != single || len(held.Ranges) != ranges) {
			t.Errorf("held are %+v, want %d addresses and %d ranges", held, single, ranges)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}
