package doctor

import (
	"fmt"

	"sluice/internal/base/english"
	"sluice/internal/prove/check"
)

var ringFull = Check{
	ID:    "receive-ring",
	What:  "a network card drops packets because its receive ring is full",
	Least: check.Error,
	Why: `The card writes packets into a ring, which a processor empties. If the processor is too slow,
the card drops packets before the kernel sees them.`,
	Fix:  "A longer ring (ethtool -G), interrupts on more processors (ethtool -L), or cheaper rules.",
	Undo: "ethtool -G with the previous length, which ethtool -g shows.",
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
