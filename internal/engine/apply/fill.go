package apply

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"time"

	"sluice/internal/backend"
	"sluice/internal/base/addrset"
	"sluice/internal/language/bans"
	"sluice/internal/system/kernel/nfset"
)

// filling is what makes the sets of bans hold what the journal says.
type filling struct {
	asked backend.Asked // by the rules, once it is done
	sets  []setFilling
	total int // bans that hold
}

// setFilling is what one set lacks and has too much.
type setFilling struct {
	set     nfset.Set
	family  int
	at      time.Time // of which the time-outs are
	flush   bool      // of a set that no rule asks
	remove  []nfset.Element
	replace []nfset.Element // in one transaction each with what was there
	add     []nfset.Element
}

func (f *filling) empty() bool {
	return !slices.ContainsFunc(f.sets, func(s setFilling) bool { return s.flush || len(s.remove)+len(s.replace)+len(s.add) > 0 })
}

// slack is by how much the time of a ban in the kernel may differ from what the
// journal says, beside a thousandth of what is left: clocks drift apart, and a
// busy machine takes a while to send.
const slack = 2 * time.Second

func setOf(c *backend.Commands, s backend.CommandSet) nfset.Set {
	kind := nfset.Exact
	if s.Ranges != backend.Neither {
		kind = nfset.Interval
	}
	return nfset.Set{Table: c.Table, Name: s.Name, Kind: kind}
}

// find is the set of a family and side.
func find(c *backend.Commands, family int, side backend.Side) (backend.CommandSet, bool) {
	i := slices.IndexFunc(c.Sets, func(s backend.CommandSet) bool { return s.Family == family && s.Ranges == side })
	if i < 0 {
		return backend.CommandSet{}, false
	}
	return c.Sets[i], true
}

var bothFamilies = []int{4, 6}

// fill compares what the kernel has with the journal's list; from says which
// sets the rules ask.
func (s *session) fill(ctx context.Context, c *backend.Commands, from backend.Asked, list []bans.Ban, now time.Time) (*filling, error) {
	f := &filling{}
	var conn *nfset.Conn
	defer func() {
		if conn != nil {
			_ = conn.Close()
		}
	}()
	for _, family := range bothFamilies {
		exact, pieces := wanted(list, family, c.Never, now)
		f.total += len(exact) + len(pieces)
		askedExact, askedSide := from.Exact4, from.Ranges4
		if family == 6 {
			askedExact, askedSide = from.Exact6, from.Ranges6
		}
		if conn == nil && (len(exact)+len(pieces) > 0 || askedExact || askedSide != backend.Neither) {
			var err error
			if conn, err = nfset.Open(); err != nil {
				return nil, err
			}
		}
		asksExact, asksSide := len(exact) > 0, backend.Neither
		if set, there := find(c, family, backend.Neither); there && (asksExact || askedExact) {
			have, err := dump(ctx, conn, setOf(c, set))
			if err != nil {
				return nil, err
			}
			f.sets = append(f.sets, fillExact(setOf(c, set), family, exact, have, now))
		}
		if len(pieces) > 0 {
			var have map[netip.Addr]held
			asksSide = askedSide
			if set, there := find(c, family, askedSide); there && askedSide != backend.Neither {
				var err error
				if have, err = dump(ctx, conn, setOf(c, set)); err != nil {
					return nil, err
				}
			}
			if askedSide == backend.Neither || !samePieces(pieces, have, now) {
				asksSide = askedSide.Other()
				set, _ := find(c, family, asksSide)
				f.sets = append(f.sets, fillRanges(setOf(c, set), family, pieces, have, now))
			}
		}
		if family == 4 {
			f.asked.Exact4, f.asked.Ranges4 = asksExact, asksSide
		} else {
			f.asked.Exact6, f.asked.Ranges6 = asksExact, asksSide
		}
	}
	return f, nil
}

// wanted is what holds of a list in a family: single addresses, and ranges cut
// into pieces, both without what is never banned.
func wanted(list []bans.Ban, family int, never addrset.Set, now time.Time) (exact map[netip.Addr]time.Time, pieces []bans.Piece) {
	exact = map[netip.Addr]time.Time{}
	var wide []bans.Ban
	for _, b := range list {
		switch {
		case b.What.From.Is4() != (family == 4) || b.Over(now):
		case !b.Single():
			wide = append(wide, b)
		case !never.Contains(b.What.From):
			exact[b.What.From] = b.Until
		}
	}
	for _, p := range bans.Pieces(wide) {
		for r := range addrset.Of(p.Range).Difference(never).Each() {
			pieces = append(pieces, bans.Piece{Range: r, Until: p.Until})
		}
	}
	return exact, pieces
}

