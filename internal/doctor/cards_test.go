package doctor

import (
	"slices"
	"testing"
	"time"

	"sluice/internal/system/kernel/link"
)

// TestRings: packets that a card loses are laid to its ring where that may be longer, with
// the command that makes it so. No namespace has such a card.
func TestRings(t *testing.T) {
	short, whole := link.Ring{Now: 256, Most: 4096}, link.Ring{Now: 4096, Most: 4096}
	for _, test := range []struct {
		check  Check
		device Device
		found  bool
		fix    string
	}{
		{ringFull, Device{Missed: 7, Card: link.Card{Receive: short}}, true, "ethtool -G eth0 rx 4096"},
		{ringFull, Device{Missed: 7, Card: link.Card{Receive: whole}}, true, "ethtool -l eth0, then ethtool -L eth0 combined NUMBER   # more processors"},
		{ringFull, Device{Card: link.Card{Receive: short}}, false, ""},
		{sendRingFull, Device{Unsent: 7, Card: link.Card{Send: short}}, true, "ethtool -G eth0 tx 4096"},
		{sendRingFull, Device{Unsent: 7, Card: link.Card{Send: whole}}, false, ""},
		{sendRingFull, Device{Unsent: 7}, false, ""}, // no ring at all, as of veth
		{sendRingFull, Device{Card: link.Card{Send: short}}, false, ""},
	} {
		test.device.Name = "eth0"
		var all []Finding
		test.check.look(&Seen{Window: time.Second, Devices: []Device{test.device}}, func(f Finding) { all = append(all, f) })
		if (len(all) > 0) != test.found {
			t.Errorf("%s of %+v: %+v", test.check.ID, test.device, all)
		}
		if len(all) > 0 && !slices.Equal(all[0].Fix[:1], []string{test.fix}) {
			t.Errorf("%s: fix %q, want %q", test.check.ID, all[0].Fix, test.fix)
		}
	}
}
