package nfset_test

import (
	"context"
	"maps"
	"net/netip"
	"slices"
	"testing"
	"time"

	"sluice/internal/system/kernel/nfset"
)

// TestGet: asked for by its keys, a set is what a dump says, or is said not to be known.
func TestGet(t *testing.T) {
	s := host(t)
	s.Nft("add set inet t large { type ipv4_addr; flags timeout; counter; }; add set inet t empty { type ipv4_addr; }")
	set := nfset.Set{Table: "t", Name: "large"}
	address := func(i int) []byte {
		return netip.AddrFrom4([4]byte{100, byte(i >> 16), byte(i >> 8), byte(i)}).AsSlice()
	}
	const n = 20_000 // several messages
	var keys [][]byte
	for i := range n {
		keys = append(keys, address(i))
	}
	get := func(ctx context.Context, c *nfset.Conn, keys [][]byte) (map[string]nfset.Element, bool) {
		t.Helper()
		found := map[string]nfset.Element{}
		all, err := c.Get(set, keys, func(e nfset.Element) error {
			found[string(e.Key)] = e
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		return found, all
	}
	err := on(t, s, func(ctx context.Context, c *nfset.Conn) error {
		if !c.SetCounted(nfset.Set{Table: "t", Name: "empty"}) {
			t.Skip("the kernel does not say how many elements a set has")
		}
		err := c.Add(ctx, set, func(yield func(nfset.Element) bool) {
			for i, key := range keys {
				e := nfset.Element{Key: key, Counted: i%2 == 0, Packets: uint64(i), Bytes: uint64(2 * i)}
				if i%3 == 0 {
					e.Timeout = time.Hour
				}
				if !yield(e) {
					return
				}
			}
		})
		if err != nil {
			return err
		}
		want := map[string]nfset.Element{}
		if err := c.Dump(ctx, set, func() { clear(want) }, func(e nfset.Element) error {
			want[string(e.Key)] = e
			return nil
		}); err != nil {
			return err
		}
		same := func(a, b nfset.Element) bool {
			return a.Timeout == b.Timeout && a.Counted == b.Counted && a.Packets == b.Packets && a.Bytes == b.Bytes && a.Expires-b.Expires < time.Minute
		}
		if have, all := get(ctx, c, keys); !all || len(have) != n || !maps.EqualFunc(want, have, same) {
			t.Errorf("of %d elements %d were given, all %v", n, len(have), all)
		}
		if have, all := get(ctx, c, slices.Concat(keys[:5], [][]byte{address(n)}, keys[5:], [][]byte{address(n + 1)})); !all || len(have) != n {
			t.Errorf("beside 2 missing %d were given, all %v", len(have), all)
		}
		if _, all := get(ctx, c, keys[1:]); all {
			t.Error("one more is not noticed")
		}
		if _, all := get(ctx, c, append(keys[1:n:n], address(n))); all {
			t.Error("another one is not noticed")
		}
		if err := c.SetBuffers(1<<20, 4<<10, 1<<20); err != nil {
			return err
		}
		if _, all := get(ctx, c, keys); all {
			t.Error("what found no room is not noticed")
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// TestDumpOf: what is not all of the set is dumped.
func TestDumpOf(t *testing.T) {
	s := host(t)
	s.Nft("add set inet t large { type ipv4_addr; }; add element inet t large { 192.0.2.1, 192.0.2.2 }")
	set := nfset.Set{Table: "t", Name: "large"}
	for _, keys := range [][][]byte{nil, {addr("192.0.2.1")}, {addr("192.0.2.1"), addr("192.0.2.2")}, {addr("192.0.2.1"), addr("192.0.2.3")}} {
		found := map[string]bool{}
		err := on(t, s, func(ctx context.Context, c *nfset.Conn) error {
			c.SetMany(1)
			return c.DumpOf(ctx, set, keys, func() { clear(found) }, func(e nfset.Element) error {
				found[string(e.Key)] = true
				return nil
			})
		})
		if err != nil || len(found) != 2 || !found[string(addr("192.0.2.1"))] || !found[string(addr("192.0.2.2"))] {
			t.Errorf("with %d keys: %v, %v", len(keys), found, err)
		}
	}
}
