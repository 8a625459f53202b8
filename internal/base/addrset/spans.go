package addrset

import (
	"net/netip"
	"slices"
	"sort"
)

// span is an inclusive range of one family.
type span[K key[K]] struct{ from, to K }

func compareSpans[K key[K]](a, b span[K]) int {
	if c := a.from.Compare(b.from); c != 0 {
		return c
	}
	return a.to.Compare(b.to)
}

// touches reports whether a range that starts at from overlaps or directly
// follows one that ends at to.
func touches[K key[K]](to, from K) bool {
	return from.Compare(to) <= 0 || from.Prev() == to
}

// isMinimal reports whether s is sorted, disjoint and without neighbours that
// touch.
func isMinimal[K key[K]](s []span[K]) bool {
	for i := 1; i < len(s); i++ {
		if s[i].from.Compare(s[i-1].from) < 0 || touches(s[i-1].to, s[i].from) {
			return false
		}
	}
	return true
}

// normalize brings spans into minimal form, in place, and returns the part of
// the slice that holds it. What is minimal already is not written to, since a
// Set may share it.
func normalize[K key[K]](s []span[K]) []span[K] {
	if isMinimal(s) {
		return s
	}
	if !slices.IsSortedFunc(s, compareSpans) {
		slices.SortFunc(s, compareSpans) //nolint:forbidigo // millions of them
	}
	n := 0
	for _, r := range s[1:] {
		last := &s[n]
		if touches(last.to, r.from) {
			if last.to.Compare(r.to) < 0 {
				last.to = r.to
			}
			continue
		}
		n++
		s[n] = r
	}
	return s[:n+1]
}

func union[K key[K]](a, b []span[K]) []span[K] {
	if len(a) == 0 {
		return b
	}
	if len(b) == 0 {
		return a
	}
	out := make([]span[K], 0, max(len(a), len(b)))
	for len(a) > 0 || len(b) > 0 {
		var r span[K]
		if len(b) == 0 || len(a) > 0 && a[0].from.Compare(b[0].from) <= 0 {
			r, a = a[0], a[1:]
		} else {
			r, b = b[0], b[1:]
		}
		if n := len(out); n > 0 && touches(out[n-1].to, r.from) {
			if out[n-1].to.Compare(r.to) < 0 {
				out[n-1].to = r.to
			}
			continue
		}
		out = append(out, r)
	}
	return out
}

// difference copies whole runs of a between the ranges of b, and gives a itself
// where nothing goes: policies take a few networks out of a hundred thousand.
func difference[K key[K]](a, b []span[K]) []span[K] {
	var out []span[K]
	rest := a // what of a is not in out yet; its first range may be cut to head
	var head span[K]
	cut, changed := false, false
	// take moves the first n ranges of the rest to out.
	take := func(n int) {
		if n > 0 && cut {
			out, rest, cut, n = append(out, head), rest[1:], false, n-1
		}
		out, rest = append(out, rest[:n]...), rest[n:]
	}
	for _, r := range b {
		n := firstEnding(rest, r.from)
		if n == len(rest) {
			break
		}
		if n == 0 && cut && head.from.Compare(r.to) > 0 || (n > 0 || !cut) && rest[n].from.Compare(r.to) > 0 {
			continue
		}
		if !changed {
			changed = true
			out = make([]span[K], 0, len(a)+len(b))
		}
		take(n)
		for len(rest) > 0 {
			if !cut {
				head = rest[0]
			}
			if head.from.Compare(r.to) > 0 {
				break
			}
			if head.from.Compare(r.from) < 0 {
				out = append(out, span[K]{head.from, r.from.Prev()})
			}
			if head.to.Compare(r.to) > 0 {
				head.from, cut = r.to.Next(), true
				break
			}
			rest, cut = rest[1:], false
		}
	}
	if !changed {
		return a
	}
	take(len(rest))
	return out
}

