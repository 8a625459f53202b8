package explain

import (
	"fmt"
	"net/netip"
	"strings"

	"sluice/internal/base/packet"
	"sluice/internal/language/policy"
)

// does says what a policy does with a packet.
var does = map[policy.Action]string{policy.Allow: "allows", policy.Drop: "drops", policy.Reject: "rejects"}

// sentence is the answer in one sentence.
func (e *Followed) sentence(a *Answer) string {
	about := []string{packetSubject(e.Packet, e.Path.Packet.State), Ends(e.Packet), e.route()}
	if a.Verdict == Unknown {
		return strings.Join(append(about, "has no single verdict, since its route is not known:"), " ")
	}
	text := strings.Join(append(about, "is", a.Verdict.Done()), " ")
	if a.Verdict == policy.Reject {
		text += map[bool]string{true: " with a reset", false: " with ICMP port unreachable"}[e.Packet.Protocol == packet.TCP]
	}
	switch {
	case a.Banned != "" && e.Path.Pos.Line == 0:
		text += fmt.Sprintf(" by a ban: %s. Without bans, the policy %s it: %s.", a.Banned, does[e.Path.Verdict], e.Path.Why)
	case a.Banned != "":
		text += fmt.Sprintf(" by a ban: %s. Without bans, the policy %s it by this line:", a.Banned, does[e.Path.Verdict])
	case a.Stage == "routing":
		text += " by routing, before any rule is evaluated: " + a.Why + "."
	case a.Line == nil:
		text += ": " + a.Why + "."
	case a.Limited != "":
		text += " by this line, " + a.Limited + ":"
	default:
		text += " by this line:"
	}
	return text
}

func packetSubject(p packet.Packet, state packet.State) string {
	kind := map[uint8]string{
		packet.TCP: "TCP packet", packet.UDP: "UDP packet", packet.SCTP: "SCTP packet",
		packet.ICMP: "ICMP message", packet.ICMPv6: "ICMPv6 message",
	}[p.Protocol]
	switch word, known := policy.ICMPWord(p.Protocol == packet.ICMPv6, uint64(p.ICMPType)); {
	case kind == "":
		kind = fmt.Sprintf("packet of protocol %d", p.Protocol)
	case !isICMP(p):
	case known:
		kind += " (" + strings.TrimPrefix(word, "icmp ") + ")"
	default:
		kind += fmt.Sprintf(" of type %d", p.ICMPType)
	}
	about := strings.TrimSpace(string(state) + " " + kind) // what routing refuses is never tracked
	article := "A"
	if strings.ContainsRune("aeiouI", rune(about[0])) {
		article = "An"
	}
	return article + " " + about
}

// Ends says from where to where a packet goes.
func Ends(p packet.Packet) string {
	source := p.Source.String()
	if !p.Source.IsValid() {
		source = "the address of its interface, which is not known"
	}
	switch {
	case !p.HasPorts():
		return fmt.Sprintf("from %s to %s", source, p.Destination)
	case p.SourcePort == 0:
		source += " (and a port that the kernel chooses)"
	case p.Source.IsValid():
		source = netip.AddrPortFrom(p.Source, p.SourcePort).String()
	}
	return fmt.Sprintf("from %s to %s", source, netip.AddrPortFrom(p.Destination, p.Port))
}

// shownDevices is up to how many interfaces are named of which a packet uses one.
const shownDevices = 4

// route says how the packet goes.
func (e *Followed) route() string {
	by := func(word string, of func(wayTaken) string) string {
		names := e.names(of)
		if len(names) == 0 || len(names) > shownDevices {
			return word + " an unknown interface"
		}
		return word + " " + strings.Join(names, " or ")
	}
	switch {
	case e.Path.Stage == "routing" && e.Path.Hook == policy.Output:
		return "that this host sends"
	case e.Path.Hook == policy.Output:
		return "that this host sends " + by("on", wayTaken.out)
	case e.Path.Hook == policy.Forward && e.Path.Stage != "routing":
		return "that arrives " + by("on", wayTaken.in) + " and leaves " + by("by", wayTaken.out)
	}
	return "that arrives " + by("on", wayTaken.in)
}
