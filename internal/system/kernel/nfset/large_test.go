package nfset_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"sluice/internal/base/addrset"
	"sluice/internal/system/kernel/nfset"
	"sluice/internal/system/kernel/nft"
)

// someRanges makes up about n disjoint ranges of a family.
func someRanges(n int, six bool) []addrset.Range {
	rng := rand.New(rand.NewPCG(4, 6))
	var b addrset.Builder
	for range n {
		if six {
			a := [16]byte{0x20, 0x01, byte(rng.Uint32()), byte(rng.Uint32()), byte(rng.Uint32()), byte(rng.Uint32())}
			b.AddPrefix(netip.PrefixFrom(netip.AddrFrom16(a), 36+rng.IntN(13)))
			continue
		}
		a := [4]byte{byte(rng.Uint32()), byte(rng.Uint32()), byte(rng.Uint32()), byte(rng.Uint32())}
		b.AddPrefix(netip.PrefixFrom(netip.AddrFrom4(a), 20+rng.IntN(13)))
	}
	return b.Set().Ranges()
}

func setOf(ctx context.Context, c *nfset.Conn, set nfset.Set) (addrset.Set, error) {
	var b addrset.Builder
	err := c.Dump(ctx, set, func() { b = addrset.Builder{} }, func(e nfset.Element) error {
		r, ok := e.Range()
		if !ok {
			return errors.New("an element that is not a range of addresses")
		}
		b.AddRange(r)
		return nil
	})
	return b.Set(), err
}

// TestLarge: sets of many messages and many transactions arrive whole, whatever
// the buffers.
func TestLarge(t *testing.T) {
	const many = 20_000
	cases := []struct {
		name          string
		six           bool
		send, receive int
		cut           int
	}{
		{"one transaction", false, 16 << 20, 4 << 20, 16 << 20},
		{"cut", false, 16 << 20, 4 << 20, 100_000},
		{"cut, IPv6", true, 16 << 20, 4 << 20, 100_000},
		{"tiny buffers", false, 1, 1, 1 << 20},
		{"tiny buffers, IPv6", true, 1, 1, 1 << 20},
	}
	for _, test := range cases {
		t.Run(test.name, func(t *testing.T) {
			s := host(t)
			kind := "ipv4_addr"
			if test.six {
				kind = "ipv6_addr"
			}
			s.Nft("add set inet t large { type " + kind + "; flags interval; }")
			ranges := someRanges(many, test.six)
			set := nfset.Set{Table: "t", Name: "large", Kind: nfset.Interval}
			err := on(t, s, func(ctx context.Context, c *nfset.Conn) error {
				if err := c.SetBuffers(test.send, test.receive, test.cut); err != nil {
					return err
				}
				if err := c.Add(ctx, set, asRanges(slices.Values(ranges))); err != nil {
					return err
				}
				got, err := setOf(ctx, c, set)
				if err != nil {
					return err
				}
				if want := addrset.Of(ranges...); !got.Equal(want) {
					t.Errorf("missing %s\ntoo much %s", want.Difference(got), got.Difference(want))
				}
				if err := c.Delete(ctx, set, asRanges(everySecond(ranges))); err != nil {
					return err
				}
				got, err = setOf(ctx, c, set)
				if err != nil {
					return err
				}
				if want := addrset.Of(ranges...).Difference(addrset.Of(slices.Collect(everySecond(ranges))...)); !got.Equal(want) {
					t.Errorf("after deleting: missing %s\ntoo much %s", want.Difference(got), got.Difference(want))
				}
				return nil
			})
			if err != nil {
				t.Fatal(err)
			}
		})
	}
}

