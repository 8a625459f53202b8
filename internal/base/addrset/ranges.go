package addrset

import (
	"iter"
	"net/netip"
)

// Each yields the minimal ranges in order, IPv4 first, without building a slice
// of them.
func (s Set) Each() iter.Seq[Range] {
	return func(yield func(Range) bool) {
		for _, r := range s.v4 {
			if !yield(Range{r.from.addr(), r.to.addr()}) {
				return
			}
		}
		for _, r := range s.v6 {
			if !yield(Range{r.from.addr(), r.to.addr()}) {
				return
			}
		}
	}
}

// EachPrefix yields the minimal prefixes in order, IPv4 first, without building
// a slice of them.
func (s Set) EachPrefix() iter.Seq[netip.Prefix] {
	return func(yield func(netip.Prefix) bool) {
		for _, r := range s.v4 {
			if !prefixes(r, yield) {
				return
			}
		}
		for _, r := range s.v6 {
			if !prefixes(r, yield) {
				return
			}
		}
	}
}

// Len4 returns the number of minimal IPv4 ranges.
func (s Set) Len4() int { return len(s.v4) }

// Len6 returns the number of minimal IPv6 ranges.
func (s Set) Len6() int { return len(s.v6) }

// V4 returns the minimal IPv4 ranges in order.
func (s Set) V4() []Range { return s.Only4().Ranges() }

// V6 returns the minimal IPv6 ranges in order.
func (s Set) V6() []Range { return s.Only6().Ranges() }

// Ranges returns the minimal ranges in order, IPv4 first.
func (s Set) Ranges() []Range {
	if s.IsEmpty() {
		return nil
	}
	out := make([]Range, 0, len(s.v4)+len(s.v6))
	for r := range s.Each() {
		out = append(out, r)
	}
	return out
}

// Prefixes returns the fewest prefixes that cover s exactly, in order, IPv4
// first.
func (s Set) Prefixes() []netip.Prefix {
	var out []netip.Prefix
	for p := range s.EachPrefix() {
		out = append(out, p)
	}
	return out
}

// CountPrefixes returns how many prefixes of each family Prefixes holds.
func (s Set) CountPrefixes() (v4, v6 int) {
	for p := range s.EachPrefix() {
		if p.Addr().Is4() {
			v4++
		} else {
			v6++
		}
	}
	return v4, v6
}

// Bounds gives the lowest and the highest address, every IPv4 address being
// below those of IPv6; not ok of the empty set.
func (s Set) Bounds() (first, last netip.Addr, ok bool) {
	switch {
	case len(s.v4) > 0:
		first = s.v4[0].from.addr()
	case len(s.v6) > 0:
		first = s.v6[0].from.addr()
	default:
		return first, last, false
	}
	if n := len(s.v6); n > 0 {
		return first, s.v6[n-1].to.addr(), true
	}
	return first, s.v4[len(s.v4)-1].to.addr(), true
}

// Lines is the one text of a set: its minimal prefixes in order, IPv4 first, one a line, single
// addresses without a length.
func (s Set) Lines() (text []byte) {
	for p := range s.EachPrefix() {
		text = AppendLine(text, p)
	}
	return text
}

// AppendLine appends a prefix as Lines writes it.
func AppendLine(to []byte, p netip.Prefix) []byte {
	if p.IsSingleIP() {
		to = p.Addr().AppendTo(to)
	} else {
		to = p.AppendTo(to)
	}
	return append(to, '\n')
}
