package doctor

import (
	"fmt"
	"slices"
	"strings"

	"sluice/internal/base/english"
	"sluice/internal/prove/check"
)

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
	Fix:  "ethtool -K DEVICE FEATURE on, and the line taken away that turns it off.",
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
				Fix:      []string{"ethtool -K " + d.Name + " " + strings.Join(off, " on ") + " on"},
				Undo:     []string{"ethtool -K " + d.Name + " " + strings.Join(off, " off ") + " off"},
			}
			if s.second(d.Packets) >= carriesVeryMuch {
				f.Severity = check.Warning
			}
			say(f)
		}
	},
}

// From so many packets a second offloads that are off are worth a remark, and a warning.
const carriesMuch, carriesVeryMuch = 1000, 20_000
