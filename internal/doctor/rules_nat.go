package doctor

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"sluice/internal/base/packet"
	"sluice/internal/importer"
	"sluice/internal/program"
	"sluice/internal/prove/check"
	"sluice/internal/prove/reach"
	"sluice/internal/system/kernel/link"
)

// translation is a rule that gives packets another destination.
type translation struct {
	rule     *program.Rule
	hook     program.HookKind
	protocol uint8 // 0: of several
	to       netip.AddrPort
	inRow    bool // one of manyPorts in a row
}

// manyPorts in a row that lead to one address are published for a program that opens each
// as it needs it: for calls, for transfers of FTP.
const manyPorts = 4

// translations are those that a packet can meet, with the port that the packet keeps where
// the rule gives it no other; 0 where that is not known.
func translations(r *importer.Ruleset) (out []translation) {
	seen := map[*program.Rule]bool{}
	for _, h := range r.Program.Hooks {
		if h.Phase != program.NAT || h.Kind != program.Prerouting && h.Kind != program.Output {
			continue
		}
		for _, c := range chainsFrom(r.Program, h.Chain) {
			for i := range c.Rules {
				rule := &c.Rules[i]
				for _, a := range rule.Actions {
					e := program.EffectOf(a)
					if !rewritesDestination(e) || !e.Rewrites.To.IsValid() || seen[rule] {
						continue
					}
					seen[rule] = true
					t := translation{rule: rule, hook: h.Kind}
					port := e.Rewrites.Port
					if of := numbersOf(rule, program.Protocol); len(of) == 1 && of[0].From == of[0].To {
						t.protocol = uint8(of[0].From) //nolint:gosec // a protocol
					}
					if of := numbersOf(rule, program.Port); port == 0 && len(of) == 1 && of[0].From == of[0].To {
						port = uint16(of[0].From) //nolint:gosec // a port
					}
					t.to = netip.AddrPortFrom(e.Rewrites.To, port)
					out = append(out, t)
				}
			}
		}
	}
	led := map[Endpoint]bool{}
	for _, t := range out {
		led[Endpoint{t.protocol, t.to}] = true
	}
	for i := range out {
		t, row := &out[i], 1
		for _, step := range []int{-1, 1} {
			for n := step; row < manyPorts && led[Endpoint{t.protocol, netip.AddrPortFrom(t.to.Addr(), uint16(int(t.to.Port())+n))}]; n += step { //nolint:gosec // what overflows leads nowhere
				row++
			}
		}
		t.inRow = row >= manyPorts
	}
	return out
}

var dnatDead = Check{
	ID:    "dnat-dead",
	What:  "a DNAT rule sends packets to where nobody answers",
	Least: check.Warning,
	Why: `A rule that rewrites the destination outlives the server behind it: the connection then
hangs, or is refused, and the rules look right. Looked at is where each such rule leads: the
route to the target, whether the host forwards at all, whether the target answers ARP or
neighbour discovery, and whether a program waits at its port, where the target is the host
itself or a network namespace of this machine (a container whose program listens at
127.0.0.1 or at another port). Four ports and more in a row are left out of the last: a program
opens them as it needs them.`,
	Mend: "Start the server, or lead the rule to where it is; take the rule away where nobody needs it.",
	Undo: "Write the rule anew.",
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
				why, mend := s.dead(t)
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
					Text:     fmt.Sprintf("%s, chain %s, rule %d leads to %s: %s", toolOf(r), rule.Chain, rule.Number, target(t.to), why.Text),
					Evidence: []Evidence{why, by},
					Mend:     []string{mend},
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

func target(to netip.AddrPort) string {
	if to.Port() == 0 {
		return to.Addr().String()
	}
	return to.String()
}

// dead says why nobody answers what a rule leads to a target; no text: somebody may.
func (s *Seen) dead(t translation) (why Evidence, mend string) {
	to := t.to.Addr()
	waits := func(all []Endpoint) bool {
		return t.to.Port() == 0 || t.inRow || t.protocol != packet.TCP && t.protocol != packet.UDP || takes(all, t.protocol, t.to)
	}
	service := fmt.Sprintf("%s/%d", packet.ProtocolName(t.protocol), t.to.Port())
	if s.own(to) || to.IsLoopback() {
		if to.Is4() && to.IsLoopback() && t.hook == program.Prerouting && !s.anyDevice("net.ipv4.conf.", ".route_localnet") {
			return found("sysctl net.ipv4.conf.all.route_localnet", "the kernel drops what comes from outside to 127.0.0.0/8"), "lead it to an address of the host that is not loopback, and let the program listen there"
		}
		if !waits(s.Waiting) {
			return found("ss -tuln", "no program of the host waits at %s", service), "ss -tuln   # where the program listens"
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
		return found("ip route get "+to.String(), "there is no route to it: %v", way.Error), "ip route   # the way to its network is missing"
	case slices.Contains(s.Silent, to) && (!way.Via.IsValid() || way.Via == to):
		return found("ip neigh show "+to.String(), "FAILED: it does not answer on %s", s.deviceName(way.Chosen)), "start the server, or lead the rule to the address that it has now"
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
		why, mend = found(look, "no program of the container waits at %s", service), look+"   # where the program listens"
	}
	return why, mend
}

func family(a netip.Addr) int {
	if a.Is4() {
		return 4
	}
	return 6
}

// anyDevice says that a setting is on for all devices or for one.
func (s *Seen) anyDevice(before, after string) bool {
	return s.setting(before+"all"+after) == "1" || slices.ContainsFunc(s.Devices, func(d Device) bool { return s.setting(before+slashed(d.Name)+after) == "1" })
}

// slashed is a device as a sysctl names it.
func slashed(device string) string { return strings.ReplaceAll(device, ".", "/") }

func (s *Seen) deviceName(index int) string {
	i := slices.IndexFunc(s.Devices, func(d Device) bool { return d.Index == index })
	if i < 0 {
		return cmp.Or(fmt.Sprint(index), unix.ENODEV.Error())
	}
	return s.Devices[i].Name
}
