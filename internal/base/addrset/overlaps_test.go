package addrset

import (
	"testing"

	"sluice/internal/base/testseed"
)

// Few ranges against many are looked up; the answer is that of intersecting.
func TestOverlapsOfFewAndMany(t *testing.T) {
	r := testseed.Rand(t)
	random := func(n int) Set {
		var b Builder
		for range n {
			from := r.Uint32N(1 << 14)
			b.Add4(from, from+r.Uint32N(3))
			b.Add6(1, uint64(from), 1, uint64(from)+r.Uint64N(3))
		}
		return b.Set()
	}
	met := 0
	for range 2000 {
		many, few := random(200), random(1+r.IntN(4))
		want := !many.Intersect(few).IsEmpty()
		if many.Overlaps(few) != want || few.Overlaps(many) != want {
			t.Fatalf("%s and %s overlap: %v", many, few, want)
		}
		if want {
			met++
		}
	}
	if met == 0 || met == 2000 {
		t.Errorf("%d of 2000 overlap: nothing was told apart", met)
	}
}
