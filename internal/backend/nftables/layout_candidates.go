package nftables

import (
	"cmp"
	"fmt"
	"math"
	"strconv"

	"sluice/internal/base/sorting"
)

// candidate is one way to lay out a set of one family.
type candidate struct {
	name string // for the reader, unique in its family
	// make gives nil where the set would have too many elements.
	make func(s *space) *asking
}

// candidates are the layouts among which the search chooses, in the order in
// which they come where two cost the same.
var candidates = map[int][]candidate{
	4: {
		{"one interval set", oneSet},
		{"map of 8 bits, an interval set each", func(s *space) *asking { return leading(s, 8, eachOwn) }},
		{"map of 16 bits, one interval set", func(s *space) *asking { return leading(s, 16, sharedBy(0)) }},
		{"map of 16 bits, an interval set for each 8", func(s *space) *asking { return leading(s, 16, sharedBy(8)) }},
		{"two bitmaps of 16 bits, one interval set", func(s *space) *asking { return s.classes([]area{s.all}, "", part{0, 16}, 0, nil) }},
		{"map of 8 bits, bitmaps of 16, an interval set each", func(s *space) *asking { return bytewise(s, 8, 0) }},
		{"map of 8 bits, bitmaps of 16 and few of 24, an interval set each", func(s *space) *asking { return bytewise(s, 8, 1) }},
		{"map of 8 bits, bitmaps of 16 and some of 24, an interval set each", func(s *space) *asking { return bytewise(s, 8, 2) }},
		{"map of 8 bits, bitmaps of 16 and many of 24, an interval set each", func(s *space) *asking { return bytewise(s, 8, 4) }},
	},
	6: {
		{"one interval set", oneSet},
		{"map of 16 bits, an interval set each", func(s *space) *asking { return leading(s, 16, eachOwn) }},
		{"map of 16 bits, bitmaps of 24, an interval set each", func(s *space) *asking { return bytewise(s, 16, 0) }},
		{"map of 16 bits, hash sets of 32, an interval set each", func(s *space) *asking { return hashed(s, 32) }},
		{"map of 16 bits, hash sets of 32 and 48, an interval set each", func(s *space) *asking { return hashed(s, 32, 48) }},
	},
}

// LayoutNames are the layouts that a large set of a family may have.
func LayoutNames(family int) []string {
	var names []string
	for _, c := range candidates[family] {
		names = append(names, c.name)
	}
	return names
}

func oneSet(s *space) *asking { return ask("", s.all) }

// ask is one interval set.
func ask(name string, areas ...area) *asking {
	return &asking{name: name, questions: []question{{ranges: &intervals{name: name, areas: areas}, answer: hit}}}
}

// below makes what is asked about an area that is neither full nor empty.
type below func(b area) *asking

// leading is a map of the leading bits: full areas are answered in it, mixed ones
// are asked on.
func leading(s *space, length int, unless func() below) *asking {
	areas := s.split(s.all, length)
	if areas == nil {
		return nil
	}
	l := &leads{part: part{0, length}}
	mixed := unless()
	for _, b := range areas {
		to := hit
		if !b.full() {
			if to.on = mixed(b); to.on == nil {
				return nil
			}
		}
		l.values = append(l.values, value(b.prefix, 0, length))
		l.answers = append(l.answers, to)
	}
	return &asking{questions: []question{{leads: l}}}
}

func nameOf(prefix uint64, length int) string {
	if length <= 8 {
		return strconv.FormatUint(value(prefix, 0, length), 10)
	}
	return fmt.Sprintf("%0*x", length/4, value(prefix, 0, length))
}

// eachOwn gives every area an interval set of its own.
func eachOwn() below { return sharedBy(longestPrefix)() }

