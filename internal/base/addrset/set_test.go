package addrset

import (
	"fmt"
	"math/big"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"

	"sluice/internal/base/testseed"

	"github.com/google/go-cmp/cmp"
)

// The slow model: both families are cut into cells, most of them a single
// address at an edge where arithmetic can go wrong, the rest the gaps between.
// A set is a list of booleans, one a cell.
type cell struct{ from, to netip.Addr }

func (c cell) size() *big.Int {
	n := new(big.Int).SetBytes(c.to.AsSlice())
	n.Sub(n, new(big.Int).SetBytes(c.from.AsSlice()))
	return n.Add(n, big.NewInt(1))
}

var cells = slices.Concat(
	cut("0.0.0.0", "10.0.0.248", "127.255.255.250", "255.255.255.236"),
	cut("::", "::ffff:ffff:ffff:fff8", "2001:db8::", "7fff:ffff:ffff:ffff:ffff:ffff:ffff:fffa", "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffec"),
)

// cut makes cells of 20 single addresses from each start, and of the gaps.
func cut(starts ...string) []cell {
	var out []cell
	next := netip.MustParseAddr(starts[0])
	for _, s := range starts {
		a := netip.MustParseAddr(s)
		if next != a {
			out = append(out, cell{next, a.Prev()})
		}
		for range 20 {
			out = append(out, cell{a, a})
			a = a.Next()
		}
		next = a
	}
	if next.IsValid() {
		panic("the cells do not reach the last address")
	}
	return out
}

type model []bool

func (m model) ranges() []Range {
	var out []Range
	for i, in := range m {
		if !in {
			continue
		}
		if i > 0 && m[i-1] && cells[i].from.BitLen() == cells[i-1].from.BitLen() {
			out[len(out)-1].To = cells[i].to
			continue
		}
		out = append(out, Range{cells[i].from, cells[i].to})
	}
	return out
}

func (m model) each(o model, f func(a, b bool) bool) model {
	out := make(model, len(m))
	for i := range m {
		out[i] = f(m[i], o[i])
	}
	return out
}

func (m model) only(f Family) model {
	out := make(model, len(m))
	for i := range m {
		out[i] = m[i] && cells[i].from.Is4() == (f == IPv4)
	}
	return out
}

func (m model) count(f Family) *big.Int {
	n := new(big.Int)
	for i, in := range m.only(f) {
		if in {
			n.Add(n, cells[i].size())
		}
	}
	return n
}

// random returns a set built in random order, with overlaps, and its model.
func random(r *rand.Rand) (Set, model) {
	m := make(model, len(cells))
	var b Builder
	for range r.IntN(12) {
		i := r.IntN(len(cells))
		j := min(i+r.IntN(1+r.IntN(40)), len(cells)-1)
		for cells[j].from.BitLen() != cells[i].from.BitLen() {
			j--
		}
		for k := i; k <= j; k++ {
			m[k] = true
		}
		whole := Range{cells[i].from, cells[j].to}
		switch r.IntN(4) {
		case 0:
			for _, p := range whole.Prefixes() {
				b.AddPrefix(p)
			}
		case 1:
			for k := j; k >= i; k-- {
				b.AddRange(Range{cells[k].from, cells[k].to})
			}
		case 2:
			b.AddSet(Of(whole))
		default:
			b.AddRange(whole)
		}
		if r.IntN(4) == 0 {
			b.Set()
		}
	}
	return b.Set(), m
}

func TestAgainstModel(t *testing.T) {
	r := testseed.Rand(t)
	and := func(a, b bool) bool { return a && b }
	or := func(a, b bool) bool { return a || b }
	minus := func(a, b bool) bool { return a && !b }
	not := func(a, _ bool) bool { return !a }
	for i := range 4000 {
		a, ma := random(r)
		b, mb := random(r)
		for _, c := range []struct {
			op   string
			got  Set
			want model
		}{
			{"a", a, ma},
			{"a after the operations", a, ma},
			{"a ∪ b", a.Union(b), ma.each(mb, or)},
			{"a ∩ b", a.Intersect(b), ma.each(mb, and)},
			{"a \\ b", a.Difference(b), ma.each(mb, minus)},
			{"¬a", a.Complement(), ma.each(mb, not)},
			{"¬a in IPv4", a.ComplementIn(IPv4), ma.each(mb, not).only(IPv4)},
			{"¬a in IPv6", a.ComplementIn(IPv6), ma.each(mb, not).only(IPv6)},
			{"a's IPv4", a.Only4(), ma.only(IPv4)},
			{"a's IPv6", a.Only6(), ma.only(IPv6)},
		} {
			if d := diff(c.want.ranges(), c.got.Ranges()); d != "" {
				t.Fatalf("round %d: a = {%v}, b = {%v}: %s (-want +got):\n%s", i, a, b, c.op, d)
			}
			if i%20 == 0 {
				checkSet(t, c.got, c.want)
			}
		}
		checkPair(t, a, b, ma, mb)
	}
}

