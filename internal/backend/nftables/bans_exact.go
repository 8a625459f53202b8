package nftables

import (
	"cmp"
	"context"
	"errors"
	"net/netip"
	"slices"
	"time"

	"sluice/internal/backend"
	"sluice/internal/base/addrset"
	"sluice/internal/base/sorting"
	"sluice/internal/system/kernel/nfset"
)

// exactFilling compares a set of single addresses with what it should hold.
type exactFilling struct {
	setFilling
	want []backend.BannedAddress
	has  []bool // of want
	next int    // of want, likely
}

func newExact(set nfset.Set, family int, want []backend.BannedAddress, now time.Time) *exactFilling {
	return &exactFilling{setFilling: setFilling{set: set, family: family, at: now}, want: want, has: make([]bool, len(want))}
}

// take takes one that is there.
func (f *exactFilling) take(a netip.Addr, h heldBan) {
	i, wanted := f.next, f.next < len(f.want) && f.want[f.next].Addr == a
	if !wanted {
		i, wanted = slices.BinarySearchFunc(f.want, a, func(b backend.BannedAddress, a netip.Addr) int { return b.Compare(a) })
	}
	if wanted {
		f.has[i], f.next = true, i+1
	}
	switch {
	case wanted && !h.lasts(f.want[i].Until, f.at):
		e := element(addrset.Range{From: a, To: a}, f.want[i].Until, f.at)
		e.Counted, e.Packets, e.Bytes = h.packets > 0, h.packets, h.bytes
		f.replace = append(f.replace, e)
	case !wanted && !h.ends():
		f.remove = append(f.remove, nfset.Element{Key: a.AsSlice()})
	}
}

// missing are the places in want of what was not taken.
func (f *exactFilling) missing() (out []int) {
	for i, has := range f.has {
		if !has {
			out = append(out, i)
		}
	}
	return out
}

// done is what is to do when all that is there was taken.
func (f *exactFilling) done() setFilling {
	for _, i := range f.missing() {
		b := f.want[i]
		f.add = append(f.add, element(addrset.Range{From: b.Addr, To: b.Addr}, b.Until, f.at))
	}
	if f.edits() <= maxLookups { // somebody may read them
		byKey := func(a, b nfset.Element) int { return cmp.Compare(string(a.Key), string(b.Key)) }
		sorting.By(f.remove, byKey)
		sorting.By(f.replace, byKey)
		sorting.By(f.add, byKey)
	}
	return f.setFilling
}

// readExact reads a set of single addresses that is likely to hold what it should.
func (f *filling) readExact(ctx context.Context, conn *nfset.Conn, set nfset.Set, family int, want []backend.BannedAddress, now time.Time) (setFilling, error) {
	keys := make([][]byte, 0, len(want))
	for _, b := range want {
		keys = append(keys, b.AsSlice())
	}
	var exactly *exactFilling
	var all addrset.Builder
	plain := true
	begin := func() { exactly, all, plain = newExact(set, family, want, now), addrset.Builder{}, true }
	take := func(e nfset.Element) error {
		r, h, err := heldOf(set, e)
		if err != nil {
			return err
		}
		exactly.take(r.From, h)
		all.AddAddr(r.From)
		plain = plain && len(e.Does) == 0
		return nil
	}
	err := conn.DumpOf(ctx, set, keys, begin, take)
	if err == nil {
		err = passedBy(ctx, conn, set, keys, exactly.missing(), take)
	}
	switch {
	case errors.Is(err, nfset.ErrNoSet):
		begin()
	case err != nil:
		return setFilling{}, err
	case plain:
		f.read[set.Name] = all.Set()
	}
	return exactly.done(), nil
}

// passedBy takes those of the elements that a dump missed which are there anyway
// ([nfset.Conn.Dump]). Where most are missing, they are.
func passedBy(ctx context.Context, conn *nfset.Conn, set nfset.Set, keys [][]byte, missed []int, take func(nfset.Element) error) error {
	if len(missed) > len(keys)/2 {
		return nil
	}
	for _, i := range missed {
		e, there, err := conn.Lookup(ctx, set, keys[i])
		if err == nil && there {
			err = take(e)
		}
		if err != nil {
			return err
		}
	}
	return nil
}
