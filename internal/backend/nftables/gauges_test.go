package nftables

import (
	"context"
	"testing"

	"github.com/google/go-cmp/cmp"

	"sluice/internal/backend/conformance"
	"sluice/internal/system/kernel/nfset"
	"sluice/internal/system/kernel/nft"
)

// Gauges give what a reading of everything gives, and by each of the ways to know how many
// elements a set has it is as many.
func TestGauges(t *testing.T) {
	k := kernelHost(t)
	for _, n := range conformance.Programs() {
		a := mustLower(t, n.Make())
		k.load(t, New(), a)
		made, err := New().(nftables).Gauges(a)
		if err != nil {
			t.Fatal(err)
		}
		text, err := made.Encode()
		if err != nil {
			t.Fatal(err)
		}
		decoded, err := New().(nftables).DecodeGauges(text)
		if err != nil {
			t.Fatal(err)
		}
		g := decoded.(*gauges)
		want := k.read(t, true).Counters()
		err = k.Do(func() error {
			r, err := g.Read(context.Background(), nil)
			if err != nil {
				return err
			}
			if d := cmp.Diff(want, r.Counters); d != "" || r.Gone {
				t.Errorf("%s: counters (-read +gauges):\n%s", n.Name, d)
			}
			sizes, err := nft.Sets(g.Table)
			if err != nil {
				return err
			}
			conn, err := nfset.Open()
			if err != nil {
				return err
			}
			defer conn.Close()
			for _, s := range g.Sets {
				walked, err := g.elements(context.Background(), conn, s, func(string, uint64, uint64) {})
				if err != nil {
					return err
				}
				said := sizes[nfprotoOf(tableFamily(s.Name))][s.Name]
				if said >= 0 && said != walked || s.Entries >= 0 && s.Entries != walked {
					t.Errorf("%s: set %s has %d elements, the kernel says %d, and it was loaded with %d", n.Name, s.Name, walked, said, s.Entries)
				}
			}
			return nil
		})
		if err != nil {
			t.Errorf("%s: %v", n.Name, err)
		}
	}
	k.load(t, New(), nil)
	err := k.Do(func() error {
		r, err := (&gauges{Table: Table}).Read(context.Background(), nil)
		if err == nil && !r.Gone {
			t.Error("what was removed is there")
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
}
