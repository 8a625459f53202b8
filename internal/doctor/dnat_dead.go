package doctor

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"sluice/internal/base/packet"
	"sluice/internal/program"
	"sluice/internal/prove/check"
	"sluice/internal/prove/reach"
	"sluice/internal/system/kernel/link"
)

var dnatDead = Check{
	ID:    "dnat-dead",
	What:  "a DNAT rule sends packets to an address where nothing answers",
	Least: check.Warning,
	Why: `A DNAT rule outlives the server behind it: connections then hang or are refused, and the rules
look right. The doctor checks each target: whether there is a route to it, whether the host
forwards at all, whether the target answers ARP or neighbour discovery, and whether a program
listens on its port, if the target is the host itself or a network namespace of this machine
(such as a container whose program listens on 127.0.0.1 or on another port). The last check is
left out for four or more ports in a row: a program opens them as it needs them.`,
	Fix:  "Start the server, correct the target of the rule, or delete the rule if nobody needs it.",
	Undo: "Write the rule again.",
	look: func(s *Seen, say func(Finding)) {
		for _, r := range s.Rules {
			told := map[string]bool{}
			var all []*Finding
			settings := map[string]*Finding{} // that keep packets from more targets than one
			for _, t := range translations(r) {
				rule := r.Rules[t.rule.ID]
				if rule == nil || !rule.Whole {
					continue
				}
				why, fix := s.dead(t)
				key := t.to.Addr().String() + why.Text
				if why.Text == "" || told[key] {
					continue
				}
				told[key] = true
				by := found(toolOf(r), "%s", byText(r, reach.Result{Rule: t.rule}))
				if f := settings[why.From]; f != nil {
					if len(f.Evidence) <= mostTop {
						f.Evidence = append(f.Evidence, by)
					}
					continue
				}
				f := &Finding{
					Text:     fmt.Sprintf("%s, chain %s, rule %d sends packets to %s: %s", toolOf(r), rule.Chain, rule.Number, target(t.to), why.Text),
					Evidence: []Evidence{why, by},
					Fix:      []string{fix},
				}
				if all = append(all, f); strings.HasPrefix(why.From, "sysctl ") {
					settings[why.From] = f
				}
			}
			for _, f := range all {
				say(*f)
			}
		}
	},
}

// takes says whether some of the endpoints takes packets to an address and port. A socket
// at :: takes IPv4 too, unless it is told not to.
func takes(all []Endpoint, protocol uint8, to netip.AddrPort) bool {
	for _, e := range all {
		at := e.At.Addr()
		if e.Protocol == protocol && e.At.Port() == to.Port() && (at == to.Addr() || at == netip.IPv6Unspecified() || at.IsUnspecified() && at.Is4() == to.Addr().Is4()) {
			return true
		}
	}
	return false
}

func target(to netip.AddrPort) string {
	if to.Port() == 0 {
		return to.Addr().String()
	}
	return to.String()
}

// dead says why nobody answers what a rule leads to a target; no text: somebody may.
func (s *Seen) dead(t translation) (why Evidence, fix string) {
	to := t.to.Addr()
	waits := func(all []Endpoint) bool {
		return t.to.Port() == 0 || t.inRow || t.protocol != packet.TCP && t.protocol != packet.UDP || takes(all, t.protocol, t.to)
	}
	service := fmt.Sprintf("%s/%d", packet.ProtocolName(t.protocol), t.to.Port())
	if s.own(to) || to.IsLoopback() {
		if to.Is4() && to.IsLoopback() && t.hook == program.Prerouting && !s.anyDevice("net.ipv4.conf.", ".route_localnet") {
			return found("sysctl net.ipv4.conf.all.route_localnet", "the kernel drops packets from outside to 127.0.0.0/8"), "use an address of the host that is not loopback, and have the program listen there"
		}
		if !waits(s.Waiting) {
			return found("ss -tuln", "no program of the host listens on %s", service), "ss -tuln   # where the program listens"
		}
		return why, ""
	}
	forwarding := fmt.Sprintf("net.ipv%d.conf.", family(to))
	if t.hook == program.Prerouting && !s.anyDevice(forwarding, ".forwarding") {
		return found("sysctl "+forwarding+"all.forwarding", "the host forwards nothing"), "sysctl -w " + forwarding + "all.forwarding=1"
	}
	way, err := link.Ask(link.Lookup{Destination: to, User: -1})
	switch {
	case err != nil:
		return why, ""
	case way.Error != 0:
		return found("ip route get "+to.String(), "there is no route to it: %v", way.Error), "ip route   # the route to its network is missing"
	case slices.Contains(s.Silent, to) && (!way.Via.IsValid() || way.Via == to):
		return found("ip neigh show "+to.String(), "FAILED: it does not answer on %s", s.deviceName(way.Chosen)), "start the server, or change the rule to the server's current address"
	}
	for i := range s.Containers {
		c := &s.Containers[i]
		if !slices.Contains(c.Addresses, to) {
			continue
		}
		p := packet.Packet{
			Source: aPacket(family(to)).Source, Destination: to, Protocol: t.protocol, SourcePort: someEphemeral, Port: t.to.Port(), Flags: packet.SYN,
			State: packet.New, DestinationLocal: packet.Yes, SourceLocal: packet.No, Owner: -1,
		}
		if waits(c.Waiting) || c.rewrites(p) {
			return Evidence{}, ""
		}
		look := "nsenter --net=" + c.Namespace + " ss -tuln"
		why, fix = found(look, "no program of the container listens on %s", service), look+"   # where the program listens"
	}
	return why, fix
}

func (s *Seen) deviceName(index int) string {
	i := slices.IndexFunc(s.Devices, func(d Device) bool { return d.Index == index })
	if i < 0 {
		return cmp.Or(fmt.Sprint(index), unix.ENODEV.Error())
	}
	return s.Devices[i].Name
}
