package doctor

import (
	"fmt"

	"sluice/internal/base/english"
	"sluice/internal/system/kernel/link"
)

// seeCards asks the drivers of devices that are up.
func (s *Seen) seeCards() {
	var names []string
	for _, d := range s.Devices {
		if d.Up && d.Name != "lo" {
			names = append(names, d.Name)
		}
	}
	cards, err := link.Cards(names...)
	if err != nil {
		s.unread("rings and offloads", err)
	}
	for i := range s.Devices {
		s.Devices[i].Card = cards[s.Devices[i].Name]
	}
}

// lengthen says what a ring has, and how it gets all that it may have.
func (f *Finding) lengthen(device, ring string, r link.Ring) {
	if r.Most == 0 {
		return
	}
	f.Evidence = append(f.Evidence, found("ethtool -g "+device, "the ring has room for %s of at most %s", english.Grouped(uint64(r.Now)), english.Grouped(uint64(r.Most))))
	if r.Now < r.Most {
		f.Fix = append(f.Fix, fmt.Sprintf("ethtool -G %s %s %d", device, ring, r.Most))
		f.Undo = append(f.Undo, fmt.Sprintf("ethtool -G %s %s %d", device, ring, r.Now))
	}
}
