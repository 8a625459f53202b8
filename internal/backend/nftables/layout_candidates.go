package nftables

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strconv"

	"sluice/internal/base/sorting"
)

// candidate is one way to lay out a set of one family.
type candidate struct {
	name string // for the reader, unique in its family
	make func(all area) *asking
}

// candidates are the layouts of a large set, of which the last one that fits into the
// budget is taken.
var candidates = map[int][]candidate{
	4: {
		{"one interval set", oneSet},
		{"map of 16 bits, an interval set for each 8", func(all area) *asking { return leading(all, 8, plainly) }},
		{"map of 16 bits, bitmaps of 24, an interval set for each 8", func(all area) *asking { return leading(all, 8, byFlips) }},
	},
	6: {
		{"one interval set", oneSet},
		{"map of 16 bits, bitmaps of 24, an interval set each", func(all area) *asking { return leading(all, 16, byNextByte) }},
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

func oneSet(all area) *asking { return ask("", all) }

// ask is one interval set.
func ask(name string, areas ...area) *asking {
	return &asking{name: name, questions: []question{{ranges: &intervals{name: name, areas: areas}, answer: hit}}}
}

// below makes what is asked about the areas that are mixed, all of one prefix.
type below func(name string, mixed []area) func(area) *asking

// leading is a map of the leading 16 bits: full areas are answered in it, mixed ones
// are asked on, all of one prefix of some bits together.
func leading(all area, together int, unless below) *asking {
	l := &leads{part: part{0, 16}}
	areas := all.split(16)
	for len(areas) > 0 {
		same := ^(^uint64(0) >> together)
		n := search(areas, func(b area) bool { return b.prefix&same == areas[0].prefix&same })
		mixed := slices.DeleteFunc(slices.Clone(areas[:n]), area.full)
		on := unless(nameOf(areas[0].prefix, together), mixed)
		for _, b := range areas[:n] {
			to := hit
			if !b.full() {
				to.on = on(b)
			}
			l.values = append(l.values, value(b.prefix, 0, 16))
			l.answers = append(l.answers, to)
		}
		areas = areas[n:]
	}
	return &asking{questions: []question{{leads: l}}}
}

func nameOf(prefix uint64, length int) string {
	if length <= 8 {
		return strconv.FormatUint(value(prefix, 0, length), 10)
	}
	return fmt.Sprintf("%0*x", length/4, value(prefix, 0, length))
}

// plainly asks one interval set.
func plainly(name string, mixed []area) func(area) *asking {
	k := ask(name, mixed...)
	return func(area) *asking { return k }
}

// byNextByte asks of which class an area of 8 bits more is, by exact sets of these: the
// kernel makes bitmaps of sets whose keys have one byte. The largest class needs no
// set: it is what is left. What is mixed is asked in an interval set.
func byNextByte(name string, mixed []area) func(area) *asking {
	made := map[uint64]*asking{}
	for _, b := range mixed {
		made[b.prefix] = nextByte(name, b)
	}
	return func(b area) *asking { return made[b.prefix] }
}

// class is the values of a byte that have one answer.
type class struct {
	name   string
	values []uint64
	answer answer
}

func nextByte(name string, b area) *asking {
	full, empty, mixed := &class{name: "in", answer: hit}, &class{name: "out", answer: miss}, &class{name: "mixed"}
	p := part{b.length, 8}
	next := uint64(0)
	var left []area
	for _, a := range b.split(b.length + 8) {
		v := value(a.prefix, p.at, p.width)
		for ; next < v; next++ {
			empty.values = append(empty.values, next)
		}
		next = v + 1
		if a.full() {
			full.values = append(full.values, v)
			continue
		}
		mixed.values, left = append(mixed.values, v), append(left, a)
	}
	for ; next < 256; next++ {
		empty.values = append(empty.values, next)
	}
	more, less := full, empty
	if len(empty.values) > len(full.values) {
		more, less = empty, full
	}
	k := &asking{name: name}
	largest := more
	if len(mixed.values) > len(more.values) {
		largest = mixed
	}
	for _, c := range []*class{more, less, mixed} {
		if c == largest || len(c.values) == 0 {
			continue
		}
		q := question{keys: &keys{name: join(name, c.name), part: p, values: c.values}, answer: c.answer}
		if c == mixed {
			q.not, q.answer = true, largest.answer
		}
		k.questions = append(k.questions, q)
	}
	if k.rest = largest.answer; len(left) > 0 {
		k.rest = miss
		k.questions = append(k.questions, question{ranges: &intervals{name: join(name, "part"), areas: left}, answer: hit})
	}
	return k
}

func join(name, more string) string { return name + "_" + more }

// byFlips asks about areas that consist of whole prefixes of one byte more in a bitmap
// of two bytes: it holds those that differ from what most of the area is. The others
// are asked in one interval set.
func byFlips(name string, mixed []area) func(area) *asking {
	finer := func(name string, a answer) *asking {
		set := &keys{name: name, part: part{8, 16}}
		return &asking{name: name, questions: []question{{keys: set, answer: a}}, rest: answer{hit: !a.hit}}
	}
	flipped := flipsOf(mixed)
	most, some := finer(join(name, "but"), miss), finer(join(name, "few"), hit)
	var left []area
	for _, b := range mixed {
		switch f, is := flipped[b.prefix]; {
		case !is:
			left = append(left, b)
		case f.in:
			most.questions[0].keys.values = append(most.questions[0].keys.values, f.list...)
		default:
			some.questions[0].keys.values = append(some.questions[0].keys.values, f.list...)
		}
	}
	rest := ask(join(name, "part"), left...)
	return func(b area) *asking {
		f, is := flipped[b.prefix]
		switch {
		case !is:
			return rest
		case f.in:
			return most
		}
		return some
	}
}

// flipping is how a mixed area is told by its prefixes of one byte more: by
// those in which it differs from what most of it is.
type flipping struct {
	prefix uint64
	in     bool     // most of it is in the set
	list   []uint64 // never empty
	ranges int      // that the area has
}

const (
	// mostFlips bounds one bitmap: the kernel compares an element that is inserted
	// with all that are there.
	mostFlips = 1024
	// More flips for each range of an area do not pay.
	flipsOfRange = 4
)

// flipsOf says which areas are told by flips: those with the fewest for their
// ranges, as long as their bitmap takes them.
func flipsOf(areas []area) map[uint64]flipping {
	var all []flipping
	for _, b := range areas {
		if f := b.flips(); f.list != nil {
			all = append(all, f)
		}
	}
	sorting.By(all, func(a, b flipping) int {
		if c := len(a.list)*b.ranges - len(b.list)*a.ranges; c != 0 {
			return c
		}
		return cmp.Compare(a.prefix, b.prefix)
	})
	out := map[uint64]flipping{}
	room := map[bool]int{true: mostFlips, false: mostFlips}
	for _, f := range all {
		if room[f.in] -= len(f.list); room[f.in] >= 0 {
			out[f.prefix] = f
		}
	}
	return out
}

// flips has no list where a prefix of one byte more is mixed itself, or where
// they are many.
func (b area) flips() flipping {
	f := flipping{prefix: b.prefix, ranges: len(b.spans)}
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
	if min(n, 256-n) > flipsOfRange*f.ranges {
		return f
	}
	for v := range uint64(256) {
		if has[v] != f.in {
			f.list = append(f.list, value(b.prefix, b.length-8, 8)<<8|v)
		}
	}
	return f
}
