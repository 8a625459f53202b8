package doctor

import (
	"fmt"
	"slices"
	"strings"

	"sluice/internal/base/english"
	"sluice/internal/prove/check"
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

var ringFull = Check{
	ID:    "receive-ring",
	What:  "a network card drops packets since its ring is full",
	Least: check.Error,
	Why: `The card writes packets into a ring that the processor empties. When it comes too late,
the card drops them, before anything of the kernel sees them.`,
	Mend: "A longer ring (ethtool -G), interrupts on more processors (ethtool -L), cheaper rules.",
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
			f.Mend = append(f.Mend, "ethtool -l "+d.Name+", then ethtool -L "+d.Name+" combined NUMBER   # more processors")
			say(f)
		}
	},
}

var sendRingFull = Check{
	ID:    "send-ring",
	What:  "packets are not sent since the ring of a network card is full",
	Least: check.Error,
	Why: `What is to be sent waits in a ring that the card empties. Drivers drop what finds no room.
Said of cards that count such packets (tx_dropped, tx_fifo_errors) while their ring is shorter
than it may be.`,
	Mend: "A longer ring (ethtool -G).",
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

// lengthen says what a ring has, and how it gets all that it may have.
func (f *Finding) lengthen(device, ring string, r link.Ring) {
	if r.Most == 0 {
		return
	}
	f.Evidence = append(f.Evidence, found("ethtool -g "+device, "the ring has room for %s of at most %s", english.Grouped(uint64(r.Now)), english.Grouped(uint64(r.Most))))
	if r.Now < r.Most {
		f.Mend = append(f.Mend, fmt.Sprintf("ethtool -G %s %s %d", device, ring, r.Most))
		f.Undo = append(f.Undo, fmt.Sprintf("ethtool -G %s %s %d", device, ring, r.Now))
	}
}

// From so many packets a second offloads that are off are worth a remark, and a warning.
const carriesMuch, carriesVeryMuch = 1000, 20_000

var offloadsOff = Check{
	ID:    "offloads-off",
	What:  "a device that could spare the processors work for each packet does not",
	Least: check.Remark,
	Why: `Checksums by the card, segments made by it (tx-tcp-segmentation) or late in the kernel
(tx-generic-segmentation) and received packets merged (rx-gro) let rules, routing and sockets be
asked once for dozens of packets. Tools for capturing and old advice against faults turn them off.
Said of devices with 1,000 packets a second or more, a warning from 20,000; of veth without rx-gro,
which is off there from the beginning, and not of r8169, whose driver leaves off what its cards do
wrong.`,
	Mend: "ethtool -K DEVICE FEATURE on, and the line taken away that turns it off.",
	Undo: "ethtool -K DEVICE FEATURE off.",
	look: func(s *Seen, say func(Finding)) {
		for _, d := range s.Devices {
			if d.Kind != "device" && d.Kind != "veth" || d.Card.Driver == "r8169" || s.second(d.Packets) < carriesMuch {
				continue
			}
			off := slices.DeleteFunc(slices.Clone(d.Card.Off), func(name string) bool { return name == "rx-gro" && d.Kind == "veth" })
			if len(off) == 0 {
				continue
			}
			f := Finding{
				Text:     fmt.Sprintf("%s could do %s, and does not", d.Name, english.List(off)),
				Evidence: []Evidence{found("ethtool -k "+d.Name, "off, and not fixed: %s", strings.Join(off, ", ")), found("ip -s link show "+d.Name, "%.0f packets a second, both ways", s.second(d.Packets))},
				Mend:     []string{"ethtool -K " + d.Name + " " + strings.Join(off, " on ") + " on"},
				Undo:     []string{"ethtool -K " + d.Name + " " + strings.Join(off, " off ") + " off"},
			}
			if s.second(d.Packets) >= carriesVeryMuch {
				f.Severity = check.Warning
			}
			say(f)
		}
	},
}
