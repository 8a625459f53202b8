package nftables

import (
	"sort"

	"sluice/internal/base/addrset"
)

// A layout is how the ranges of one large set and family lie in the kernel: a
// chain that looks at parts of an address, byte by byte, and leads to others.
// What a packet meets first decides most of it; an interval set is asked, where
// it is, for what is left.
//
// The words:
//
//	asking    a chain: a list of questions, and what holds behind the last one
//	question  one lookup: which part of the address, in which set, what then
//	answer    hit (the address is in the set), miss, or another asking

// asking is a chain. Its questions come one after the other until one has an
// answer.
type asking struct {
	name      string // of the block that it is about, for the names of chains and sets
	questions []question
	rest      answer // of what no question has an answer for
}

// answer is hit or miss, or where to ask on.
type answer struct {
	hit bool
	on  *asking // nil: hit says it
}

var (
	hit  = answer{hit: true}
	miss = answer{}
)

// question is a lookup in one of three kinds of sets; the packets that are in it
// get the answer, or those that are not.
type question struct {
	keys   *keys      // an exact set of parts of the address
	leads  *leads     // a verdict map of parts of the address, whose elements have the answers
	ranges *intervals // an interval set of whole addresses
	not    bool       // the answer is for those that are not in it
	answer answer
}

// part is bits [at, at+width) of an address; both are multiples of eight.
type part struct{ at, width int }

func (p part) of(a position) uint64 { return value(a.hi, p.at, p.width) }

// keys is an exact set.
type keys struct {
	name   string
	part   part
	values []uint64 // sorted
}

// leads is a verdict map; a value that is not in it has no answer.
type leads struct {
	part    part
	values  []uint64 // sorted
	answers []answer
}

// intervals is an interval set of what is in some areas.
type intervals struct {
	name  string
	areas []area // sorted, disjoint
	count int    // of ranges, 0 is not counted yet
}

// len is how many ranges it has; two that touch at the border of their areas
// count as one.
func (r *intervals) len() int {
	if r.count > 0 {
		return r.count
	}
	n := 0
	for i, b := range r.areas {
		n += len(b.spans)
		if i > 0 && r.areas[i-1].last().next() == b.first() && r.areas[i-1].has(r.areas[i-1].last()) && b.has(b.first()) {
			n--
		}
	}
	r.count = n
	return n
}

func (r *intervals) set(family int) addrset.Set {
	var b addrset.Builder
	for _, area := range r.areas {
		for s := range area.each {
			b.AddRange(addrset.Range{From: s.from.address(family), To: s.to.address(family)})
		}
	}
	return b.Set()
}

func search[T any](list []T, before func(T) bool) int {
	return sort.Search(len(list), func(i int) bool { return !before(list[i]) })
}

func (k *keys) has(a position) bool {
	v := k.part.of(a)
	i := search(k.values, func(x uint64) bool { return x < v })
	return i < len(k.values) && k.values[i] == v
}

func (l *leads) find(a position) (answer, bool) {
	v := l.part.of(a)
	i := search(l.values, func(x uint64) bool { return x < v })
	if i == len(l.values) || l.values[i] != v {
		return answer{}, false
	}
	return l.answers[i], true
}

func (r *intervals) has(a position) bool {
	i := search(r.areas, func(b area) bool { return b.last().less(a) })
	return i < len(r.areas) && !a.less(r.areas[i].first()) && r.areas[i].has(a)
}

// ask answers one question.
func (q *question) ask(a position) (answer, bool) {
	switch {
	case q.leads != nil:
		return q.leads.find(a)
	case q.keys != nil:
		return q.answer, q.keys.has(a) != q.not
	}
	return q.answer, q.ranges.has(a) != q.not
}

// each visits every chain of a layout once, the ones that lead to others first.
func (k *asking) each(visit func(*asking)) {
	seen := map[*asking]bool{}
	var walk func(*asking)
	walk = func(k *asking) {
		if k == nil || seen[k] {
			return
		}
		seen[k] = true
		visit(k)
		for _, q := range k.questions {
			walk(q.answer.on)
			if q.leads != nil {
				for _, a := range q.leads.answers {
					walk(a.on)
				}
			}
		}
		walk(k.rest.on)
	}
	walk(k)
}
