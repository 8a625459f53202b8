package measure_test

import (
	"math"
	"net/netip"
	"slices"
	"testing"

	"sluice/internal/base/addrset"
	"sluice/internal/lab/measure"
)

// share counts how many of the addresses are in a set.
func share(addrs []netip.Addr, s addrset.Set) float64 {
	n := 0
	for _, a := range addrs {
		if s.Contains(a) {
			n++
		}
	}
	return float64(n) / float64(len(addrs))
}

func TestDrawsFollowTheirWeights(t *testing.T) {
	const n = 20000
	four := addrset.MustParse("8.0.0.0/8", "9.1.0.0/16", "9.3.0.1", "127.0.0.0/8", "230.0.0.0/8")
	six := addrset.MustParse("2600::/47", "2600:1::/64", "2600:1:0:1::7-2600:1:0:2::", "2600:2::ffff-2600:2:1:5::", "ff02::/16", "fe80::/10")
	for name, tc := range map[string]struct {
		addrs []netip.Addr
		of    addrset.Set
		part  string
		want  float64
	}{
		"by address":            {measure.ByAddress(four, addrset.IPv4, n, seed), four, "9.1.0.0/16", 65536. / (1<<24 + 65537)},
		"by range":              {measure.ByRange(four, addrset.IPv4, n, seed), four, "9.3.0.1", 1. / 3},
		"by address, IPv6":      {measure.ByAddress(six, addrset.IPv6, n, seed), six, "2600::/47", 131072. / (131072 + 1 + 2 + 65536 + 6)},
		"by range, IPv6":        {measure.ByRange(six, addrset.IPv6, n, seed), six, "2600:1::/64", 1. / 4},
		"by /48":                {measure.BySubnet48(six, n, seed), six, "2600::/48", 1. / 5},
		"by /48, a shared one":  {measure.BySubnet48(six, n, seed), six, "2600:1::/48", 1. / 5},
		"by /48, a part of one": {measure.BySubnet48(six, n, seed), six, "2600:2:1::/48", 1. / 5},
	} {
		t.Run(name, func(t *testing.T) {
			if len(tc.addrs) != n || share(tc.addrs, measure.Usable(tc.of)) != 1 {
				t.Fatal("not all addresses are usable ones of the set")
			}
			got := share(tc.addrs, addrset.MustParse(tc.part))
			// four standard deviations; the seed is fixed
			if within := 4 * math.Sqrt(tc.want*(1-tc.want)/n); math.Abs(got-tc.want) > within {
				t.Errorf("%s has a share of %.4f, want %.4f within %.4f", tc.part, got, tc.want, within)
			}
		})
	}
}

func TestDrawsAreThoseOfTheirSeed(t *testing.T) {
	a, b := measure.ByAddress(addrset.All(), addrset.IPv4, 100, 7), measure.ByAddress(addrset.All(), addrset.IPv4, 100, 7)
	c := measure.ByAddress(addrset.All(), addrset.IPv4, 100, 8)
	if !slices.Equal(a, b) || slices.Equal(a, c) {
		t.Error("the same seed draws the same addresses, another one others")
	}
}

func TestTurnsGoBackAndForth(t *testing.T) {
	for round, want := range map[int][]int{-1: {2, 1, 0}, 0: {0, 1, 2}, 1: {2, 1, 0}, 2: {0, 1, 2}} {
		if got := slices.Collect(measure.Turns(round, 3)); !slices.Equal(got, want) {
			t.Errorf("round %d: %v, want %v", round, got, want)
		}
	}
}
