package apply

import (
	"testing"

	"sluice/internal/base/addrset"
)

func TestNetworks6(t *testing.T) {
	for text, want := range map[string]uint64{
		"192.0.2.0/24":                  0,
		"2001:db8::1":                   1,
		"2001:db8::1 2001:db8::9":       1,
		"2001:db8::1 2001:db8:0:1::/64": 2,
		"2001:db8::/48 2001:db8:5::7":   1<<16 + 1,
		"::/0":                          1<<64 - 1,
	} {
		if got := networks6(addrset.Of(ranges(text)...)); got != want {
			t.Errorf("%s: %d, want %d", text, got, want)
		}
	}
}
