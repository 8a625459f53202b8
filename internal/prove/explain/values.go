package explain

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"sluice/internal/base/nearest"
	"sluice/internal/base/packet"
	"sluice/internal/base/users"
	"sluice/internal/language/policy"
)

// firstPort is the source port of a packet when nobody says another: of those
// that hosts ask from.
const firstPort = 40000

// wire reads the protocol.
func (a asked) wire(p *packet.Packet) error {
	name := strings.ToLower(strings.TrimPrefix(a.Protocol, "proto/"))
	if name == "" {
		name = "tcp"
		if a.ICMPType != "" {
			name = "icmp"
		}
	}
	n, known := packet.ProtocolNumber(name)
	if !known {
		v, err := strconv.ParseUint(name, 10, 8)
		if err != nil {
			return wrong("use tcp, udp, sctp, icmp or a number up to 255", "%s %q: unknown protocol", a.Words.Name(Protocol), a.Protocol)
		}
		n = uint8(v)
	}
	six := p.Source.Is6()
	switch {
	case n == packet.ICMP && six:
		n = packet.ICMPv6
	case n == packet.ICMPv6 && !six:
		return wrong(fmt.Sprintf("write %s icmp", a.Words.Name(Protocol)), "%s icmpv6 is IPv6, the addresses are not", a.Words.Name(Protocol))
	}
	p.Protocol = n
	return nil
}

// ports reads the ports, which may be given by the name of a service.
func (a asked) ports(p *packet.Packet) error {
	for _, port := range []struct {
		field     Field
		text      string
		to        *uint16
		otherwise uint16
	}{{SourcePort, a.SourcePort, &p.SourcePort, firstPort}, {Port, a.Port, &p.Port, 0}} {
		name, protocol := a.Words.Name(port.field), packet.ProtocolName(p.Protocol)
		switch {
		case port.text != "" && !p.HasPorts():
			return wrong("", "%s %s: %s has no ports", name, port.text, protocol)
		case port.text != "":
			n, ok := parsePort(a.Resolved.Policy, p.Protocol, port.text)
			if !ok {
				hint := "write a number from 1 to 65535, or a service that has one port"
				if name := nearest.Of(port.text, portNames(a.Resolved.Policy, p.Protocol)); name != "" && name != port.text {
					hint = "did you mean " + name + "?"
				}
				return wrong(hint, "%s %q is not a port of %s", name, port.text, protocol)
			}
			*port.to = n
		case p.HasPorts() && port.otherwise == 0:
			return wrong(fmt.Sprintf("give %s PORT", name), "which port is the packet for?")
		case p.HasPorts():
			*port.to = port.otherwise
		}
	}
	return nil
}

// parsePort reads a port: a number, or a service that has one port of the
// protocol.
func parsePort(in *policy.Policy, protocol uint8, text string) (uint16, bool) {
	if n, err := strconv.ParseUint(text, 10, 16); err == nil {
		return uint16(n), n > 0
	}
	for _, s := range slices.Concat(in.Services, policy.Builtin()) {
		if s.Name != text {
			continue
		}
		var ports []policy.PortRange
		for _, m := range s.Matches {
			if m.Protocol == protocol && !m.Any {
				ports = append(ports, m.Ports...)
			}
		}
		if len(ports) == 0 {
			return 0, false
		}
		return ports[0].From, len(ports) == 1 && ports[0].From == ports[0].To
	}
	return 0, false
}

// portNames are the services that stand for a port of the protocol.
func portNames(in *policy.Policy, protocol uint8) (out []string) {
	for _, s := range slices.Concat(in.Services, policy.Builtin()) {
		if _, ok := parsePort(in, protocol, s.Name); ok {
			out = append(out, s.Name)
		}
	}
	return out
}

func (a asked) tcpFlags(p *packet.Packet) error {
	name := a.Words.Name(Flags)
	if p.Protocol != packet.TCP {
		if a.Flags != "" {
			return wrong("", "%s is for TCP only", name)
		}
		return nil
	}
	if a.Flags == "" {
		if p.Flags = packet.SYN; a.State == string(packet.Established) {
			p.Flags = packet.ACK
		}
		return nil
	}
	var ok bool
	if p.Flags, ok = packet.ParseFlags(a.Flags); !ok {
		return wrong("write letters of FSRPAUEC, such as SA, or names, such as syn,ack", "%s %q: unknown TCP flags", name, a.Flags)
	}
	return nil
}

