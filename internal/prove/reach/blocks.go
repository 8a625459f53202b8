package reach

import (
	"encoding/binary"
	"net/netip"
	"slices"
	"sort"

	"sluice/internal/base/addrset"
)

// blocks divides all addresses into classes: two addresses are of one class when
// every set has both or neither. A hundred thousand ranges of one set make four
// classes, inside and outside of it in both families.
type blocks struct {
	sets    []addrset.Set
	byShape map[shape][]int // places in sets
	parts   [2]division     // IPv4, IPv6
	classes int
	six     []bool    // by class: IPv6
	members [][]int32 // by set: its classes
	// examples of classes, once they were looked for
	examples []netip.Addr
}

// shape is what equal sets have in common; few others have it.
type shape struct {
	len4, len6  int
	first, last netip.Addr
}

// division is the addresses of one family: from each start to the next one, a
// class.
type division struct {
	starts []wide
	class  []int32
}

// wide is an address as a number.
type wide = addrset.Number

// add notes a set and gives its place.
func (b *blocks) add(s addrset.Set) int {
	if b.byShape == nil {
		b.byShape = map[shape][]int{}
	}
	if i, known := b.find(s); known {
		return i
	}
	b.sets = append(b.sets, s)
	of := shapeOf(s)
	b.byShape[of] = append(b.byShape[of], len(b.sets)-1)
	return len(b.sets) - 1
}

func shapeOf(s addrset.Set) shape {
	of := shape{len4: s.Len4(), len6: s.Len6()}
	of.first, of.last, _ = s.Bounds()
	return of
}

// edge is where a set begins or ends.
type edge struct {
	at  wide
	set int32
}

// divide makes the classes of all sets that were added.
func (b *blocks) divide() {
	var in [][]int32 // by class: the sets that it is in
	for family := range b.parts {
		known := map[string]int32{}
		var key []byte
		b.parts[family] = sweep(b.edges(family == 0), func(active []int32) int32 {
			key = appendKey(key[:0], active)
			class, seen := known[string(key)]
			if !seen {
				class = int32(len(in)) //nolint:gosec // fewer than ranges
				known[string(key)] = class
				in = append(in, slices.Clone(active))
				b.six = append(b.six, family == 1)
			}
			return class
		})
	}
	b.classes = len(in)
	b.examples = make([]netip.Addr, b.classes)
	b.members = make([][]int32, len(b.sets))
	for class, sets := range in {
		for _, s := range sets {
			b.members[s] = append(b.members[s], int32(class)) //nolint:gosec // fewer than ranges
		}
	}
}

// edges are those of all sets in one family, in order: as the sets have them, merged.
func (b *blocks) edges(four bool) []edge {
	var lists [][]edge
	for i, s := range b.sets {
		of, n := s.Only6(), s.Len6()
		if four {
			of, n = s.Only4(), s.Len4()
		}
		list := make([]edge, 0, 2*n)
		for r := range of.Each() {
			list = append(list, edge{addrset.NumberOf(r.From), int32(i)}) //nolint:gosec // a number of sets
			if to := addrset.NumberOf(r.To); to != addrset.LastNumber(four) {
				list = append(list, edge{to.Add(wide{Lo: 1}), int32(i)}) //nolint:gosec // a number of sets
			}
		}
		lists = append(lists, list)
	}
	for len(lists) > 1 {
		both := merged(lists[0], lists[1])
		lists[0], lists[1] = nil, nil // much memory
		lists = append(lists[2:], both)
	}
	if len(lists) == 0 {
		return nil
	}
	return lists[0]
}

func merged(a, b []edge) []edge {
	out := make([]edge, 0, len(a)+len(b))
	for len(a) > 0 && len(b) > 0 {
		if a[0].at.Compare(b[0].at) <= 0 {
			out, a = append(out, a[0]), a[1:]
		} else {
			out, b = append(out, b[0]), b[1:]
		}
	}
	return append(append(out, a...), b...)
}

// find gives the place of a set; false where it was not added.
func (b *blocks) find(s addrset.Set) (int, bool) {
	for _, i := range b.byShape[shapeOf(s)] {
		if b.sets[i].Equal(s) {
			return i, true
		}
	}
	return 0, false
}

