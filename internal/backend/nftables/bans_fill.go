package nftables

import (
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
	"sluice/internal/base/sorting"
	"sluice/internal/system/kernel/nfset"
)

// filling is what makes the sets of bans hold what they should.
type filling struct {
	asked askedSets // by the rules, once it is done
	sets  []setFilling
	read  backend.ReadBans
}

// setFilling is what one set lacks, and what it holds beyond what it should.
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
	return !slices.ContainsFunc(f.sets, func(s setFilling) bool { return s.flush || s.edits() > 0 })
}

func (s *setFilling) edits() int { return len(s.remove) + len(s.replace) + len(s.add) }

// slack is by how much the time of a ban in the kernel may differ from what it
// should be, beside a thousandth of what is left: clocks drift apart, and a
// busy machine takes a while to send.
const slack = 2 * time.Second

// maxLookups is up to how many addresses are looked up one by one.
const maxLookups = 64

// Fill compares what the kernel has with what it should have.
func (s *banStore) Fill(ctx context.Context, want backend.Bans, now time.Time) (backend.BanPlan, error) {
	f, err := s.fill(ctx, want, now)
	if err != nil {
		return backend.BanPlan{}, err
	}
	p := s.plan(f)
	if p.Fill != nil || p.Turn != nil {
		p.End = s.end()
	}
	return p, nil
}

// Edit looks at what changed alone, as long as it is single addresses of sets that
// rules ask and the kernel has all the rest.
func (s *banStore) Edit(ctx context.Context, e backend.BanEdit, now time.Time) (backend.BanPlan, error) {
	var f *filling
	var err error
	if e.Doubt || slices.ContainsFunc(e.Add, s.unheld) || slices.ContainsFunc(e.Lift, wide) {
		var all backend.Bans
		if all, err = e.All(); err == nil {
			f, err = s.fill(ctx, all, now)
		}
	} else {
		f, err = s.difference(ctx, e, now)
	}
	if err != nil {
		return backend.BanPlan{}, err
	}
	f.asked.Exact4 = f.asked.Exact4 || s.asked.Exact4
	f.asked.Exact6 = f.asked.Exact6 || s.asked.Exact6
	p := s.plan(f)
	if len(e.Add) > 0 || e.Doubt {
		p.End = s.end()
	}
	return p, nil
}

// end is how the flows end that pass the rules by.
func (s *banStore) end() backend.Transaction {
	if len(s.fast) == 0 {
		return nil
	}
	return endFlows{s}
}

func wide(r addrset.Range) bool { return r.From != r.To }

// unheld says that a ban is no element of a set that rules look into. A set that they
// do not look into yet may hold what a failed ban left there.
func (s *banStore) unheld(b backend.BannedRange) bool {
	exact, _ := s.asked.of(familyOf(b.From.Is4()))
	return wide(b.Range) || !exact
}

func (s *banStore) plan(f *filling) backend.BanPlan {
	after := *s
	after.asked = f.asked
	p := backend.BanPlan{After: &after, Differences: f.differences(), Read: f.read}
	if !f.empty() {
		p.Fill = f
	}
	if f.asked != s.asked {
		p.Turn = turn{s, f.asked}
	}
	return p
}

func (s *banStore) inKernel(k commandSet) nfset.Set {
	kind := nfset.Exact
	if k.Ranges != neither {
		kind = nfset.Interval
	}
	return nfset.Set{Table: s.table, Name: k.Name, Kind: kind}
}

func (s *banStore) fill(ctx context.Context, all backend.Bans, now time.Time) (*filling, error) {
	f := &filling{read: backend.ReadBans{}}
	var conn *nfset.Conn
	defer func() {
		if conn != nil {
			_ = conn.Close()
		}
	}()
	for _, family := range families {
		want := all.Of(family)
		askedExact, askedSide := s.asked.of(family)
		if conn == nil && (len(want.Single)+len(want.Ranges) > 0 || askedExact || askedSide != neither) {
			var err error
			if conn, err = nfset.Open(); err != nil {
				return nil, err
			}
		}
		asksExact, asksSide := len(want.Single) > 0, neither
		if set, there := s.find(family, neither); there && (asksExact || askedExact) {
			filling, err := f.readExact(ctx, conn, s.inKernel(set), family, want.Single, now)
			if err != nil {
				return nil, err
			}
			f.sets = append(f.sets, filling)
		}
		if len(want.Ranges) > 0 {
			var have map[netip.Addr]heldBan
			asksSide = askedSide
			if set, there := s.find(family, askedSide); there && askedSide != neither {
				var err error
				if have, err = dump(ctx, conn, s.inKernel(set)); err != nil {
					return nil, err
				}
			}
			if askedSide == neither || !sameRanges(want.Ranges, have, now) {
				asksSide = askedSide.other()
				set, _ := s.find(family, asksSide)
				f.sets = append(f.sets, fillRanges(s.inKernel(set), family, want.Ranges, have, now))
			}
		}
		f.asked.set(family, asksExact, asksSide)
	}
	return f, nil
}

