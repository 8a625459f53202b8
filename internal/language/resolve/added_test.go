package resolve_test

import (
	"fmt"
	"net/netip"
	"testing"
	"time"

	"sluice/internal/base/addrset"
	"sluice/internal/base/testseed"
	"sluice/internal/language/policy"
	"sluice/internal/language/resolve"
)

// What commands add to a living set against the plain model: an address is in it where
// the policy or an addition has it, and ends with the last of these, if all end.
func TestAddedAgainstEachAddress(t *testing.T) {
	random := testseed.Rand(t)
	start := time.Date(2026, 11, 28, 12, 0, 0, 0, time.UTC)
	for range 300 {
		var list []policy.Addition
		span := func() addrset.Range {
			a, b := byte(random.IntN(64)), byte(random.IntN(64))
			return addrset.Range{From: netip.AddrFrom4([4]byte{192, 0, 2, min(a, b)}), To: netip.AddrFrom4([4]byte{192, 0, 2, max(a, b)})}
		}
		of := span()
		text := fmt.Sprintf("version: 1\nsets:\n  shop: {living: true, addresses: [%s]}\n", of)
		for range random.IntN(6) {
			a := policy.Addition{Set: "shop", What: span()}
			if n := random.IntN(4); n > 0 {
				a.Until = start.Add(time.Duration(n) * time.Hour)
			}
			list = append(list, a)
		}
		p, err := policy.LoadTexts("p.yaml", map[string][]byte{"p.yaml": []byte(text)})
		if err != nil {
			t.Fatal(err)
		}
		p.Add(append(list, policy.Addition{Set: "gone", What: span()}))
		r, err := resolve.Resolve(p, resolve.Options{})
		if err != nil {
			t.Fatal(err)
		}
		set := r.Sets["shop"]
		for n := range 64 {
			at := netip.AddrFrom4([4]byte{192, 0, 2, byte(n)})
			in, until := of.Contains(at), time.Time{}
			for _, a := range list {
				if !a.What.Contains(at) {
					continue
				}
				if !in || a.Until.IsZero() || !until.IsZero() && a.Until.After(until) {
					until = a.Until
				}
				in = true
			}
			if of.Contains(at) {
				until = time.Time{}
			}
			var ends []time.Time
			for _, e := range set.Ends {
				if e.Range.Contains(at) {
					ends = append(ends, e.Until)
				}
			}
			switch {
			case set.Addresses.Contains(at) != in:
				t.Fatalf("%s in the set: %v, want %v of %s and %v", at, !in, in, of, list)
			case until.IsZero() && len(ends) > 0, !until.IsZero() && (len(ends) != 1 || !ends[0].Equal(until)):
				t.Fatalf("%s ends at %v, want %v of %s and %v", at, ends, until, of, list)
			}
		}
		bare := r.Unexcepted()
		if got := bare.Sets["shop"]; !got.Addresses.Equal(addrset.Of(of)) || len(got.Ends) > 0 {
			t.Fatalf("without what was added: %v, want %s", got.Addresses, of)
		}
	}
}
