package nftables

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"time"

	"sluice/internal/backend"
	"sluice/internal/base/addrset"
	"sluice/internal/base/sorting"
	"sluice/internal/system/kernel/nfset"
)

// heldBan is one element of a set of bans in the kernel.
type heldBan struct {
	to             netip.Addr // last address
	permanent      bool
	left, whole    time.Duration // of all that it was given; 0 where permanent, or as the set has it
	packets, bytes uint64
}

// dump reads a set by the first address; one that is not there is empty.
func dump(ctx context.Context, conn *nfset.Conn, set nfset.Set) (map[netip.Addr]heldBan, error) {
	var out map[netip.Addr]heldBan
	err := conn.Dump(ctx, set, func() { out = map[netip.Addr]heldBan{} }, func(e nfset.Element) error {
		r, h, err := heldOf(set, e)
		out[r.From] = h
		return err
	})
	if errors.Is(err, nfset.ErrNoSet) {
		return nil, nil
	}
	return out, err
}

func heldOf(set nfset.Set, e nfset.Element) (addrset.Range, heldBan, error) {
	r, ok := e.Range()
	if !ok {
		return r, heldBan{}, fmt.Errorf("set %s has an element that is not an address", set.Name)
	}
	return r, heldBan{to: r.To, permanent: e.Timeout == 0, left: e.Expires, whole: e.Timeout, packets: e.Packets, bytes: e.Bytes}, nil
}

// lookUp is dump of no more than some addresses.
func lookUp(ctx context.Context, conn *nfset.Conn, set nfset.Set, about []netip.Addr) (map[netip.Addr]heldBan, error) {
	out, all := map[netip.Addr]heldBan{}, map[netip.Addr]heldBan(nil)
	if len(about) > maxLookups {
		var err error
		if all, err = dump(ctx, conn, set); err != nil {
			return nil, err
		}
	}
	for _, a := range about {
		if h, there := all[a]; there {
			out[a] = h
			continue
		}
		// A dump passes some by.
		e, there, err := conn.Lookup(ctx, set, a.AsSlice())
		if err != nil {
			return nil, err
		}
		if there {
			out[a] = heldBan{to: a, permanent: e.Timeout == 0, left: e.Expires, packets: e.Packets, bytes: e.Bytes}
		}
	}
	return out, nil
}

func (h heldBan) ban(r addrset.Range) backend.HeldBan {
	return backend.HeldBan{Range: r, Left: h.left, Count: backend.Count{Packets: h.packets, Bytes: h.bytes}}
}

// Held reads the sets that rules ask, and those that limits fill.
func (s *banStore) Held(ctx context.Context) (*backend.HeldBans, error) {
	conn, err := nfset.Open()
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	out := &backend.HeldBans{Single: map[netip.Addr]backend.HeldBan{}}
	for _, set := range s.sets {
		if !s.asked.asks(set) {
			continue
		}
		have, err := dump(ctx, conn, s.inKernel(set))
		if err != nil {
			return nil, err
		}
		for a, h := range have {
			ban := h.ban(addrset.Range{From: a, To: h.to})
			if set.Ranges == neither {
				out.Single[a] = ban
			} else {
				out.Ranges = append(out.Ranges, ban)
			}
		}
	}
	sorting.By(out.Ranges, func(a, b backend.HeldBan) int { return a.From.Compare(b.From) })
	out.Limits, err = s.limits(ctx, conn)
	return out, err
}

// Limits reads the sets that limits fill.
func (s *banStore) Limits(ctx context.Context) ([]backend.LimitBans, error) {
	if len(s.limit) == 0 {
		return nil, nil
	}
	conn, err := nfset.Open()
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	return s.limits(ctx, conn)
}

func (s *banStore) limits(ctx context.Context, conn *nfset.Conn) (out []backend.LimitBans, err error) {
	for _, l := range s.limit {
		have, err := dump(ctx, conn, nfset.Set{Table: s.table, Name: l.Name})
		if err != nil {
			return nil, err
		}
		limit := backend.LimitBans{Rule: l.Rule, Widened: l.Wide}
		for a, h := range have {
			ban := h.ban(l.rangeOf(a))
			if whole := cmp.Or(h.whole, time.Duration(l.Timeout)*time.Millisecond); whole > 0 {
				ban.Age = max(time.Millisecond, whole-h.left)
			}
			limit.Bans = append(limit.Bans, ban)
		}
		out = append(out, limit)
	}
	return out, nil
}