// held is one element in the kernel.
type held struct {
	to             netip.Addr // last address
	permanent      bool
	left           time.Duration
	packets, bytes uint64
}

// dump reads a set by the first address; one that is not there is empty.
func dump(ctx context.Context, conn *nfset.Conn, set nfset.Set) (map[netip.Addr]held, error) {
	var out map[netip.Addr]held
	err := conn.Dump(ctx, set, func() { out = map[netip.Addr]held{} }, func(e nfset.Element) error {
		r, ok := e.Range()
		if !ok {
			return fmt.Errorf("set %s holds what is no address", set.Name)
		}
		out[r.From] = held{to: r.To, permanent: e.Timeout == 0, left: e.Expires, packets: e.Packets, bytes: e.Bytes}
		return nil
	})
	if errors.Is(err, nfset.ErrNoSet) {
		return nil, nil
	}
	return out, err
}

// lasts says whether an element is banned as long as it should be.
func (h held) lasts(until, now time.Time) bool {
	if h.permanent || until.IsZero() {
		return h.permanent && until.IsZero()
	}
	// It was read between now and this moment.
	may := slack + h.left/1000
	return !until.Before(now.Add(h.left-may)) && !until.After(time.Now().Add(h.left+may))
}

func element(r addrset.Range, end, now time.Time) nfset.Element {
	e := nfset.Element{Key: r.From.AsSlice(), Timeout: until(end, now)}
	if r.From != r.To {
		e.End = r.To.AsSlice()
	}
	return e
}

func fillExact(set nfset.Set, family int, want map[netip.Addr]time.Time, have map[netip.Addr]held, now time.Time) setFilling {
	f := setFilling{set: set, family: family, at: now, add: make([]nfset.Element, 0, len(want))}
	for a, h := range have {
		if _, wanted := want[a]; !wanted {
			if !h.permanent && h.left <= slack {
				continue // it goes by itself
			}
			f.remove = append(f.remove, nfset.Element{Key: a.AsSlice()})
		}
	}
	for a, end := range want {
		e := element(addrset.Range{From: a, To: a}, end, now)
		switch h, there := have[a]; {
		case !there:
			f.add = append(f.add, e)
		case !h.lasts(end, now):
			e.Counted, e.Packets, e.Bytes = h.packets > 0, h.packets, h.bytes
			f.replace = append(f.replace, e)
		}
	}
	if len(f.remove)+len(f.replace)+len(f.add) <= lookups { // somebody may read them
		byKey := func(a, b nfset.Element) int { return cmp.Compare(string(a.Key), string(b.Key)) }
		slices.SortFunc(f.remove, byKey)
		slices.SortFunc(f.replace, byKey)
		slices.SortFunc(f.add, byKey)
	}
	return f
}

// samePieces says whether the kernel has the pieces; those that are about to
// end may be there or not.
func samePieces(want []bans.Piece, have map[netip.Addr]held, now time.Time) bool {
	found := 0
	for _, p := range want {
		h, there := have[p.From]
		switch {
		case there && h.to == p.To && h.lasts(p.Until, now):
			found++
		case there || p.Until.IsZero() || p.Until.Sub(now) > slack:
			return false
		}
	}
	for a, h := range have {
		if !h.permanent && h.left <= slack && !slices.ContainsFunc(want, func(p bans.Piece) bool { return p.From == a }) {
			found++
		}
	}
	return found == len(have)
}

// fillRanges fills a set that no rule asks. What was counted goes to the piece
// that it lies in.
func fillRanges(set nfset.Set, family int, pieces []bans.Piece, old map[netip.Addr]held, now time.Time) setFilling {
	f := setFilling{set: set, family: family, at: now, flush: true}
	starts := slices.SortedFunc(maps.Keys(old), netip.Addr.Compare)
	i := 0
	for _, p := range pieces {
		e := element(p.Range, p.Until, now)
		for ; i < len(starts) && starts[i].Compare(p.To) <= 0; i++ {
			if h := old[starts[i]]; starts[i].Compare(p.From) >= 0 && h.packets > 0 {
				e.Counted, e.Packets, e.Bytes = true, e.Packets+h.packets, e.Bytes+h.bytes
			}
		}
		f.add = append(f.add, e)
	}
	return f
}

