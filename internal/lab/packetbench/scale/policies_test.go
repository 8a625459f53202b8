package scale

import (
	"fmt"
	"testing"

	"sluice/internal/base/addrset"
	"sluice/internal/lab/peers"
	"sluice/internal/language/policy"
	"sluice/internal/language/resolve"
	"sluice/internal/system/host"
)

// resolved writes a policy of a dimension and reads it back.
func resolved(t *testing.T, d Dimension, n int, seed uint64) *resolve.Resolved {
	t.Helper()
	file, err := d.write(t.TempDir(), n, seed)
	if err != nil {
		t.Fatal(err)
	}
	p, err := policy.Load(file)
	if err != nil {
		t.Fatal(err)
	}
	r, err := resolve.Resolve(p, resolve.Options{Facts: host.Facts{Known: true}})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// The set has as many ranges as were asked for: no two prefixes merge.
func TestPrefixes(t *testing.T) {
	for _, n := range []int{10, 11, 1000, 100_000, blocks} {
		if testing.Short() && n == blocks {
			continue
		}
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			set := resolved(t, Prefixes, n, 1).Sets["served"].Addresses
			if set.Len4() != n || set.Len6() != 0 {
				t.Errorf("%d ranges of IPv4 and %d of IPv6, want %d and none", set.Len4(), set.Len6(), n)
			}
		})
	}
}

// One half of the rules drops, every source is its own, and none is hidden by another.
func TestRules(t *testing.T) {
	for _, n := range []int{10, 11, 1000, 10_000} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			r := resolved(t, Rules, n, 1)
			var dropped, allowed int
			var b addrset.Builder
			for _, rule := range r.Policy.Input.Rules {
				if rule.Action == policy.Allow {
					allowed++
				} else {
					dropped++
				}
				for _, item := range rule.From.Items {
					b.AddRange(item.Literal)
				}
			}
			if dropped != n/2 || dropped+allowed != n {
				t.Errorf("%d rules drop and %d allow, of %d", dropped, allowed, n)
			}
			if set := b.Set(); set.Len4() != n {
				t.Errorf("%d sources of %d rules", set.Len4(), n)
			}
		})
	}
}

// A seed draws the same, another one something else.
func TestSeed(t *testing.T) {
	for _, d := range Dimensions {
		first, again, other := meaning(t, d, 1), meaning(t, d, 1), meaning(t, d, 2)
		if first != again {
			t.Errorf("%s: the same seed drew something else", d.Name)
		}
		if first == other {
			t.Errorf("%s: another seed drew the same", d.Name)
		}
	}
}

func meaning(t *testing.T, d Dimension, seed uint64) string {
	t.Helper()
	file, err := d.write(t.TempDir(), 100, seed)
	if err != nil {
		t.Fatal(err)
	}
	m, err := meaningOf(file)
	if err != nil {
		t.Fatal(err)
	}
	byHand, err := peers.Named("nftables-set")
	if err != nil {
		t.Fatal(err)
	}
	return byHand[0].Text(m)
}
