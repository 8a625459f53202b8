package nftables

import (
	"net/netip"
	"testing"

	"sluice/internal/base/addrset"
)

// TestSingly: what stands side by side is an element each up to a bound.
func TestSingly(t *testing.T) {
	for text, want := range map[string][2]int{
		"192.0.2.1": {1, 0}, "192.0.2.0/28": {16, 0}, "192.0.2.0-192.0.2.16": {0, 1}, "255.255.255.248/29": {8, 0}, "2001:db8::/64": {0, 1}, "0.0.0.0/0": {0, 1},
	} {
		r, err := addrset.ParseRange(text)
		if err != nil {
			t.Fatal(err)
		}
		singles, wide := singly([]addrset.Range{r})
		if [2]int{len(singles), len(wide)} != want {
			t.Errorf("%s: %d singles, %d ranges, want %v", text, len(singles), len(wide), want)
		}
		if !addrset.Of(append(singles, wide...)...).Equal(addrset.Of(r)) {
			t.Errorf("%s: other addresses", text)
		}
	}
	if singles, _ := singly([]addrset.Range{{From: netip.MustParseAddr("192.0.2.3"), To: netip.MustParseAddr("192.0.2.4")}}); len(singles) != 2 || singles[0].From != netip.MustParseAddr("192.0.2.3") {
		t.Errorf("%v", singles)
	}
}
