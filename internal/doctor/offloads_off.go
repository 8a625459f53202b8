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
	What:  "offloads of a device that would save work for each packet are off",
	Least: check.Remark,
	Why: `With checksums by the card, segmentation in the card (tx-tcp-segmentation) or late in the
kernel (tx-generic-segmentation), and merged received packets (rx-gro), rules, routing and
sockets run once for dozens of packets. Capture tools and old advice against faults turn these
off. Reported for devices with 1,000 packets a second or more, as a warning from 20,000; for
veth without rx-gro, which is off by default; not for r8169, whose driver turns off what its
cards do wrong.`,
	Fix:  "ethtool -K DEVICE FEATURE on, and remove the line that turns it off.",
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
				Text:     fmt.Sprintf("%s supports %s, which is off", d.Name, english.List(off)),
				Evidence: []Evidence{found("ethtool -k "+d.Name, "off, and not fixed: %s", strings.Join(off, ", ")), found("ip -s link show "+d.Name, "%.0f packets a second, both directions", s.second(d.Packets))},
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