func diff(want, got []Range) string {
	return cmp.Diff(want, got, cmp.Comparer(func(a, b netip.Addr) bool { return a == b }))
}

// checkSet compares every question that one set answers with the model.
func checkSet(t *testing.T, s Set, m model) {
	t.Helper()
	for i, c := range cells {
		if s.Contains(c.from) != m[i] || s.Contains(c.to) != m[i] {
			t.Fatalf("{%v}: contains %s-%s: want %v", s, c.from, c.to, m[i])
		}
	}
	n4, n6 := m.count(IPv4), m.count(IPv6)
	if n4.Cmp(new(big.Int).SetUint64(s.Count4())) != 0 || n6.Cmp(s.Count6()) != 0 {
		t.Fatalf("{%v}: counts %d and %d, want %d and %d", s, s.Count4(), s.Count6(), n4, n6)
	}
	if s.Has4() != (n4.Sign() > 0) || s.Has6() != (n6.Sign() > 0) || s.IsEmpty() != (n4.Sign() == 0 && n6.Sign() == 0) {
		t.Fatalf("{%v}: wrong about being empty", s)
	}
	if got := slices.Concat(s.V4(), s.V6()); diff(m.ranges(), got) != "" || s.Len4() != len(s.V4()) || s.Len6() != len(s.V6()) {
		t.Fatalf("{%v}: V4 and V6 hold %v", s, got)
	}
	checkPrefixes(t, s)
}

func checkPrefixes(t *testing.T, s Set) {
	t.Helper()
	all := s.Prefixes()
	if got := FromPrefixes(all...); !got.Equal(s) {
		t.Fatalf("{%v}: prefixes make {%v}", s, got)
	}
	n4, n6 := s.CountPrefixes()
	if n4+n6 != len(all) {
		t.Fatalf("{%v}: %d and %d prefixes counted of %d", s, n4, n6, len(all))
	}
	var perRange []netip.Prefix
	for _, r := range s.Ranges() {
		p := r.Prefixes()
		if one, ok := r.Prefix(); ok != (len(p) == 1) || ok && one != p[0] {
			t.Fatalf("%v: Prefix is %v, %v; Prefixes %v", r, one, ok, p)
		}
		perRange = append(perRange, p...)
	}
	if !slices.Equal(perRange, all) {
		t.Fatalf("{%v}: prefixes by range %v, of the set %v", s, perRange, all)
	}
	// Disjoint prefixes in order are fewest when no two neighbours are the
	// halves of one.
	for i := 1; i < len(all); i++ {
		a, b := all[i-1], all[i]
		if a.Addr().BitLen() == b.Addr().BitLen() && a.Overlaps(b) {
			t.Fatalf("{%v}: %v overlaps %v", s, a, b)
		}
		if a.Bits() == b.Bits() && a.Bits() > 0 && netip.PrefixFrom(a.Addr(), a.Bits()-1).Masked() == netip.PrefixFrom(b.Addr(), b.Bits()-1).Masked() {
			t.Fatalf("{%v}: %v and %v are one", s, a, b)
		}
	}
}

// checkPair compares every question about two sets with the model.
func checkPair(t *testing.T, a, b Set, ma, mb model) {
	t.Helper()
	overlap, within, equal := false, true, true
	for i := range cells {
		overlap = overlap || ma[i] && mb[i]
		within = within && (ma[i] || !mb[i])
		equal = equal && ma[i] == mb[i]
	}
	if a.Overlaps(b) != overlap || a.ContainsSet(b) != within || a.Equal(b) != equal {
		t.Fatalf("{%v}, {%v}: overlaps %v, contains %v, equal %v; want %v, %v, %v",
			a, b, a.Overlaps(b), a.ContainsSet(b), a.Equal(b), overlap, within, equal)
	}
	if u := a.Union(b); !u.ContainsSet(a) || !u.ContainsSet(b) || !u.Difference(a).Union(a).Equal(u) {
		t.Fatalf("{%v}, {%v}: union {%v} does not contain its parts", a, b, u)
	}
}

func TestWholeSpace(t *testing.T) {
	all := All()
	if got, want := fmt.Sprint(all.Prefixes()), "[0.0.0.0/0 ::/0]"; got != want {
		t.Errorf("prefixes %s, want %s", got, want)
	}
	if got := all.Count4(); got != 1<<32 {
		t.Errorf("%d IPv4 addresses", got)
	}
	if got, want := all.Count6(), new(big.Int).Lsh(big.NewInt(1), 128); got.Cmp(want) != 0 {
		t.Errorf("%d IPv6 addresses, want %d", got, want)
	}
	if none := all.Complement(); !none.IsEmpty() || !none.Equal(Set{}) {
		t.Errorf("complement of everything is {%v}", none)
	}
}

