package doctor

import (
	"fmt"

	"sluice/internal/base/english"
	"sluice/internal/prove/check"
)

var sendRingFull = Check{
	ID:    "send-ring",
	What:  "packets are not sent since the ring of a network card is full",
	Least: check.Error,
	Why: `What is to be sent waits in a ring that the card empties. Drivers drop what finds no room.
Said of cards that count such packets (tx_dropped, tx_fifo_errors) while their ring is shorter
than it may be.`,
	Fix:  "A longer ring (ethtool -G).",
	Undo: "ethtool -G with the length before, which ethtool -g shows.",
	look: func(s *Seen, say func(Finding)) {
		for _, d := range s.Devices {
			if d.Unsent == 0 || d.Card.Send.Now >= d.Card.Send.Most {
				continue
			}
			f := Finding{
				Text:     fmt.Sprintf("%s dropped %s that it was to send, and its ring is short", d.Name, english.Plural(d.Unsent, "packet")),
				Evidence: []Evidence{found("tx_dropped and tx_fifo_errors of "+d.Name+" (ip -s -s link)", "%s in the window", english.Grouped(d.Unsent))},
				Cost:     fmt.Sprintf("%.0f packets a second", s.second(d.Unsent)),
			}
			f.lengthen(d.Name, "tx", d.Card.Send)
			say(f)
		}
	},
}
