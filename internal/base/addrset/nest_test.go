package addrset_test

import (
	"net/netip"
	"slices"
	"testing"

	"sluice/internal/base/addrset"
	"sluice/internal/base/testseed"
)

// TestNest: what the linear search finds, of ranges of both families that overlap, touch and
// lie in one another.
func TestNest(t *testing.T) {
	r := testseed.Rand(t)
	some := func() addrset.Range {
		address := func(n int) netip.Addr { return netip.AddrFrom4([4]byte{255, 255, 255, byte(n)}) }
		if r.IntN(2) == 0 {
			address = func(n int) netip.Addr { return netip.AddrFrom16([16]byte{15: byte(n)}) }
		}
		from := 1 + r.IntN(40)
		return addrset.Range{From: address(from), To: address(from + r.IntN(12))}
	}
	for range 3000 {
		var list []addrset.Range
		for range r.IntN(12) {
			list = append(list, some())
		}
		nest, asked := addrset.NestOf(list), some()
		around, found := nest.Around(asked)
		if want := slices.ContainsFunc(list, func(o addrset.Range) bool { return o.ContainsRange(asked) }); found != want || found && (!slices.Contains(list, around) || !around.ContainsRange(asked)) {
			t.Fatalf("%v in %v: %v, %v", asked, list, around, found)
		}
		if got, want := nest.Within(asked), slices.ContainsFunc(list, func(o addrset.Range) bool { return asked.ContainsRange(o) }); got != want {
			t.Fatalf("any of %v in %v: %v", list, asked, got)
		}
	}
}
