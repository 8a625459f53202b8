package nfset_test

import (
	"iter"
	"net/netip"

	"sluice/internal/base/addrset"
	"sluice/internal/system/kernel/nfset"
)

// asRanges gives the elements of a set of addresses, whose family's elements
// alone are to be given. The elements share their memory: each is good until
// the next.
func asRanges(ranges iter.Seq[addrset.Range]) iter.Seq[nfset.Element] {
	return func(yield func(nfset.Element) bool) {
		var from, to [16]byte
		for r := range ranges {
			if !yield(nfset.Element{Key: addressBytes(&from, r.From), End: addressBytes(&to, r.To)}) {
				return
			}
		}
	}
}

// asAddresses gives the elements of single addresses of one family; they share
// their memory as those of asRanges do.
func asAddresses(addresses iter.Seq[netip.Addr]) iter.Seq[nfset.Element] {
	return func(yield func(nfset.Element) bool) {
		var key [16]byte
		for a := range addresses {
			if !yield(nfset.Element{Key: addressBytes(&key, a)}) {
				return
			}
		}
	}
}

func addressBytes(to *[16]byte, a netip.Addr) []byte {
	if a.Is4() {
		b := a.As4()
		return to[:copy(to[:], b[:])]
	}
	*to = a.As16()
	return to[:]
}
