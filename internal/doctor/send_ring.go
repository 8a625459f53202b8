package doctor

import (
	"fmt"

	"sluice/internal/base/english"
	"sluice/internal/prove/check"
)

var sendRingFull = Check{
	ID:    "send-ring",
	What:  "packets are not sent because the send ring of a network card is full",
	Least: check.Error,
	Why: `Packets to be sent wait in a ring, which the card empties. Drivers drop packets that find no
room. Reported for cards that count such packets (tx_dropped, tx_fifo_errors) while their ring
could be longer.`,
	Fix:  "A longer ring (ethtool -G).",
	Undo: "ethtool -G with the previous length, which ethtool -g shows.",
	look: func(s *Seen, say func(Finding)) {
		for _, d := range s.Devices {
			if d.Unsent == 0 || d.Card.Send.Now >= d.Card.Send.Most {
				continue
			}
			f := Finding{
				Text:     fmt.Sprintf("%s dropped %s that it should have sent, and its ring is short", d.Name, english.Plural(d.Unsent, "packet")),
				Evidence: []Evidence{found("tx_dropped and tx_fifo_errors of "+d.Name+" (ip -s -s link)", "%s in the window", english.Grouped(d.Unsent))},
				Cost:     fmt.Sprintf("%.0f packets a second", s.second(d.Unsent)),
			}
			f.lengthen(d.Name, "tx", d.Card.Send)
			say(f)
		}
	},
}
