package doctor

import (
	"fmt"

	"sluice/internal/base/english"
	"sluice/internal/prove/check"
)

var ringFull = Check{
	ID:    "receive-ring",
	What:  "a network card drops packets since its ring is full",
	Least: check.Error,
	Why: `The card writes packets into a ring that the processor empties. When it comes too late,
the card drops them, before anything of the kernel sees them.`,
	Fix:  "A longer ring (ethtool -G), interrupts on more processors (ethtool -L), cheaper rules.",
	Undo: "ethtool -G with the length before, which ethtool -g shows.",
	look: func(s *Seen, say func(Finding)) {
		for _, d := range s.Devices {
			if d.Missed == 0 {
				continue
			}
			f := Finding{
				Text:     fmt.Sprintf("%s dropped %s: its receive ring was full", d.Name, english.Plural(d.Missed, "packet")),
				Evidence: []Evidence{found("rx_missed_errors and rx_fifo_errors of "+d.Name+" (ip -s -s link)", "%s in the window", english.Grouped(d.Missed))},
				Cost:     fmt.Sprintf("%.0f packets a second", s.second(d.Missed)),
			}
			f.lengthen(d.Name, "rx", d.Card.Receive)
			f.Fix = append(f.Fix, "ethtool -l "+d.Name+", then ethtool -L "+d.Name+" combined NUMBER   # more processors")
			say(f)
		}
	},
}