// of gives the classes of a set, which is one that was added or made of such.
// Any other is a mistake of the caller's, since its packets are not told apart.
func (b *blocks) of(s addrset.Set) []bool {
	in := make([]bool, b.classes)
	if i, known := b.find(s); known {
		for _, class := range b.members[i] {
			in[class] = true
		}
		return in
	}
	for class := range in {
		in[class] = s.Contains(b.example(class))
	}
	if !b.set(in).Equal(s) {
		panic("reach: a set whose boundaries the universe was not told of")
	}
	return in
}

// sweep goes through the edges of one family and asks for the class of what lies
// between two of them.
func sweep(edges []edge, class func(active []int32) int32) division {
	var d division
	var active []int32
	add := func(at wide) {
		c := class(active)
		if n := len(d.class); n == 0 || d.class[n-1] != c {
			d.starts = append(d.starts, at)
			d.class = append(d.class, c)
		}
	}
	if len(edges) == 0 || edges[0].at != (wide{}) {
		add(wide{})
	}
	for i := 0; i < len(edges); {
		at := edges[i].at
		for ; i < len(edges) && edges[i].at == at; i++ {
			place, found := slices.BinarySearch(active, edges[i].set)
			if found {
				active = slices.Delete(active, place, place+1)
			} else {
				active = slices.Insert(active, place, edges[i].set)
			}
		}
		add(at)
	}
	return d
}

func appendKey(key []byte, active []int32) []byte {
	for _, s := range active {
		key = binary.LittleEndian.AppendUint32(key, uint32(s)) //nolint:gosec // a place in a list
	}
	return key
}

func (b *blocks) part(a netip.Addr) *division {
	if a.Is4() {
		return &b.parts[0]
	}
	return &b.parts[1]
}

// classOf gives the class of an address.
func (b *blocks) classOf(a netip.Addr) int {
	d, w := b.part(a), addrset.NumberOf(a)
	return int(d.class[sort.Search(len(d.starts), func(i int) bool { return d.starts[i].Compare(w) > 0 })-1])
}

// familiar are addresses that a reader knows for examples.
var familiar = []netip.Addr{
	netip.MustParseAddr("198.51.100.7"), netip.MustParseAddr("203.0.113.7"), netip.MustParseAddr("192.0.2.7"),
	netip.MustParseAddr("2001:db8::7"), netip.MustParseAddr("2001:db8:7::7"),
}

// example gives an address of a class: a familiar one, else the second one of its
// first range of unicast addresses, since the first is often that of a network.
func (b *blocks) example(class int) netip.Addr {
	if b.examples[class].IsValid() {
		return b.examples[class]
	}
	for _, a := range familiar {
		if b.classOf(a) == class {
			b.examples[class] = a
			return a
		}
	}
	d, six := &b.parts[0], b.six[class]
	if six {
		d = &b.parts[1]
	}
	var first netip.Addr
	for i, c := range d.class {
		if int(c) != class {
			continue
		}
		end := addrset.LastNumber(!six)
		if i+1 < len(d.starts) {
			end = d.starts[i+1].Prev()
		}
		at := d.starts[i]
		if unicast := (wide{Lo: 1 << 24}); !six && at.Compare(unicast) < 0 && unicast.Compare(end) < 0 {
			at = unicast // 0.0.0.0/8 is nobody's
		}
		if second := at.Add(wide{Lo: 1}); second.Compare(end) < 0 {
			at = second
		}
		if a := at.Addr(!six); !first.IsValid() || a.IsGlobalUnicast() {
			first = a
			if a.IsGlobalUnicast() {
				break
			}
		}
	}
	b.examples[class] = first
	return first
}

// set is the addresses of classes.
func (b *blocks) set(in []bool) addrset.Set {
	var out addrset.Builder
	for family := range b.parts {
		d := &b.parts[family]
		for i := 0; i < len(d.class); i++ {
			if !in[d.class[i]] {
				continue
			}
			from := d.starts[i]
			for i+1 < len(d.class) && in[d.class[i+1]] {
				i++
			}
			to := addrset.LastNumber(family == 0)
			if i+1 < len(d.starts) {
				to = d.starts[i+1].Prev()
			}
			if family == 0 {
				out.Add4(uint32(from.Lo), uint32(to.Lo)) //nolint:gosec // IPv4 addresses
			} else {
				out.Add6(from.Hi, from.Lo, to.Hi, to.Lo)
			}
		}
	}
	return out.Set()
}