// difference is what to do for single addresses where the kernel has all the
// rest already.
func (s *banStore) difference(ctx context.Context, e backend.BanEdit, now time.Time) (*filling, error) {
	conn, err := nfset.Open()
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	f := &filling{asked: s.asked}
	for _, family := range families {
		var want []backend.BannedAddress
		var about []netip.Addr
		for _, b := range e.Add {
			if familyOf(b.From.Is4()) == family {
				want = append(want, backend.BannedAddress{Addr: b.From, Until: b.Until})
				about = append(about, b.From)
			}
		}
		for _, r := range e.Lift {
			if familyOf(r.From.Is4()) == family {
				about = append(about, r.From)
			}
		}
		if len(about) == 0 {
			continue
		}
		set, there := s.find(family, neither)
		if !there {
			return nil, fmt.Errorf("the running policy has no set for bans of IPv%d", family)
		}
		have, err := lookUp(ctx, conn, s.inKernel(set), about)
		if err != nil {
			return nil, err
		}
		sorting.By(want, func(a, b backend.BannedAddress) int { return a.Compare(b.Addr) })
		exactly := newExact(s.inKernel(set), family, want, now)
		for a, h := range have {
			exactly.take(a, h)
		}
		f.sets = append(f.sets, exactly.done())
		exact, ranges := f.asked.of(family)
		f.asked.set(family, exact || len(want) > 0, ranges)
	}
	return f, nil
}

// lasts says whether an element is banned as long as it should be.
func (h heldBan) lasts(until, now time.Time) bool {
	if h.permanent || until.IsZero() {
		return h.permanent && until.IsZero()
	}
	// It was read between now and this moment.
	may := slack + h.left/1000
	return !until.Before(now.Add(h.left-may)) && !until.After(time.Now().Add(h.left+may))
}

// ends says that the time-out of an element is almost over.
func (h heldBan) ends() bool { return !h.permanent && h.left <= slack }

func element(r addrset.Range, until, now time.Time) nfset.Element {
	e := nfset.Element{Key: r.From.AsSlice()}
	if !until.IsZero() {
		e.Timeout = max(until.Sub(now), time.Millisecond)
	}
	if r.From != r.To {
		e.End = r.To.AsSlice()
	}
	return e
}

// sameRanges says whether the kernel has the ranges; those that are about to
// end may be there or not.
func sameRanges(want []backend.BannedRange, have map[netip.Addr]heldBan, now time.Time) bool {
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
		if h.ends() && !slices.ContainsFunc(want, func(p backend.BannedRange) bool { return p.From == a }) {
			found++
		}
	}
	return found == len(have)
}

// fillRanges fills a set that no rule asks. What was counted goes to the range
// that it lies in.
func fillRanges(set nfset.Set, family int, want []backend.BannedRange, old map[netip.Addr]heldBan, now time.Time) setFilling {
	f := setFilling{set: set, family: family, at: now, flush: true}
	starts := slices.SortedFunc(maps.Keys(old), netip.Addr.Compare)
	i := 0
	for _, p := range want {
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

// oneBatch is how many elements go in one transaction with what is replaced.
const oneBatch = 20_000

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
			return disturbed(err)
		}
	}
	return nil
}

func (s *setFilling) send(ctx context.Context, conn *nfset.Conn) error {
	switch n := s.edits(); {
	case n == 0 && !s.flush:
		return nil
	case n <= oneBatch:
		return conn.Edit(ctx, nfset.Change{
			Set: s.set, Flush: s.flush,
			Delete: slices.Values(slices.Concat(s.remove, s.replace)), Add: s.inTime(slices.Concat(s.replace, s.add)),
		})
	}
	if err := conn.Delete(ctx, s.set, slices.Values(s.remove)); err != nil {
		return err
	}
	for part := range slices.Chunk(s.replace, oneBatch) {
		if err := conn.Edit(ctx, nfset.Change{Set: s.set, Delete: slices.Values(part), Add: s.inTime(part)}); err != nil {
			return err
		}
	}
	return conn.Fill(ctx, nfset.Change{Set: s.set, Flush: s.flush, Add: s.inTime(s.add)})
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

// Text is what Take does, as input of nft for a reader.
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

// shown is up to how many elements of a set are named.
const shown = 20

// differences is what is not as it should be, for a reader. What is about to end may
// have been there and be gone.
func (f *filling) differences() []backend.Difference {
	var out []backend.Difference
	for _, s := range f.sets {
		if !s.flush {
			s.add = slices.DeleteFunc(slices.Clone(s.add), func(e nfset.Element) bool { return e.Timeout > 0 && e.Timeout <= slack })
		}
		name := fmt.Sprintf("bans by command (IPv%d)", s.family)
		if s.flush {
			out = append(out, backend.Difference{Kind: "set", Name: name, Want: fmt.Sprintf("%d ranges", len(s.add)), Have: "other ranges"})
			continue
		}
		if s.edits() > shown {
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