// icmp reads the type of an ICMP message; an echo request where none is said.
func (a asked) icmp(p *packet.Packet) error {
	field := a.Words.Name(ICMPType)
	if !isICMP(*p) {
		if a.ICMPType != "" {
			return wrong(fmt.Sprintf("omit %s", a.Words.Name(Protocol)), "%s is for ICMP only", field)
		}
		return nil
	}
	six := p.Protocol == packet.ICMPv6
	name := a.ICMPType
	if name == "" {
		name = "echo-request"
	}
	if n, err := strconv.ParseUint(name, 10, 8); err == nil {
		p.ICMPType = uint8(n)
	} else if n, ok := policy.ICMPNumber(six, name); ok {
		p.ICMPType = n
	} else {
		return wrong("use a number, or one of "+strings.Join(policy.ICMPNames(six), ", "),
			"%s %q: unknown type of IPv%d%s", field, name, familyOf(p.Source), meantType(six, name))
	}
	if six && slices.Contains([]uint8{133, 134, 135, 136, 137}, p.ICMPType) {
		p.HopLimit = 255 // as neighbours send it
	}
	return nil
}

// otherTypes is what other tools call types of ICMP, by what a policy calls them, in
// ICMP and in ICMPv6.
var otherTypes = map[string][2]string{
	"ping": {"echo-request", "echo-request"}, "pong": {"echo-reply", "echo-reply"},
	"frag-needed": {"destination-unreachable", "packet-too-big"}, "fragmentation-needed": {"destination-unreachable", "packet-too-big"},
	"packet-too-big": {"destination-unreachable", "packet-too-big"}, "unreachable": {"destination-unreachable", "destination-unreachable"},
	"ttl-exceeded": {"time-exceeded", "time-exceeded"},
}

// meantType says which type a word probably means, or that codes are not told apart.
func meantType(six bool, name string) string {
	if kind, code, has := strings.Cut(name, "/"); has {
		if _, err := strconv.ParseUint(kind+code, 10, 32); err == nil {
			return ": codes are not told apart, write " + kind
		}
	}
	meant := nearest.Of(name, policy.ICMPNames(six))
	if other, known := otherTypes[name]; known {
		meant = other[0]
		if six {
			meant = other[1]
		}
	}
	if meant == "" {
		return ""
	}
	return ", did you mean " + meant + "?"
}

func (a asked) tracked(p *packet.Packet) error {
	state := packet.State(a.State)
	if !slices.Contains([]packet.State{"", packet.New, packet.Established, packet.Related, packet.Invalid, packet.Untracked}, state) {
		return wrong("use new, established, related, invalid or untracked", "%s %q: unknown state", a.Words.Name(State), a.State)
	}
	p.State = state
	return nil
}

// marked reads the mark; none where none is said.
func (a asked) marked(p *packet.Packet) error {
	if a.Mark == "" {
		return nil
	}
	n, err := strconv.ParseUint(a.Mark, 0, 32)
	if err != nil {
		return wrong("write a number of 32 bits, such as 0x1", "%s %q is not a mark", a.Words.Name(Mark), a.Mark)
	}
	p.Mark = uint32(n)
	return nil
}

// owner is the user that sends; root where nobody says another.
func (a asked) owner(way packet.Way) (int64, error) {
	name := a.Words.Name(User)
	if way != packet.Out {
		if a.User != "" {
			return 0, wrong("", "%s %s cannot be used on %s: only what this host sends has a user", name, a.User, way)
		}
		return -1, nil
	}
	if a.User == "" {
		return 0, nil
	}
	if id, known := a.Resolved.Users[a.User]; known {
		return int64(id), nil
	}
	if id, err := strconv.ParseUint(a.User, 10, 32); err == nil {
		return int64(id), nil
	}
	u, err := users.Lookup(context.Background(), a.User)
	if err != nil {
		return 0, wrong("give the number", "%s: this host has no user %q", name, a.User)
	}
	id, err := strconv.ParseUint(u.Uid, 10, 32)
	return int64(id), err
}