// sharedBy gives an interval set to all areas of one prefix of a length.
func sharedBy(length int) func() below {
	return func() below {
		made := map[uint64]*asking{}
		return func(b area) *asking {
			prefix := b.prefix & ^(^uint64(0) >> length)
			k := made[prefix]
			if k == nil {
				k = ask("")
				if length > 0 {
					k = ask(nameOf(b.prefix, min(length, b.length)))
				}
				made[prefix] = k
			}
			r := k.questions[0].ranges
			r.areas = append(r.areas, b)
			return k
		}
	}
}

// bytewise is a map of the leading bits, and in each area bitmaps of the next
// byte, which the kernel makes of exact sets with keys of one byte. With flips,
// see flipsOf, it goes on with bitmaps of two bytes.
func bytewise(s *space, length, flips int) *asking {
	return leading(s, length, func() below {
		return func(b area) *asking {
			return s.classes([]area{b}, nameOf(b.prefix, length), part{length, 8}, flips, nil)
		}
	})
}

// class is the areas that have one answer.
type class struct {
	name   string
	values []uint64
	weight float64
	answer answer
}

// classes asks to which of some classes an area belongs, by exact sets of a part
// of the address: full, empty, or mixed. The largest class needs no set: it is
// what is left. What is mixed is asked in rest, or where that is nil, in an
// interval set.
//
// With flips, see flipsOf, mixed areas that consist of whole prefixes of one byte
// more are asked in a bitmap of two bytes: it holds those that differ from what
// most of the block is.
func (s *space) classes(of []area, name string, p part, flips int, rest func([]area) *asking) *asking {
	var areas []area
	for _, b := range of {
		more := s.split(b, p.at+p.width)
		if more == nil {
			return nil
		}
		if areas == nil {
			areas = more[:len(more):len(more)]
			continue
		}
		areas = append(areas, more...)
	}
	full, empty, mixed := &class{name: "in", answer: hit}, &class{name: "out", answer: miss}, &class{name: "mixed"}
	mostIn, mostOut := &class{name: "most"}, &class{name: "some"}
	var left []area
	var most, some []uint64
	weight := endOf(0, p.at+p.width).hi
	flipped := s.flipsOf(areas, p, flips)
	next := uint64(0)
	for _, b := range areas {
		v := value(b.prefix, p.at, p.width)
		if p.width == 8 {
			empty.add(weight, next, v)
			next = v + 1
		}
		if b.full() {
			full.add(weight, v, v+1)
			continue
		}
		if f := flipped[v]; f.in {
			mostIn.add(weight, v, v+1)
			most = append(most, f.list...)
			continue
		} else if f.list != nil {
			mostOut.add(weight, v, v+1)
			some = append(some, f.list...)
			continue
		}
		mixed.add(weight, v, v+1)
		left = append(left, b)
	}
	if p.width == 8 {
		empty.add(weight, next, 256)
	}
	k := &asking{name: name}
	finer := func(name string, differ []uint64, a answer) *asking {
		set := &keys{name: name, part: part{p.at, p.width + 8}, values: differ}
		return &asking{name: name, questions: []question{{keys: set, answer: a}}, rest: answer{hit: !a.hit}}
	}
	if len(mostIn.values) > 0 {
		mostIn.answer.on = finer(join(name, "but"), most, miss)
	}
	if len(mostOut.values) > 0 {
		mostOut.answer.on = finer(join(name, "few"), some, hit)
	}
	all := []*class{full, empty, mostIn, mostOut, mixed}
	largest := full
	for _, c := range all {
		if len(c.values) > len(largest.values) {
			largest = c
		}
	}
	if p.width > 8 {
		largest = empty // of which the values were not counted
	}
	k.rest = largest.answer
	sorting.StableBy(all[:4], func(a, b *class) int {
		switch {
		case a.weight > b.weight:
			return -1
		case a.weight < b.weight:
			return 1
		}
		return 0
	})
	for _, c := range all {
		if c == largest || len(c.values) == 0 {
			continue
		}
		q := question{keys: &keys{name: join(name, c.name), part: p, values: c.values}, answer: c.answer}
		if c == mixed {
			q.not, q.answer = true, largest.answer
		}
		k.questions = append(k.questions, q)
	}
	if len(left) == 0 {
		return k
	}
	k.rest = miss
	if rest == nil {
		k.questions = append(k.questions, question{ranges: &intervals{name: join(name, "part"), areas: left}, answer: hit})
		return k
	}
	more := rest(left)
	if more == nil {
		return nil
	}
	k.questions, k.rest = append(k.questions, more.questions...), more.rest
	return k
}

