package optimize

import (
	"encoding/binary"
	"net/netip"
	"slices"

	"sluice/internal/base/addrset"
	"sluice/internal/base/sorting"
	"sluice/internal/program"
)

// point is one value of a field, so that values of one kind are in order.
type point struct {
	kind           pointKind
	addrset.Number // an address, or in its lower half a number or the number of a name
}

type pointKind uint8

const (
	aNumber pointKind = iota
	aName             // interned: equal or not, without an order that means anything
	anAddress4
	anAddress6
)

func (p point) compare(o point) int {
	if p.kind != o.kind {
		return int(p.kind) - int(o.kind)
	}
	return p.Compare(o.Number)
}

func (p point) next() point { return point{p.kind, p.Next()} }

func (p point) prev() point { return point{p.kind, p.Prev()} }

func numberPoint(n uint64) point { return point{aNumber, addrset.Number{Lo: n}} }

func addressPoint(a netip.Addr) point {
	if a.Is4() {
		return point{anAddress4, addrset.NumberOf(a)}
	}
	return point{anAddress6, addrset.NumberOf(a)}
}

func (p point) address() netip.Addr { return p.Addr(p.kind == anAddress4) }

// appendTo writes the point so that no two are the same.
func (p point) appendTo(b []byte) []byte {
	b = append(b, byte(p.kind))
	b = binary.BigEndian.AppendUint64(b, p.Hi)
	return binary.BigEndian.AppendUint64(b, p.Lo)
}

// interval is a range of points, both ends in it.
type interval struct{ from, to point }

func (i interval) single() bool { return i.from == i.to }

func (i interval) meets(o interval) bool {
	return i.from.compare(o.to) <= 0 && o.from.compare(i.to) <= 0
}

// names gives each name a number.
type names struct {
	numbers map[string]uint64
	texts   []string
}

func (n *names) of(text string) point {
	if n.numbers == nil {
		n.numbers = map[string]uint64{}
	}
	at, known := n.numbers[text]
	if !known {
		at = uint64(len(n.texts))
		n.numbers[text] = at
		n.texts = append(n.texts, text)
	}
	return point{aName, addrset.Number{Lo: at}}
}

func (n *names) value(i interval) program.Value {
	switch i.from.kind {
	case aName:
		return program.Value{Name: n.texts[i.from.Lo]}
	case aNumber:
		return program.Value{Numbers: program.NumberRange{From: i.from.Lo, To: i.to.Lo}}
	}
	return program.Value{Addresses: addrset.Range{From: i.from.address(), To: i.to.address()}}
}

// box is an interval for each of some fields: the packets that have a value in
// every one of them.
type box []interval

// appendTo writes the box so that no two of the same fields are the same.
func (b box) appendTo(out []byte) []byte {
	for _, i := range b {
		out = i.to.appendTo(i.from.appendTo(out))
	}
	return out
}

func (b box) meets(o box) bool {
	for i := range b {
		if !b[i].meets(o[i]) {
			return false
		}
	}
	return true
}

// without gives what of b is outside o, in boxes apart from one another.
func (b box) without(o box) []box {
	if !b.meets(o) {
		return []box{b}
	}
	var out []box
	rest := slices.Clone(b)
	for i := range b {
		if rest[i].from.compare(o[i].from) < 0 {
			below := slices.Clone(rest)
			below[i].to = o[i].from.prev()
			out = append(out, below)
			rest[i].from = o[i].from
		}
		if rest[i].to.compare(o[i].to) > 0 {
			above := slices.Clone(rest)
			above[i].from = o[i].to.next()
			out = append(out, above)
			rest[i].to = o[i].to
		}
	}
	return out
}

// spans is a growing list of intervals that are apart, each with a number of
// its own.
type spans struct {
	sorted []span
	fresh  []span // the newest, not sorted in yet
}

type span struct {
	interval
	of int
}

// freshSpans bounds, with the number of the others, what is searched one by one
// and with it how often everything is sorted again.
const freshSpans = 64

func byFrom(a, b span) int { return a.from.compare(b.from) }

func (s *spans) add(i interval, of int) {
	s.fresh = append(s.fresh, span{i, of})
	if len(s.fresh) < freshSpans+len(s.sorted)/freshSpans {
		return
	}
	sorting.By(s.fresh, byFrom)
	// From the back, so that everything stays where there is room for it.
	a, b := len(s.sorted)-1, len(s.fresh)-1
	s.sorted = append(s.sorted, s.fresh...)
	for at := len(s.sorted) - 1; b >= 0; at-- {
		if a >= 0 && byFrom(s.sorted[a], s.fresh[b]) > 0 {
			s.sorted[at] = s.sorted[a]
			a--
		} else {
			s.sorted[at] = s.fresh[b]
			b--
		}
	}
	s.fresh = s.fresh[:0]
}

// meeting gives one that meets the interval.
func (s *spans) meeting(i interval) (span, bool) {
	at, _ := slices.BinarySearchFunc(s.sorted, i.from, func(x span, from point) int { return x.to.compare(from) })
	if at < len(s.sorted) && s.sorted[at].meets(i) {
		return s.sorted[at], true
	}
	for _, x := range s.fresh {
		if x.meets(i) {
			return x, true
		}
	}
	return span{}, false
}

// boxes is a growing list of boxes that are apart. Those that are single values
// in all fields but one, which most are, are found by these.
type boxes struct {
	open int // the field that may be a range
	all  []box
	by   map[string]*spans
	wide []int // of all: ranges in other fields too
}

// wideBoxes bounds the boxes that are searched one by one.
const wideBoxes = 64

func newBoxes(open int) *boxes { return &boxes{open: open, by: map[string]*spans{}} }

// key says the fields but the open one; not ok where one is a range.
func (s *boxes) key(b box) (string, bool) {
	key := make([]byte, 0, 17*len(b))
	for i, x := range b {
		if i == s.open {
			continue
		}
		if !x.single() {
			return "", false
		}
		key = x.from.appendTo(key)
	}
	return string(key), true
}

// effort is how many boxes are looked at for one.
func (s *boxes) effort(b box) int {
	if _, ok := s.key(b); !ok {
		return 1 + len(s.all)
	}
	return 1 + len(s.wide)
}

func (s *boxes) add(b box) {
	at := len(s.all)
	s.all = append(s.all, b)
	key, ok := s.key(b)
	if !ok {
		s.wide = append(s.wide, at)
		return
	}
	list := s.by[key]
	if list == nil {
		list = &spans{}
		s.by[key] = list
	}
	list.add(b[s.open], at)
}

// meeting gives one of the boxes that b meets, or -1.
func (s *boxes) meeting(b box) int {
	key, ok := s.key(b)
	if !ok {
		return slices.IndexFunc(s.all, b.meets)
	}
	if list := s.by[key]; list != nil {
		if x, met := list.meeting(b[s.open]); met {
			return x.of
		}
	}
	for _, at := range s.wide {
		if s.all[at].meets(b) {
			return at
		}
	}
	return -1
}
