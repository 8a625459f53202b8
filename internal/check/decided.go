package check

import (
	"hash/maphash"
	"slices"
)

// decided gathers the packets that some rules decide. Boxes that differ in one
// address alone become one, so that a thousand rules of one address each are
// not a thousand questions.
type decided struct {
	boxes []box
	index map[uint64][]int // by everything but the one address
}

var hashSeed = maphash.MakeSeed()

func (d *decided) add(boxes []box, universe *box) {
	if d.index == nil {
		d.index = map[uint64][]int{}
	}
	for i := range boxes {
		b := &boxes[i]
		side, ok := narrowSide(b, universe)
		if !ok {
			d.boxes = append(d.boxes, *b)
			continue
		}
		key := d.key(b, side)
		at := slices.IndexFunc(d.index[key], func(n int) bool { return sameBut(&d.boxes[n], b, side) })
		if at < 0 {
			d.index[key] = append(d.index[key], len(d.boxes))
			d.boxes = append(d.boxes, *b)
			continue
		}
		known := &d.boxes[d.index[key][at]]
		known.addresses[side] = known.addresses[side].Union(b.addresses[side])
	}
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
		for _, s := range n {
			maphash.WriteComparable(&h, s)
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