func join(name, more string) string {
	if name == "" {
		return more
	}
	return name + "_" + more
}

// add takes the values [from, to), each of a weight.
func (c *class) add(weight, from, to uint64) {
	for v := from; v < to; v++ {
		c.values = append(c.values, v)
		c.weight += float64(weight)
	}
}

// flipping is how a mixed area is told by its prefixes of one byte more: by
// those in which it differs from what most of it is.
type flipping struct {
	value  uint64
	in     bool     // most of it is in the set
	list   []uint64 // never empty
	ranges int      // that the area has
}

// mostFlips bounds one bitmap: the kernel compares an element that is inserted
// with all that are there.
const mostFlips = 1024

// flipsOf says which areas are told by flips: those with the fewest for their
// ranges, up to a factor, as long as their bitmap takes them.
func (s *space) flipsOf(areas []area, p part, factor int) map[uint64]flipping {
	if factor == 0 {
		return nil
	}
	var all []flipping
	for _, b := range areas {
		if b.full() {
			continue
		}
		key := spaceKey{b.prefix, b.length, b.length + 8}
		f, known := s.told[key]
		if !known {
			f = b.flips(p)
			s.told[key] = f
		}
		if f.list != nil && len(f.list) <= factor*f.ranges {
			all = append(all, f)
		}
	}
	sorting.By(all, func(a, b flipping) int {
		if c := len(a.list)*b.ranges - len(b.list)*a.ranges; c != 0 {
			return c
		}
		return cmp.Compare(a.value, b.value)
	})
	out := map[uint64]flipping{}
	room := map[bool]int{true: mostFlips, false: mostFlips}
	for _, f := range all {
		if room[f.in] -= len(f.list); room[f.in] >= 0 {
			out[f.value] = f
		}
	}
	return out
}

// manyFlips for each range never pay.
const manyFlips = 8

// flips has no list where a prefix of one byte more is mixed itself, or where
// they are many.
func (b area) flips(p part) flipping {
	f := flipping{value: value(b.prefix, p.at, p.width), ranges: len(b.spans)}
	length := b.length + 8
	inside := ^(^uint64(0) << (longestPrefix - length))
	var has [256]bool
	n := 0
	for s := range b.each {
		if s.from.hi&inside != 0 || s.from.lo != 0 || s.to.hi&inside != inside || s.to.lo != math.MaxUint64 {
			return f
		}
		for v := value(s.from.hi, b.length, 8); v <= value(s.to.hi, b.length, 8); v++ {
			has[v] = true
			n++
		}
	}
	f.in = n > 128
	if min(n, 256-n) > manyFlips*f.ranges {
		return f
	}
	for v := range uint64(256) {
		if has[v] != f.in {
			f.list = append(f.list, f.value<<8|v)
		}
	}
	return f
}

// hashed is a map of the leading 16 bits of IPv6, bitmaps of the next byte, and
// hash sets of longer prefixes for what these leave.
func hashed(s *space, lengths ...int) *asking {
	return leading(s, 16, func() below {
		return func(b area) *asking {
			name := nameOf(b.prefix, 16)
			var longer func(lengths []int) func([]area) *asking
			longer = func(lengths []int) func([]area) *asking {
				if len(lengths) == 0 {
					return nil
				}
				return func(left []area) *asking {
					return s.classes(left, fmt.Sprintf("%s_%d", name, lengths[0]), part{0, lengths[0]}, 0, longer(lengths[1:]))
				}
			}
			return s.classes([]area{b}, name, part{16, 8}, 0, longer(lengths))
		}
	})
}
