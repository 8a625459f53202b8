package check

import (
	"hash/maphash"
	"slices"
)

// decided gathers the packets that some rules decide. Boxes that differ in one
// address alone become one, so that a thousand rules of one address each are
// not a thousand questions; and of the others most are told apart by their hulls.
type decided struct {
	boxes []box
	hulls []hull             // of the boxes
	index map[uint64][]grown // by everything but the one address
}

// grown is where boxes that differ in one address have gone: the newest into a
// small box that joins the large one from time to time.
type grown struct{ large, small int }

// smallBox is up to how many ranges are joined with one range more at a time.
const smallBox = 128

var hashSeed = maphash.MakeSeed()

func (d *decided) add(boxes []box, universe *box) {
	if d.index == nil {
		d.index = map[uint64][]grown{}
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
				d.hulls[g.small] = hullOf(boxes[i : i+1])
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
	h := noHull
	h.add(b)
	d.boxes, d.hulls = append(d.boxes, *b), append(d.hulls, h)
	return len(d.boxes) - 1
}

func (d *decided) join(n int, b *box, side int) {
	d.boxes[n].addresses[side] = d.boxes[n].addresses[side].Union(b.addresses[side])
	d.hulls[n].add(b)
}

// minus is what of the boxes nothing decides yet; ok is false when that would
// take too long.
func (d *decided) minus(boxes []box, e *effort) (rest []box, ok bool) {
	may := e.question()
	for i := range boxes {
		left, near := boxes[i:i+1], hullOf(boxes[i:i+1])
		for n := range d.boxes {
			if !d.hulls[n].meets(&near) {
				continue
			}
			if left, ok = e.cut(left, d.boxes[n:n+1], &may); !ok {
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

// sameBut says whether two boxes are the same except for one address; a set that
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