// together is how many elements go in one transaction with what is replaced.
const together = 20_000

// Take gives the kernel what it lacks. Single addresses may come one after the
// other; what is replaced is never missing. The error is backend.ErrChanged where the
// time of a ban was up, or somebody was at the sets, since they were read.
func (f *filling) Take(ctx context.Context) error {
	conn, err := nfset.Open()
	if err != nil {
		return err
	}
	defer conn.Close()
	for _, s := range f.sets {
		err := s.send(ctx, conn)
		if errors.Is(err, nfset.ErrNoElement) || errors.Is(err, nfset.ErrOverlap) {
			return fmt.Errorf("%w: %w", backend.ErrChanged, err)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (s *setFilling) send(ctx context.Context, conn *nfset.Conn) error {
	n := len(s.remove) + len(s.replace) + len(s.add)
	switch {
	case n == 0 && !s.flush:
		return nil
	case n <= together:
		return conn.Edit(ctx, nfset.Change{
			Set: s.set, Flush: s.flush,
			Delete: slices.Values(slices.Concat(s.remove, s.replace)), Add: s.inTime(slices.Concat(s.replace, s.add)),
		})
	}
	if s.flush {
		if err := conn.Edit(ctx, nfset.Change{Set: s.set, Flush: true}); err != nil {
			return err
		}
	}
	if err := conn.Delete(ctx, s.set, slices.Values(s.remove)); err != nil {
		return err
	}
	for part := range slices.Chunk(s.replace, together) {
		if err := conn.Edit(ctx, nfset.Change{Set: s.set, Delete: slices.Values(part), Add: s.inTime(part)}); err != nil {
			return err
		}
	}
	return conn.Add(ctx, s.set, s.inTime(s.add))
}

// inTime gives elements with the time-outs that they have by now: many take a
// while to be sent.
func (s *setFilling) inTime(elements []nfset.Element) iter.Seq[nfset.Element] {
	return func(yield func(nfset.Element) bool) {
		for _, e := range elements {
			if e.Timeout > 0 {
				e.Timeout = max(e.Timeout-time.Since(s.at), time.Millisecond)
			}
			if !yield(e) {
				return
			}
		}
	}
}

// Text is the same for nft, for a reader.
func (f *filling) Text() string {
	var b strings.Builder
	for _, s := range f.sets {
		where := fmt.Sprintf("inet %s %s", s.set.Table, s.set.Name)
		if s.flush {
			fmt.Fprintf(&b, "flush set %s\n", where)
		}
		for _, e := range slices.Concat(s.remove, s.replace) {
			fmt.Fprintf(&b, "delete element %s { %s }\n", where, elementName(e))
		}
		for _, e := range slices.Concat(s.replace, s.add) {
			text := elementName(e)
			if e.Timeout > 0 {
				text += fmt.Sprintf(" timeout %dms", e.Timeout.Milliseconds())
			}
			fmt.Fprintf(&b, "add element %s { %s }\n", where, text)
		}
	}
	return b.String()
}

func elementName(e nfset.Element) string {
	r, _ := e.Range()
	return r.String()
}

// differences is what is not as it should be, for a reader.
func (f *filling) differences() []backend.Difference {
	var out []backend.Difference
	for _, s := range f.sets {
		name := fmt.Sprintf("bans by command (IPv%d)", s.family)
		if s.flush {
			out = append(out, backend.Difference{Kind: "set", Name: name, Want: fmt.Sprintf("%d ranges", len(s.add)), Have: "other ranges"})
			continue
		}
		if n := len(s.remove) + len(s.replace) + len(s.add); n > maxShown {
			out = append(out, backend.Difference{
				Kind: "set", Name: name, Want: "what was banned",
				Have: fmt.Sprintf("%d missing, %d too much, %d for another time", len(s.add), len(s.remove), len(s.replace)),
			})
			continue
		}
		for _, e := range s.add {
			out = append(out, backend.Difference{Kind: "element", Name: name, Want: elementName(e)})
		}
		for _, e := range s.remove {
			out = append(out, backend.Difference{Kind: "element", Name: name, Have: elementName(e)})
		}
		for _, e := range s.replace {
			out = append(out, backend.Difference{Kind: "element", Name: name, Want: elementName(e) + " for another time", Have: elementName(e)})
		}
	}
	return out
}
