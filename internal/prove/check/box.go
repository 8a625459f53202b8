package check

import "sluice/internal/base/addrset"

// A box is a set of packets of one family: all those whose every dimension lies
// in the box's set for it. What a rule matches is a list of boxes; so is what a
// packet must be to get by a number of rules.
type box struct {
	numbers   [numberDimensions]numbers
	addresses [addressDimensions]addrset.Set
}

// Dimensions that are numbers.
const (
	service    = iota // protocol and destination port or ICMP type, see wire
	original          // the same before a DNAT; notRewritten for packets that met none
	sourcePort        // 0 for protocols without ports
	user              // of the sending socket; noUser where there is none
	in                // index of an interface name, see interfaceNames
	out
	numberDimensions
)

// Dimensions that are addresses.
const (
	source = iota
	destination
	originalDestination
	addressDimensions
)

func (b box) empty() bool {
	for _, n := range b.numbers {
		if len(n) == 0 {
			return true
		}
	}
	for _, a := range b.addresses {
		if a.IsEmpty() {
			return true
		}
	}
	return false
}

// overlaps asks first for what most boxes differ in.
func (b *box) overlaps(o *box) bool {
	if !b.numbers[service].overlaps(o.numbers[service]) {
		return false
	}
	for d := range b.addresses {
		if !b.addresses[d].Overlaps(o.addresses[d]) {
			return false
		}
	}
	for d := range b.numbers {
		if d != service && !b.numbers[d].overlaps(o.numbers[d]) {
			return false
		}
	}
	return true
}

func (b box) intersect(o box) box {
	for d := range b.numbers {
		b.numbers[d] = b.numbers[d].intersect(o.numbers[d])
	}
	for d := range b.addresses {
		b.addresses[d] = b.addresses[d].Intersect(o.addresses[d])
	}
	return b
}

// minus is what of b is not in o, in disjoint boxes.
func (b box) minus(o box) []box {
	if !b.overlaps(&o) {
		return []box{b}
	}
	var rest []box
	for d := range b.numbers {
		if outside := b.numbers[d].minus(o.numbers[d]); len(outside) > 0 {
			piece := b
			piece.numbers[d] = outside
			rest = append(rest, piece)
			b.numbers[d] = b.numbers[d].intersect(o.numbers[d])
		}
	}
	for d := range b.addresses {
		if outside := b.addresses[d].Difference(o.addresses[d]); !outside.IsEmpty() {
			piece := b
			piece.addresses[d] = outside
			rest = append(rest, piece)
			b.addresses[d] = b.addresses[d].Intersect(o.addresses[d])
		}
	}
	return rest
}

// both is what is in one of a and in one of b.
func both(a, b []box) []box {
	var out []box
	for i := range a {
		for j := range b {
			if a[i].overlaps(&b[j]) {
				out = append(out, a[i].intersect(b[j]))
			}
		}
	}
	return out
}

func overlap(a, b []box) bool {
	for i := range a {
		for j := range b {
			if a[i].overlaps(&b[j]) {
				return true
			}
		}
	}
	return false
}