// rangeOf is what an element of a set that limits fill stands for.
func (l limitSet) rangeOf(a netip.Addr) addrset.Range {
	bits := map[bool]int{false: a.BitLen(), true: 24}[l.Wide]
	if a.Is6() {
		bits = map[bool]int{false: 64, true: 48}[l.Wide]
	}
	return addrset.PrefixRange(netip.PrefixFrom(a, bits).Masked())
}

// LiftLimits takes sources and prefixes out of the sets that limits fill, and what counted
// for prefixes that have a part in what is lifted.
func (s *banStore) LiftLimits(ctx context.Context, lift func(addrset.Range) bool) (int, error) {
	if len(s.limit) == 0 {
		return 0, nil
	}
	conn, err := nfset.Open()
	if err != nil {
		return 0, err
	}
	defer conn.Close()
	var lifted addrset.Builder
	total := 0
	for _, l := range s.limit {
		n, err := s.takeOut(ctx, conn, l, func(r addrset.Range) bool {
			if !lift(r) {
				return false
			}
			lifted.AddRange(r)
			return true
		})
		if total += n; err != nil {
			return total, err
		}
	}
	all := lifted.Set()
	for _, l := range s.counts {
		if _, err := s.takeOut(ctx, conn, l, func(r addrset.Range) bool { return all.Overlaps(addrset.Of(r)) }); err != nil {
			return total, err
		}
	}
	return total, nil
}

// takeOut takes elements out of a set that limits fill, and says how many.
func (s *banStore) takeOut(ctx context.Context, conn *nfset.Conn, l limitSet, which func(addrset.Range) bool) (total int, err error) {
	set := nfset.Set{Table: s.table, Name: l.Name}
	have, err := dump(ctx, conn, set)
	if err != nil {
		return 0, err
	}
	for _, a := range slices.SortedFunc(maps.Keys(have), netip.Addr.Compare) {
		if !which(l.rangeOf(a)) {
			continue
		}
		// It may have gone by itself meanwhile.
		gone := slices.Values([]nfset.Element{{Key: a.AsSlice()}})
		if err := conn.Delete(ctx, set, gone); err != nil && !errors.Is(err, nfset.ErrNoElement) {
			return total, err
		}
		total++
	}
	return total, nil
}

// Same compares what Fill goes by.
func (s *banStore) Same(other backend.BanStore) bool {
	o, is := other.(*banStore)
	return is && s.table == o.table && s.asked == o.asked && slices.Equal(s.sets, o.sets) && s.never.Equal(o.never)
}

// Holding is what Fill finds in these sets where it has nothing to do.
func (s *banStore) Holding(want backend.Bans) backend.ReadBans {
	out := backend.ReadBans{}
	for _, set := range s.sets {
		if set.Ranges != neither || !s.asked.asks(set) {
			continue
		}
		var all addrset.Builder
		for _, b := range want.Of(set.Family).Single {
			all.AddAddr(b.Addr)
		}
		out[set.Name] = all.Set()
	}
	return out
}

// Unasked looks into the sets of single addresses. Sets of ranges that are not asked
// may hold what was asked before.
func (s *banStore) Unasked(ctx context.Context, want backend.Bans) ([]backend.UnaskedBans, error) {
	var out []backend.UnaskedBans
	for _, set := range s.sets {
		// What is to be banned and no rule asks is a difference.
		if set.Ranges != neither || s.asked.asks(set) || len(want.Of(set.Family).Single) > 0 {
			continue
		}
		conn, err := nfset.Open()
		if err != nil {
			return nil, err
		}
		have, err := dump(ctx, conn, s.inKernel(set))
		_ = conn.Close()
		if err != nil {
			return nil, err
		}
		if len(have) > 0 {
			out = append(out, backend.UnaskedBans{Set: set.Name, Addresses: slices.SortedFunc(maps.Keys(have), netip.Addr.Compare)})
		}
	}
	return out, nil
}