func TestMappedAndZoned(t *testing.T) {
	var b Builder
	b.AddAddr(netip.MustParseAddr("::ffff:203.0.113.7"))
	b.AddAddr(netip.MustParseAddr("fe80::1%eth0"))
	b.AddPrefix(netip.MustParsePrefix("::ffff:198.51.100.9/120"))
	s := b.Set()
	if got, want := s.String(), "198.51.100.0/24, 203.0.113.7, fe80::1"; got != want {
		t.Errorf("set is %s, want %s", got, want)
	}
	for _, a := range []string{"203.0.113.7", "::ffff:203.0.113.7", "fe80::1%wan", "198.51.100.200"} {
		if !s.Contains(netip.MustParseAddr(a)) {
			t.Errorf("%s is not in the set", a)
		}
	}
	if s.Contains(netip.Addr{}) {
		t.Error("the invalid address is in the set")
	}
}

func TestInvalidRangePanics(t *testing.T) {
	a4, a6 := netip.MustParseAddr("192.0.2.9"), netip.MustParseAddr("2001:db8::")
	mapped := netip.MustParseAddr("::ffff:192.0.2.1")
	for _, r := range []Range{{}, {a4, a6}, {a4, a4.Prev()}, {mapped, mapped}, {a6, a6.WithZone("eth0")}} {
		if _, err := NewRange(r.From, r.To); err == nil {
			t.Errorf("NewRange(%v) did not fail", r)
		}
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("AddRange(%v) did not panic", r)
				}
			}()
			Of(r)
		}()
	}
}

func TestBuilderGoesOnAfterSet(t *testing.T) {
	var b Builder
	b.AddAddr(netip.MustParseAddr("192.0.2.1"))
	first := b.Set()
	b.AddAddr(netip.MustParseAddr("192.0.2.0"))
	second := b.Set()
	if first.String() != "192.0.2.1" || second.String() != "192.0.2.0/31" {
		t.Errorf("first %v, second %v", first, second)
	}
}

func BenchmarkMillion(b *testing.B) {
	r := rand.New(rand.NewPCG(1, 2))
	ranges := make([]Range, 1_000_000)
	for i := range ranges {
		a := key4(r.Uint32() &^ 3)
		ranges[i] = Range{a.addr(), a.addr()}
	}
	b.ReportAllocs()
	for b.Loop() {
		Of(ranges...).Complement().Union(Of(ranges[:1000]...))
	}
}

// TestBuilderLeavesSetsAlone: a set that was added keeps its own addresses,
// whatever comes to the builder after it.
func TestBuilderLeavesSetsAlone(t *testing.T) {
	first := Of(MustParseRange("192.0.2.8-192.0.2.9"), MustParseRange("2001:db8::/64"))
	want := first.String()
	var b Builder
	b.AddSet(first)
	b.Set()
	b.Add4(0xc0000200, 0xc0000207) // 192.0.2.0-192.0.2.7, which joins
	b.Add6(0x20010db800000001, 0, 0x20010db800000001, ^uint64(0))
	b.AddSet(Of(MustParseRange("192.0.2.10")))
	if got := b.Set().String(); got != "192.0.2.0-192.0.2.10, 2001:db8::/63" {
		t.Errorf("the builder holds %s", got)
	}
	if got := first.String(); got != want {
		t.Errorf("the set became %s, it was %s", got, want)
	}
}

func TestFind(t *testing.T) {
	s := FromPrefixes(netip.MustParsePrefix("192.0.2.0/25"), netip.MustParsePrefix("203.0.113.9/32"), netip.MustParsePrefix("2001:db8:7::/48"))
	for text, want := range map[string]string{
		"192.0.2.0": "192.0.2.0/25", "192.0.2.127": "192.0.2.0/25", "192.0.2.128": "", "192.0.1.255": "",
		"203.0.113.9": "203.0.113.9", "203.0.113.10": "", "255.255.255.255": "", "::ffff:192.0.2.5": "192.0.2.0/25",
		"2001:db8:7::": "2001:db8:7::/48", "2001:db8:8::": "", "::": "",
	} {
		a := netip.MustParseAddr(text)
		got, in := s.Find(a)
		if in != s.Contains(a) || in != (want != "") || in && got.String() != want {
			t.Errorf("%s is found in %s, %t, want %q", a, got, in, want)
		}
	}
	if _, in := s.Find(netip.Addr{}); in {
		t.Error("no address is found")
	}
}