// TestFillSeveral: many sets share transactions, wherever these are cut.
func TestFillSeveral(t *testing.T) {
	for _, cut := range []int{300, 1000, 1004, 1008, 1012, 1016, 1020, 1024, 10_000, 1 << 20} {
		s := host(t)
		var changes []nfset.Change
		var define strings.Builder
		want := map[string]addrset.Set{}
		for i := range 40 {
			name := fmt.Sprintf("s%d", i)
			fmt.Fprintf(&define, "add set inet t %s { type ipv4_addr; flags interval; }\n", name)
			ranges := someRanges(1+i%7, false)
			want[name] = addrset.Of(ranges...)
			changes = append(changes, nfset.Change{Set: nfset.Set{Table: "t", Name: name, Kind: nfset.Interval}, Add: asRanges(slices.Values(ranges))})
		}
		s.Nft(define.String())
		err := on(t, s, func(ctx context.Context, c *nfset.Conn) error {
			if err := c.SetBuffers(1<<20, 1<<20, cut); err != nil {
				return err
			}
			if err := c.Fill(ctx, changes...); err != nil {
				return err
			}
			for _, change := range changes {
				got, err := setOf(ctx, c, change.Set)
				if err != nil {
					return err
				}
				if !got.Equal(want[change.Set.Name]) {
					t.Errorf("cut at %d: %s holds %s, want %s", cut, change.Set.Name, got, want[change.Set.Name])
				}
			}
			return nil
		})
		if err != nil {
			t.Fatalf("cut at %d: %v", cut, err)
		}
	}
}

func everySecond(ranges []addrset.Range) iter.Seq[addrset.Range] {
	return func(yield func(addrset.Range) bool) {
		for i := 0; i < len(ranges); i += 2 {
			if !yield(ranges[i]) {
				return
			}
		}
	}
}

