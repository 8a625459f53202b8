package optimize

import (
	"slices"
	"testing"
)

// somePoints are few, so that random boxes meet often.
const somePoints = 24

func (m *maker) box(fields int) box {
	b := make(box, fields)
	for i := range b {
		from := uint64(m.IntN(somePoints))
		to := from
		if m.IntN(3) == 0 {
			to += uint64(m.IntN(6))
		}
		b[i] = interval{numberPoint(from), numberPoint(to)}
	}
	return b
}

func (b box) has(p []uint64) bool {
	for i := range b {
		if p[i] < b[i].from.Lo || p[i] > b[i].to.Lo {
			return false
		}
	}
	return true
}

// What is left of a box without another is every point of the one that is not
// in the other, once.
func TestBoxWithout(t *testing.T) {
	m := newMaker(t)
	for range 300 {
		a, b := m.box(2), m.box(2)
		rest := a.without(b)
		for x := range uint64(somePoints + 6) {
			for y := range uint64(somePoints + 6) {
				p := []uint64{x, y}
				n := 0
				for _, r := range rest {
					if r.has(p) {
						n++
					}
				}
				want := 0
				if a.has(p) && !b.has(p) {
					want = 1
				}
				if n != want {
					t.Fatalf("%v without %v: point %v is in %d of %v, want %d", a, b, p, n, rest, want)
				}
			}
		}
	}
}

// Boxes that are apart are found as a list of them would be searched.
func TestBoxesAgainstList(t *testing.T) {
	m := newMaker(t)
	for range 40 {
		fields := 1 + m.IntN(3)
		fast := newBoxes(m.IntN(fields))
		var slow []box
		for range 400 {
			b := m.box(fields)
			at := fast.meeting(b)
			if want := slices.ContainsFunc(slow, b.meets); want != (at >= 0) {
				t.Fatalf("%v meets one of %v: %v, found %d", b, slow, want, at)
			}
			if at >= 0 && !slow[at].meets(b) {
				t.Fatalf("%v was said to meet %v", b, slow[at])
			}
			if at < 0 {
				fast.add(b)
				slow = append(slow, b)
			}
		}
	}
}

// What is covered is what a set of all values says.
func TestCoverAgainstValues(t *testing.T) {
	m := newMaker(t)
	for range 20 {
		var s cover
		values := map[uint64]bool{}
		for range 300 {
			from := m.Uint64N(4000)
			to := from + m.Uint64N(1+m.Uint64N(12))
			i := interval{numberPoint(from), numberPoint(to)}
			want := false
			for n := from; n <= to; n++ {
				want = want || values[n]
			}
			if met := s.meets(i); met != want {
				t.Fatalf("%v meets what is covered: %v, want %v", i, met, want)
			}
			if m.IntN(2) == 0 {
				s.add(i)
				for n := from; n <= to; n++ {
					values[n] = true
				}
			}
		}
	}
}