// firstEnding is the first of s that does not end before k; it is looked for from
// the front in steps that double, since it is often near.
func firstEnding[K key[K]](s []span[K], k K) int {
	low, high := 0, 1
	for high < len(s) && s[high-1].to.Compare(k) < 0 {
		low, high = high, 2*high
	}
	high = min(high, len(s))
	for low < high {
		middle := int(uint(low+high) >> 1)
		if s[middle].to.Compare(k) < 0 {
			low = middle + 1
		} else {
			high = middle
		}
	}
	return low
}

// firstBehind is the first of s that begins behind k.
func firstBehind[K key[K]](s []span[K], k K) int {
	low, high := 0, 1
	for high < len(s) && s[high-1].from.Compare(k) <= 0 {
		low, high = high, 2*high
	}
	high = min(high, len(s))
	for low < high {
		middle := int(uint(low+high) >> 1)
		if s[middle].from.Compare(k) <= 0 {
			low = middle + 1
		} else {
			high = middle
		}
	}
	return low
}

// intersect takes whole runs of the longer one, and gives a part of its array
// where that is all.
func intersect[K key[K]](a, b []span[K]) []span[K] {
	if len(a) < len(b) {
		a, b = b, a
	}
	var out []span[K]
	for _, r := range b {
		a = a[firstEnding(a, r.from):]
		n := firstBehind(a, r.to)
		if n == 0 {
			continue
		}
		run := a[:n:n]
		whole := run[0].from.Compare(r.from) >= 0 && run[n-1].to.Compare(r.to) <= 0
		if out == nil && whole {
			out = run // an append makes a copy of it
		} else {
			at := len(out)
			out = append(out, run...)
			if out[at].from.Compare(r.from) < 0 {
				out[at].from = r.from
			}
			if last := &out[len(out)-1]; last.to.Compare(r.to) > 0 {
				last.to = r.to
			}
		}
		a = a[n-1:] // the last may reach into the following range of b
	}
	return out
}

func complement[K key[K]](a []span[K]) []span[K] {
	var zero K
	return difference([]span[K]{{zero, zero.max()}}, a)
}

// fewAgainstMany is from what ratio on ranges are looked up one by one.
const fewAgainstMany = 16

func overlaps[K key[K]](a, b []span[K]) bool {
	if len(a) < len(b) {
		a, b = b, a
	}
	if len(b)*fewAgainstMany < len(a) {
		return slices.ContainsFunc(b, func(s span[K]) bool {
			i := sort.Search(len(a), func(i int) bool { return a[i].to.Compare(s.from) >= 0 })
			return i < len(a) && a[i].from.Compare(s.to) <= 0
		})
	}
	for len(a) > 0 && len(b) > 0 {
		switch {
		case a[0].to.Compare(b[0].from) < 0:
			a = a[1:]
		case b[0].to.Compare(a[0].from) < 0:
			b = b[1:]
		default:
			return true
		}
	}
	return false
}

// contains reports whether all of b is in a: in minimal form each range of b
// then lies within a single range of a. A small b is looked up in a large a.
func contains[K key[K]](a, b []span[K]) bool {
	for _, r := range b {
		at, _ := slices.BinarySearchFunc(a, r.from, func(s span[K], k K) int { return s.to.Compare(k) })
		a = a[at:]
		if len(a) == 0 || a[0].from.Compare(r.from) > 0 || a[0].to.Compare(r.to) < 0 {
			return false
		}
	}
	return true
}

func find[K key[K]](s []span[K], k K) bool {
	_, found := slices.BinarySearchFunc(s, k, func(r span[K], k K) int {
		switch {
		case r.to.Compare(k) < 0:
			return -1
		case r.from.Compare(k) > 0:
			return 1
		}
		return 0
	})
	return found
}

// prefixes yields the minimal prefixes of r in order.
func prefixes[K key[K]](r span[K], yield func(netip.Prefix) bool) bool {
	for from := r.from; ; {
		n := from.TrailingZeros()
		for from.fill(n).Compare(r.to) > 0 {
			n--
		}
		if !yield(netip.PrefixFrom(from.addr(), from.width()-n)) {
			return false
		}
		end := from.fill(n)
		if end == r.to {
			return true
		}
		from = end.Next()
	}
}