// TestTooLarge: what has to be one transaction and does not fit is refused
// before the kernel is asked, and errors arrive whatever the buffer for them.
func TestTooLarge(t *testing.T) {
	s := host(t)
	s.Nft("add set inet t large { type ipv4_addr; flags interval; size 64; }")
	set := nfset.Set{Table: "t", Name: "large", Kind: nfset.Interval}
	ranges := someRanges(20_000, false)
	err := on(t, s, func(ctx context.Context, c *nfset.Conn) error {
		if err := c.SetBuffers(1, 1, 1<<20); err != nil {
			return err
		}
		if err := c.Edit(ctx, nfset.Change{Set: set, Add: asRanges(slices.Values(ranges))}); !errors.Is(err, nfset.ErrTooLarge) {
			t.Errorf("one transaction in a tiny buffer: %v", err)
		}
		if err := c.Add(ctx, set, asRanges(slices.Values(ranges))); !errors.Is(err, nfset.ErrFull) {
			t.Errorf("a full set with tiny buffers: %v", err)
		}
		// Hundreds of messages fail at once, and the answers find no room.
		if err := c.SetBuffers(16<<20, 1, 16<<20); err != nil {
			return err
		}
		if err := c.Add(ctx, set, asRanges(slices.Values(ranges))); !errors.Is(err, nfset.ErrFull) {
			t.Errorf("many errors in a tiny buffer: %v", err)
		}
		if err := c.Edit(ctx, nfset.Change{Set: set, Flush: true}); err != nil {
			t.Errorf("the socket is not good for more: %v", err)
		}
		got, err := setOf(ctx, c, set)
		if !got.IsEmpty() {
			t.Errorf("left: %s", got)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// TestDumpUnderChange: what others change while a set is read is no reason for
// half a set, and who changes all the time does not hold it up for ever.
func TestDumpUnderChange(t *testing.T) {
	for _, always := range []bool{false, true} {
		s := host(t)
		s.Nft("add set inet t large { type ipv4_addr; flags interval; }; add set inet t other { type ipv4_addr; }")
		set := nfset.Set{Table: "t", Name: "large", Kind: nfset.Interval}
		ranges := someRanges(20_000, false)
		want := addrset.Of(ranges...)
		if err := on(t, s, func(ctx context.Context, c *nfset.Conn) error {
			return c.Add(ctx, set, asRanges(slices.Values(ranges)))
		}); err != nil {
			t.Fatal(err)
		}
		stop := make(chan struct{})
		var made atomic.Int64
		var changes sync.WaitGroup
		changes.Go(func() {
			_ = on(t, s, func(ctx context.Context, c *nfset.Conn) error {
				for i := 0; ; i++ {
					select {
					case <-stop:
						return nil
					default:
					}
					// Bursts, with a gap between them that a dump fits into.
					if !always && i%3 == 0 {
						_, _ = setOf(ctx, c, set)
					}
					err := c.Edit(ctx, nfset.Change{Set: nfset.Set{Table: "t", Name: "other"}, Flush: true, Add: seq(nfset.Element{Key: []byte{192, 0, 2, byte(i)}})})
					if err != nil {
						return err
					}
					made.Add(1)
				}
			})
		})
		for made.Load() == 0 {
			time.Sleep(time.Millisecond)
		}
		begun := 0
		err := on(t, s, func(ctx context.Context, c *nfset.Conn) error {
			for tries := 0; tries < 3; tries++ {
				var b addrset.Builder
				err := c.Dump(ctx, set, func() { begun++; b = addrset.Builder{} }, func(e nfset.Element) error {
					r, _ := e.Range()
					b.AddRange(r)
					return nil
				})
				if !always && errors.Is(err, nfset.ErrUnfinished) && begun < 500 {
					tries-- // the gaps were too short for a machine as busy as this one
					continue
				}
				if err != nil && (!always || !errors.Is(err, nfset.ErrUnfinished)) {
					return err
				}
				if got := b.Set(); !got.Equal(want) {
					t.Errorf("always %v: missing %s\ntoo much %s", always, want.Difference(got), got.Difference(want))
				}
			}
			return nil
		})
		close(stop)
		changes.Wait()
		if err != nil {
			t.Fatal(err)
		}
		if always && begun == 3 {
			t.Error("no dump was found to be of several moments")
		}
		t.Logf("changes all the time %v (%d): %d tries for 3 dumps", always, made.Load(), begun)
	}
}

// TestStopped: an ended context leaves off between transactions.
func TestStopped(t *testing.T) {
	s := host(t)
	s.Nft("add set inet t large { type ipv4_addr; flags interval; }")
	set := nfset.Set{Table: "t", Name: "large", Kind: nfset.Interval}
	err := on(t, s, func(ctx context.Context, c *nfset.Conn) error {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		if err := c.SetBuffers(16<<20, 4<<20, 50_000); err != nil {
			return err
		}
		ranges := someRanges(20_000, false)
		half := func(yield func(nfset.Element) bool) {
			n := 0
			for e := range asRanges(slices.Values(ranges)) {
				if n++; n == len(ranges)/2 {
					cancel()
				}
				if !yield(e) {
					return
				}
			}
		}
		if err := c.Add(ctx, set, half); !errors.Is(err, context.Canceled) {
			t.Errorf("got %v", err)
		}
		got, err := setOf(context.WithoutCancel(ctx), c, set)
		if n := got.Len4(); n == 0 || n > len(ranges)/2 {
			t.Errorf("%d of %d ranges are there", n, len(ranges))
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// TestOtherThread: a socket stays in the namespace in which it was opened.
func TestOtherThread(t *testing.T) {
	s := host(t)
	s.Nft("add set inet t a { type ipv4_addr; }")
	var c *nfset.Conn
	if err := s.Do(func() (err error) { c, err = nfset.Open(); return err }); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	if err := c.Add(t.Context(), nfset.Set{Table: "t", Name: "a"}, asAddresses(slices.Values([]netip.Addr{netip.MustParseAddr("192.0.2.1")}))); err != nil {
		t.Error(err)
	}
	if err := s.Do(func() error {
		return nft.Run(t.Context(), "delete element inet t a { 192.0.2.1 }\n")
	}); err != nil {
		t.Error(err)
	}
}
