package addrset

import (
	"net/netip"
	"slices"
)

// span is an inclusive range of one family.
type span[K key[K]] struct{ from, to K }

func compareSpans[K key[K]](a, b span[K]) int {
	if c := a.from.compare(b.from); c != 0 {
		return c
	}
	return a.to.compare(b.to)
}

// touches reports whether a range that starts at from overlaps or directly
// follows one that ends at to.
func touches[K key[K]](to, from K) bool {
	return from.compare(to) <= 0 || from.prev() == to
}

// isMinimal reports whether s is sorted, disjoint and without neighbours that
// touch.
func isMinimal[K key[K]](s []span[K]) bool {
	for i := 1; i < len(s); i++ {
		if s[i].from.compare(s[i-1].from) < 0 || touches(s[i-1].to, s[i].from) {
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
		slices.SortFunc(s, compareSpans)
	}
	n := 0
	for _, r := range s[1:] {
		last := &s[n]
		if touches(last.to, r.from) {
			if last.to.compare(r.to) < 0 {
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
		if len(b) == 0 || len(a) > 0 && a[0].from.compare(b[0].from) <= 0 {
			r, a = a[0], a[1:]
		} else {
			r, b = b[0], b[1:]
		}
		if n := len(out); n > 0 && touches(out[n-1].to, r.from) {
			if out[n-1].to.compare(r.to) < 0 {
				out[n-1].to = r.to
			}
			continue
		}
		out = append(out, r)
	}
	return out
}

func difference[K key[K]](a, b []span[K]) []span[K] {
	if len(a) == 0 || len(b) == 0 {
		return a
	}
	out := make([]span[K], 0, len(a))
next:
	for _, r := range a {
		for len(b) > 0 && b[0].to.compare(r.from) < 0 {
			b = b[1:]
		}
		// b[i] may reach into the following range of a, so b itself stays.
		for i := 0; i < len(b) && b[i].from.compare(r.to) <= 0; i++ {
			if b[i].from.compare(r.from) > 0 {
				out = append(out, span[K]{r.from, b[i].from.prev()})
			}
			if b[i].to.compare(r.to) >= 0 {
				b = b[i:]
				continue next
			}
			r.from = b[i].to.next()
		}
		out = append(out, r)
	}
	return out
}

func intersect[K key[K]](a, b []span[K]) []span[K] {
	var out []span[K]
	for len(a) > 0 && len(b) > 0 {
		from, to := a[0].from, a[0].to
		if b[0].from.compare(from) > 0 {
			from = b[0].from
		}
		if b[0].to.compare(to) < 0 {
			to = b[0].to
		}
		if from.compare(to) <= 0 {
			out = append(out, span[K]{from, to})
		}
		if a[0].to.compare(b[0].to) < 0 {
			a = a[1:]
		} else {
			b = b[1:]
		}
	}
	return out
}

func complement[K key[K]](a []span[K]) []span[K] {
	var zero K
	return difference([]span[K]{{zero, zero.max()}}, a)
}

func overlaps[K key[K]](a, b []span[K]) bool {
	for len(a) > 0 && len(b) > 0 {
		switch {
		case a[0].to.compare(b[0].from) < 0:
			a = a[1:]
		case b[0].to.compare(a[0].from) < 0:
			b = b[1:]
		default:
			return true
		}
	}
	return false
}

// contains reports whether all of b is in a: in minimal form each range of b
// then lies within a single range of a.
func contains[K key[K]](a, b []span[K]) bool {
	for _, r := range b {
		for len(a) > 0 && a[0].to.compare(r.from) < 0 {
			a = a[1:]
		}
		if len(a) == 0 || a[0].from.compare(r.from) > 0 || a[0].to.compare(r.to) < 0 {
			return false
		}
	}
	return true
}

func find[K key[K]](s []span[K], k K) bool {
	_, found := slices.BinarySearchFunc(s, k, func(r span[K], k K) int {
		switch {
		case r.to.compare(k) < 0:
			return -1
		case r.from.compare(k) > 0:
			return 1
		}
		return 0
	})
	return found
}

// prefixes yields the minimal prefixes of r in order.
func prefixes[K key[K]](r span[K], yield func(netip.Prefix) bool) bool {
	for from := r.from; ; {
		n := from.trailingZeros()
		for from.fill(n).compare(r.to) > 0 {
			n--
		}
		if !yield(netip.PrefixFrom(from.addr(), from.width()-n)) {
			return false
		}
		end := from.fill(n)
		if end == r.to {
			return true
		}
		from = end.next()
	}
}
