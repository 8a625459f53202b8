package doctor

import (
	"fmt"
	"slices"

	"sluice/internal/base/english"
	"sluice/internal/prove/check"
)

var bridgedFrames = Check{
	ID:    "bridged-frames",
	What:  "frames between the ports of a bridge pass through the rules of iptables and nftables",
	Least: check.Remark,
	Why: `The module br_netfilter, which Docker and Kubernetes load, sends each bridged IP packet through
connection tracking and the chains for routed packets. It then costs as much as a routed
packet, and forward rules may drop what a bridge only passes on. Containers behind a bridge may
need it for published ports; virtual machines do not.`,
	Fix: `Turn it off if nothing relies on it: net.bridge.bridge-nf-call-iptables=0, and the same for
ip6tables.`,
	Undo:   "Write 1.",
	ByHand: "containers behind a bridge may need it for the ports that they publish",
	look: func(s *Seen, say func(Finding)) {
		f := Finding{}
		for _, name := range []string{"net.bridge.bridge-nf-call-iptables", "net.bridge.bridge-nf-call-ip6tables"} {
			if s.setting(name) == "1" {
				f.Evidence = append(f.Evidence, found("sysctl "+name, "1"))
				f.Fix = append(f.Fix, "sysctl -w "+name+"=0")
				f.Undo = append(f.Undo, "sysctl -w "+name+"=1")
			}
		}
		ports := 0
		for _, d := range s.Devices {
			if i := slices.IndexFunc(s.Devices, func(m Device) bool { return m.Index == d.Master && m.Kind == "bridge" }); i >= 0 && d.Up {
				ports++
			}
		}
		if len(f.Evidence) == 0 || ports < 2 { // nobody bridges
			return
		}
		f.Text = fmt.Sprintf("bridged frames pass through the firewall: br_netfilter is on, and %s of bridges are up", english.Plural(ports, "port"))
		say(f)
	},
}
