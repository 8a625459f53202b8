package nftables

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"sluice/internal/base/addrset"
	"sluice/internal/program"
)

// contains is what the kernel says of an address, by the rules of a layout.
func (k *asking) contains(a position) bool {
	for k != nil {
		next := k.rest
		for i := range k.questions {
			if answer, has := k.questions[i].ask(a); has {
				next = answer
				break
			}
		}
		if next.on == nil {
			return next.hit
		}
		k = next.on
	}
	return false
}

// bounds gives the addresses next to both ends of every span, and random ones.
func bounds(spans []span, family int, random *rand.Rand) []position {
	var out []position
	for _, s := range spans {
		out = append(out, s.from, s.to)
		if s.from != (position{}) {
			out = append(out, s.from.before())
		}
		out = append(out, s.to.next())
		out = append(out, position{s.from.hi + random.Uint64N(s.to.hi-s.from.hi+1), s.to.lo})
	}
	for range 1000 {
		out = append(out, position{random.Uint64(), random.Uint64()})
	}
	if family == 4 {
		for i := range out {
			out[i] = positionOf(out[i].address(4))
		}
	}
	return out
}

// randomSpans is a set with blocks of all kinds: whole, empty and mixed at each
// length, with few and with many ranges.
func randomSpans(random *rand.Rand, family int) addrset.Set {
	var b addrset.Builder
	lengths := []int{8, 9, 12, 16, 17, 20, 23, 24, 24, 24, 26, 32}
	if family == 6 {
		lengths = []int{16, 17, 20, 24, 29, 32, 32, 36, 44, 48, 48, 64}
	}
	areas := make([]uint64, 1+random.IntN(8))
	for i := range areas {
		areas[i] = random.Uint64() & ^(^uint64(0) >> (8 + random.IntN(12)))
	}
	for range 20 + random.IntN(400) {
		length := lengths[random.IntN(len(lengths))]
		mask := ^(^uint64(0) >> length)
		prefix := areas[random.IntN(len(areas))] | random.Uint64()>>(8+random.IntN(16))
		from, to := position{prefix & mask, 0}, endOf(prefix&mask, length)
		if random.IntN(4) == 0 {
			to = position{to.hi | random.Uint64()>>(length-4), to.lo}
		}
		b.AddRange(addrset.Range{From: from.address(family), To: to.address(family)})
	}
	return b.Set()
}

// TestLayoutsHoldTheirSets: whatever the layout, an address is in it exactly
// when it is in the set.
func TestLayoutsHoldTheirSets(t *testing.T) {
	for _, family := range families {
		for seed := range uint64(60) {
			random := rand.New(rand.NewPCG(seed, uint64(family)))
			set := randomSpans(random, family)
			spans := spansOf(set, family)
			if again := (&intervals{areas: []area{whole(spans)}}).set(family); !again.Equal(set) {
				t.Fatalf("seed %d: %v became %v", seed, set, again)
			}
			where := bounds(spans, family, random)
			for _, c := range candidates[family] {
				k := c.make(whole(spans))
				for _, a := range where {
					if got, want := k.contains(a), set.Contains(a.address(family)); got != want {
						t.Fatalf("seed %d, %s, %s: %v, want %v; set %v", seed, c.name, a.address(family), got, want, set)
					}
				}
			}
		}
	}
}

// TestReloadKeepsOtherBlocks: where one range changes, only the sets of its block
// are others.
func TestReloadKeepsOtherBlocks(t *testing.T) {
	random := rand.New(rand.NewPCG(7, 7))
	var b addrset.Builder
	for range 20_000 {
		prefix := random.Uint64() & ^(^uint64(0) >> (16 + random.IntN(9)))
		b.AddRange(addrset.Range{From: position{prefix, 0}.address(4), To: endOf(prefix, 24).address(4)})
	}
	before := b.Set()
	change := addrset.MustParse("77.7.7.0/24")
	after := before.Union(change)
	if before.ContainsSet(change) {
		after = before.Difference(change)
	}
	names := func(set addrset.Set) (sets, chains map[string]bool) {
		l, err := lowerDefault(dropping(set))
		if err != nil {
			t.Fatal(err)
		}
		if l.layouts[0].Chosen == candidates[4][0].name {
			t.Fatal("the set is not laid out in chains")
		}
		sets, chains = map[string]bool{}, map[string]bool{}
		for _, s := range l.tree.Sets {
			sets[s.Name] = true
		}
		for _, c := range l.tree.Chains {
			chains[c.Name] = true
		}
		return sets, chains
	}
	oldSets, oldChains := names(before)
	newSets, newChains := names(after)
	other := 0
	for name := range newSets {
		if !oldSets[name] {
			other++
		}
	}
	if other == 0 || other > 6 || len(newSets) < 200 {
		t.Errorf("%d of %d sets are new", other, len(newSets))
	}
	for name := range newChains {
		if !oldChains[name] && !strings.Contains(name, "_77_") {
			t.Errorf("chain %s is new", name)
		}
	}
}

// TestSameSetSameLayout: the same set is laid out the same.
func TestSameSetSameLayout(t *testing.T) {
	p := large()
	first := mustLower(t, p).Text()
	for range 2 {
		if mustLower(t, p).Text() != first {
			t.Fatal("another layout")
		}
	}
}

// TestBudgetThatCannotBeKept: who gives less than any layout needs is told, and
// nobody else.
func TestBudgetThatCannotBeKept(t *testing.T) {
	sets := large().Sets
	for _, c := range []struct {
		budget program.Layout
		want   []string
	}{
		{program.Layout{}, nil},
		{program.Layout{Memory: 64 << 20, Load: 1_000_000_000}, nil},
		{program.Layout{Memory: 1 << 20}, []string{"layout: memory: 1.0 MiB is not enough: even one interval set for each large set needs "}},
		{program.Layout{Load: 1_000_000}, []string{"layout: load: 1 ms is not enough: even one interval set for each large set needs "}},
		{program.Layout{Memory: 1 << 20, Load: 1_000_000}, []string{"layout: memory: ", "layout: load: "}},
	} {
		p := dropping(sets[len(sets)-1].Addresses)
		p.Layout = c.budget
		var got []string
		for _, n := range mustLower(t, p).Notes() {
			if strings.HasPrefix(n.Text, "layout:") {
				got = append(got, n.Text)
			}
		}
		if !slices.EqualFunc(got, c.want, strings.HasPrefix) {
			t.Errorf("%+v: notes %q, want %q", c.budget, got, c.want)
		}
	}
}
