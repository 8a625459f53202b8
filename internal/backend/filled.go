package backend

import (
	"context"
	"net/netip"
)

// Filled is a state of which the sets can be read that packets fill.
type Filled interface {
	State
	// Filled gives the entries of a dynamic set, by its id in the program, as they
	// are by now; none where the kernel has no such set.
	Filled(ctx context.Context, id string) ([]Entry, error)
}

// Entry is one entry of a set that packets fill.
type Entry struct {
	Address netip.Prefix // of a set of addresses; of IPv6, 64 bits
	Numbers []uint64     // of other sets: the parts of the key
	Count   Count        // where the set counts
}
