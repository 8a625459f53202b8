package nftables

import (
	"errors"
	"iter"
	"net/netip"
	"testing"
	"time"

	"sluice/internal/backend"
	"sluice/internal/base/addrset"
	"sluice/internal/program"
	"sluice/internal/system/kernel/nfset"
)

// What was read of bans to compare them is not read again for a proof.
func TestBansAreReadOnce(t *testing.T) {
	k := kernelHost(t)
	b := New()
	a := mustLower(t, &program.Program{
		Owner: "sluice",
		Hooks: []program.Hook{{Kind: program.Input, Phase: program.Filter, Default: program.Accept, Chain: "input"}},
		Chains: []program.Chain{{Name: "input", Rules: []program.Rule{
			{Match: conditions{setOn(program.Source, "ban.command")}, Actions: actions{program.Drop}},
		}}},
		Sets: []program.Set{{ID: "ban.command", Key: []program.Field{program.Source}, Life: program.Dynamic, Commands: true}},
	})
	var want backend.Bans
	all := addrset.MustParse("192.0.2.1/32", "192.0.2.2/32", "192.0.2.7/32")
	for r := range all.Each() {
		for at := r.From; at.Compare(r.To) <= 0; at = at.Next() {
			want.IPv4.Single = append(want.IPv4.Single, backend.BannedAddress{Addr: at})
		}
	}
	asked := askingFor(a, askedSets{Exact4: true})
	k.load(t, b, asked)
	store := b.(backend.Banner).BanStore(asked, &banStore{asked: askedSets{Exact4: true}})
	set, _ := store.(*banStore).find(4, neither)
	plan := func() (p backend.BanPlan) {
		t.Helper()
		if err := k.Do(func() (err error) {
			p, err = store.Fill(t.Context(), want, time.Now())
			return err
		}); err != nil {
			t.Fatal(err)
		}
		return p
	}
	elements := func(read backend.ReadBans) addrset.Set {
		t.Helper()
		var s backend.State
		if err := k.Do(func() (err error) {
			s, err = b.(backend.Lifter).ReadWhole(t.Context(), read)
			return err
		}); err != nil {
			t.Fatal(err)
		}
		return s.(*State).Tree.set(set.Name).Elements.all()
	}
	if err := k.Do(func() error { return plan().Fill.Take(t.Context()) }); err != nil {
		t.Fatal(err)
	}
	p := plan()
	if p.Fill != nil || !p.Read[set.Name].Equal(all) {
		t.Fatalf("read %v, to do %v", p.Read, p.Differences)
	}
	k.Nft("delete element inet sluice " + set.Name + " { 192.0.2.7 }")
	if have := elements(p.Read); !have.Equal(all) {
		t.Errorf("with what was read: %s", have)
	}
	if have := elements(nil); !have.Equal(addrset.MustParse("192.0.2.1/32", "192.0.2.2/32")) {
		t.Errorf("without: %s", have)
	}

	// What is about to end may have been there: to be added, and no difference.
	want.IPv4.Single[2].Until = time.Now().Add(slack / 2)
	if p := plan(); p.Fill == nil || len(p.Differences) > 0 {
		t.Errorf("of one that is about to end: %v", p.Differences)
	}
	want.IPv4.Single[2].Until = time.Now().Add(time.Hour)
	if p := plan(); len(p.Differences) != 1 {
		t.Errorf("of one that lasts: %v", p.Differences)
	}
}

// What ends while a set is dumped makes the kernel pass others by.
func TestBansAreFoundWhileOthersEnd(t *testing.T) {
	t.Parallel()
	k := kernelHost(t)
	set := nfset.Set{Table: "t", Name: "s"}
	k.Nft("add table inet t; add set inet t s { type ipv4_addr; flags timeout; counter; }")
	const n = 20_000
	var want []backend.BannedAddress
	elements := func(first byte, lasts time.Duration) iter.Seq[nfset.Element] {
		return func(yield func(nfset.Element) bool) {
			for i := range n {
				a := netip.AddrFrom4([4]byte{first, byte(i >> 16), byte(i >> 8), byte(i)})
				if lasts == 0 {
					want = append(want, backend.BannedAddress{Addr: a})
				}
				if !yield(nfset.Element{Key: a.AsSlice(), Timeout: lasts}) {
					return
				}
			}
		}
	}
	err := k.Do(func() error {
		conn, err := nfset.Open()
		if err != nil {
			return err
		}
		defer conn.Close()
		if err := errors.Join(conn.Add(t.Context(), set, elements(100, 0)), conn.Add(t.Context(), set, elements(101, 500*time.Millisecond))); err != nil {
			return err
		}
		for range 60 {
			f := &filling{read: backend.ReadBans{}}
			s, err := f.readExact(t.Context(), conn, set, 4, want, time.Now())
			if err != nil {
				return err
			}
			if len(s.add) > 0 {
				t.Fatalf("%d of %d are taken for missing", len(s.add), n)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// Generations of before a flowtable had a chain of its own ask bans ahead of it, and stay
// as they are: a rollback or a boot brings them back.
func TestOnlyFlowtablesWithAChainEndFlows(t *testing.T) {
	tree := &Tree{Table: Table, Sets: []*Set{{ID: limitBanned}}, Flowtables: []Flowtable{{Name: "fast"}}}
	ends := func() bool {
		s := &banStore{}
		s.of(tree)
		return s.end() != nil
	}
	if ends() {
		t.Error("a flowtable without a chain is to be rebuilt")
	}
	if tree.Chains = []*Chain{{Name: "fast"}}; !ends() {
		t.Error("nothing ends the flows of a flowtable")
	}
}
