package check

import (
	"encoding/binary"
	"hash/maphash"
	"maps"
	"net/netip"
	"slices"
)

// decided gathers the packets that some rules decide. Boxes that differ in one
// address alone become one, so that a thousand rules of one address each are
// not a thousand questions; and boxes of few services or few sources are found
// by these, so that a thousand services are not either.
type decided struct {
	boxes []box
	index map[uint64][]grown // by everything but the one address

	byService, bySource map[any][]int
	broadService        []int // boxes of many services
	broadSource         map[int]bool
}

// grown is where boxes that differ in one address have gone: the newest into a
// small box that joins the large one from time to time.
type grown struct{ large, small int }

// smallBox is up to how many ranges are joined with one range more at a time.
const smallBox = 128

var hashSeed = maphash.MakeSeed()

func (d *decided) add(boxes []box, universe *box) {
	if d.index == nil {
		d.index, d.broadSource = map[uint64][]grown{}, map[int]bool{}
		d.byService, d.bySource = map[any][]int{}, map[any][]int{}
	}
	for i := range boxes {
		b := &boxes[i]
		side, ok := narrowSide(b, universe)
		if !ok {
			d.append(b)
			continue
		}
		key := d.key(b, side)
		at := slices.IndexFunc(d.index[key], func(g grown) bool { return sameBut(&d.boxes[g.large], b, side) })
		if at < 0 {
			n := d.append(b)
			d.index[key] = append(d.index[key], grown{n, n})
			continue
		}
		g := &d.index[key][at]
		if size(&d.boxes[g.small], side) >= smallBox {
			if g.large != g.small {
				d.join(g.large, &d.boxes[g.small], side)
				d.boxes[g.small].addresses[side] = b.addresses[side]
				d.note(g.small, b)
				continue
			}
			g.small = d.append(b)
			continue
		}
		d.join(g.small, b, side)
	}
}

func size(b *box, side int) int { return b.addresses[side].Len4() + b.addresses[side].Len6() }

func (d *decided) append(b *box) int {
	n := len(d.boxes)
	d.boxes = append(d.boxes, *b)
	points, few := fewServices(b)
	for _, p := range points {
		d.byService[p] = append(d.byService[p], n)
	}
	if !few {
		d.broadService = append(d.broadService, n)
	}
	d.note(n, b)
	return n
}

func (d *decided) join(n int, b *box, side int) {
	d.boxes[n].addresses[side] = d.boxes[n].addresses[side].Union(b.addresses[side])
	d.note(n, b)
}

// note makes a box that has sources of b found by them.
func (d *decided) note(n int, b *box) {
	sources, few := fewSources(b)
	for _, a := range sources {
		if known := d.bySource[a]; len(known) == 0 || known[len(known)-1] != n {
			d.bySource[a] = append(known, n)
		}
	}
	if !few {
		d.broadSource[n] = true
	}
}

// Boxes are found by parts of what they have: 16 services, 4096 IPv4 addresses
// or a /44 of IPv6. What has more than fewParts of these is found by all.
const fewParts = 16

func fewServices(b *box) (parts []any, few bool) {
	for _, s := range b.numbers[service] {
		from, to := s.from>>4, s.to>>4
		if to-from >= fewParts || len(parts)+int(to-from) >= fewParts { //nolint:gosec // small
			return nil, false
		}
		for n := from; n <= to; n++ {
			parts = append(parts, n)
		}
	}
	return parts, true
}

func fewSources(b *box) (parts []any, few bool) {
	if size(b, source) > fewParts {
		return nil, false
	}
	for r := range b.addresses[source].Each() {
		from, to := partOf(r.From), partOf(r.To)
		for ; ; from.n++ {
			if parts = append(parts, from); len(parts) > fewParts {
				return nil, false
			}
			if from == to {
				break
			}
		}
	}
	return parts, true
}

// addressPart is the leading bits of an address.
type addressPart struct {
	four bool
	n    uint64
}

func partOf(a netip.Addr) addressPart {
	if a.Is4() {
		b := a.As4()
		return addressPart{true, uint64(binary.BigEndian.Uint32(b[:]) >> 12)}
	}
	b := a.As16()
	return addressPart{false, binary.BigEndian.Uint64(b[:8]) >> 20}
}

// minus is what of the boxes nothing decides yet; ok is false when that would
// take too many boxes.
func (d *decided) minus(boxes []box) (rest []box, ok bool) {
	for i := range boxes {
		left := boxes[i : i+1]
		for _, n := range d.near(&boxes[i]) {
			if left, ok = minus(left, d.boxes[n:n+1]); !ok {
				return nil, false
			}
			if len(left) == 0 {
				break
			}
		}
		if rest = append(rest, left...); len(rest) > maxBoxes {
			return nil, false
		}
	}
	return rest, true
}

// near is the boxes that b may overlap.
func (d *decided) near(b *box) []int {
	found := func(points []any, by map[any][]int, broad []int) []int {
		out := slices.Clone(broad)
		for _, p := range points {
			out = append(out, by[p]...)
		}
		slices.Sort(out)
		return slices.Compact(out)
	}
	var out []int
	services, few := fewServices(b)
	if few {
		out = found(services, d.byService, d.broadService)
	}
	if sources, fewer := fewSources(b); fewer {
		if other := found(sources, d.bySource, slices.Collect(maps.Keys(d.broadSource))); !few || len(other) < len(out) {
			return other
		}
		return out
	}
	if few {
		return out
	}
	all := make([]int, len(d.boxes))
	for i := range all {
		all[i] = i
	}
	return all
}

// narrowSide is the one address that a box does not leave open.
func narrowSide(b, universe *box) (side int, ok bool) {
	side = -1
	for d := range b.addresses {
		if b.addresses[d].Equal(universe.addresses[d]) {
			continue
		}
		if side >= 0 {
			return 0, false
		}
		side = d
	}
	return side, side >= 0
}

func (d *decided) key(b *box, side int) uint64 {
	var h maphash.Hash
	h.SetSeed(hashSeed)
	maphash.WriteComparable(&h, side)
	for _, n := range b.numbers {
		maphash.WriteComparable(&h, len(n))
		if len(n) > 0 { // the whole is compared later
			maphash.WriteComparable(&h, n[0])
			maphash.WriteComparable(&h, n[len(n)-1])
		}
	}
	return h.Sum64()
}

// sameBut says whether two boxes are the same but for one address; a set that
// has grown to the whole family is narrow no more and never found here.
func sameBut(a, b *box, side int) bool {
	for d := range a.numbers {
		if !slices.Equal(a.numbers[d], b.numbers[d]) {
			return false
		}
	}
	for d := range a.addresses {
		if d != side && !a.addresses[d].Equal(b.addresses[d]) {
			return false
		}
	}
	return true
}
