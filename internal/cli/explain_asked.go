package cli

import (
	"errors"
	"fmt"
	"net/netip"
	"os/user"
	"slices"
	"strconv"
	"strings"

	"sluice/internal/base/packet"
	"sluice/internal/cli/command"
	"sluice/internal/language/policy"
	"sluice/internal/language/resolve"
	"sluice/internal/prove/reference"
	"sluice/internal/system/host"
)

// askedPacket is the packet of a question as the flags give it.
type askedPacket struct {
	protocol, source, destination string
	sourcePort, port              string
	in, out                       string
	icmpType, flags               string
	user, hook, state             string
	mark                          string
	ask                           host.Router // where routing leads packets
}

// firstPort is the source port of a packet when nobody says another: of those
// that hosts ask from.
const firstPort = 40000

// read makes the packet, with what was not said filled in from the facts.
func (a askedPacket) read(f host.Facts, r *resolve.Resolved) (packet.Packet, packet.Way, error) {
	p := packet.Packet{In: a.in, Out: a.out, Owner: -1, HopLimit: 64}
	if err := a.interfaces(f, r); err != nil {
		return p, "", err
	}
	if err := a.addresses(&p); err != nil {
		return p, "", err
	}
	way, err := a.way(f, &p)
	if err != nil {
		return p, "", err
	}
	if err := a.ends(f, &p, way); err != nil {
		return p, "", err
	}
	p.In = f.SeenAs(p.In)
	for _, read := range []func(*packet.Packet) error{a.wire, a.tcpFlags, a.icmp, a.tracked, a.marked} {
		if err := read(&p); err != nil {
			return p, "", err
		}
	}
	if err := a.ports(r.Policy, &p); err != nil {
		return p, "", err
	}
	if p.Owner, err = a.owner(r, way); err != nil {
		return p, "", err
	}
	if f.Known {
		p.SourceLocal, p.DestinationLocal = packet.Is(reference.Own(f, p.Source)), packet.Is(reference.Own(f, p.Destination))
	}
	return p, way, nil
}

func (a askedPacket) addresses(p *packet.Packet) error {
	for _, end := range []struct {
		flag, text string
		to         *netip.Addr
	}{{"--src", a.source, &p.Source}, {"--dst", a.destination, &p.Destination}} {
		if end.text == "" {
			continue
		}
		address, err := netip.ParseAddr(end.text)
		switch {
		case err != nil:
			return fmt.Errorf("%s %q is not an IP address", end.flag, end.text)
		case address.Zone() != "":
			return fmt.Errorf("%s %s: write the address without %%%s\nhint: --in and --out name interfaces", end.flag, end.text, address.Zone())
		}
		*end.to = address.Unmap()
	}
	if p.Source.IsValid() && p.Destination.IsValid() && p.Source.Is4() != p.Destination.Is4() {
		return fmt.Errorf("--src %s and --dst %s are not of one family", p.Source, p.Destination)
	}
	return nil
}

// broadcast is everybody on the network of an interface.
var broadcast = netip.AddrFrom4([4]byte{255, 255, 255, 255})

// way says which way the packet goes: to the host, through it or from it.
func (a askedPacket) way(f host.Facts, p *packet.Packet) (packet.Way, error) {
	known := f.Known
	ours := func(x netip.Addr) bool { return x.IsValid() && reference.Own(f, x) }
	elsewhere := p.Destination.IsValid() && known && !ours(p.Destination) && !p.Destination.IsMulticast() && p.Destination != broadcast
	switch way := packet.Way(a.hook); way {
	case packet.In:
		if elsewhere {
			return "", fmt.Errorf("--hook input: %s is no address of this host\nhint: leave --hook away, and the way follows from --src and --dst", p.Destination)
		}
		return way, nil
	case packet.Through:
		if known && p.Destination.IsValid() && ours(p.Destination) {
			return "", fmt.Errorf("--hook forward: %s is an address of this host\nhint: leave --hook away, and the way follows from --src and --dst", p.Destination)
		}
		return way, nil
	case packet.Out:
		if known && p.Source.IsValid() && !ours(p.Source) {
			return "", fmt.Errorf("--hook output: %s is no address of this host\nhint: leave --hook away, and the way follows from --src and --dst", p.Source)
		}
		return way, nil
	case "":
	default:
		return "", fmt.Errorf("--hook %q: unknown hook\nhint: there are input, forward and output", a.hook)
	}
	switch {
	case a.user != "" || ours(p.Source) && a.in == "" || !p.Source.IsValid() && p.Destination.IsLoopback():
		return packet.Out, nil
	case elsewhere && !p.Source.IsValid():
		return packet.Out, nil
	case elsewhere || a.out != "":
		return packet.Through, nil
	}
	return packet.In, nil
}

// ends fills in the addresses and interfaces that were not said.
func (a askedPacket) ends(f host.Facts, p *packet.Packet, way packet.Way) error {
	for _, name := range []struct{ flag, text, wrong string }{
		{"--in", a.in, map[packet.Way]string{packet.Out: "what the host sends comes in by no interface"}[way]},
		{"--out", a.out, map[packet.Way]string{packet.In: "what comes to the host leaves by no interface"}[way]},
	} {
		if name.text != "" && name.wrong != "" {
			return fmt.Errorf("%s %s cannot be used on %s: %s", name.flag, name.text, way, name.wrong)
		}
	}
	if way == packet.Out {
		return a.sent(f, p)
	}
	if !p.Source.IsValid() {
		return errors.New("whom is the packet from?\nhint: say --src ADDRESS, or, for what this host sends, --dst ADDRESS or --hook output")
	}
	if p.In == "" {
		if names, _ := arrivals(f, a.ask, p.Source, p.Destination); len(names) > 0 {
			p.In = names[0]
		}
	}
	if p.Destination.IsValid() {
		return nil
	}
	if way == packet.Through {
		return errors.New("where is the packet forwarded to?\nhint: say --dst ADDRESS")
	}
	if p.Destination = ownAddress(f, p.In, p.Source); !p.Destination.IsValid() {
		return fmt.Errorf("no IPv%d address of this host is known\nhint: say --dst ADDRESS", familyOf(p.Source))
	}
	return nil
}

// sent fills in the ends of what the host sends.
func (a askedPacket) sent(f host.Facts, p *packet.Packet) error {
	if !p.Destination.IsValid() {
		return errors.New("whom is the packet to?\nhint: say --dst ADDRESS")
	}
	if p.Source.IsValid() {
		return nil
	}
	device := p.Out
	if device == "" {
		switch w := a.ask(host.Trip{Destination: p.Destination, User: -1}); {
		case w.Leads == host.Here:
			device = "lo"
		case len(w.Out) > 0:
			device = w.Out[0]
		}
	}
	if device == "lo" {
		p.Source = p.Destination
		return nil
	}
	if p.Source = ownAddress(f, device, p.Destination); !p.Source.IsValid() {
		return fmt.Errorf("no IPv%d address of this host is known\nhint: say --src ADDRESS", familyOf(p.Destination))
	}
	return nil
}

func familyOf(a netip.Addr) int {
	if a.Is4() {
		return 4
	}
	return 6
}

// ownAddress is the host's address that the other end asks: on the interface,
// in its network where there is one, else wherever the host has one.
func ownAddress(f host.Facts, device string, other netip.Addr) netip.Addr {
	best, score := netip.Addr{}, 0
	for _, i := range f.Interfaces {
		for _, p := range i.Addresses {
			a := p.Addr()
			if a.Is4() != other.Is4() || a.IsLinkLocalUnicast() != other.IsLinkLocalUnicast() || a.IsLoopback() && !other.IsLoopback() {
				continue
			}
			points := 1
			if i.Name == device {
				points = 2
				if p.Masked().Contains(other) {
					points = 3
				}
			}
			if points > score {
				best, score = a, points
			}
		}
	}
	return best
}

// protocolNumbers are the protocols that --proto has a name for.
var protocolNumbers = map[string]uint8{
	"tcp": packet.TCP, "udp": packet.UDP, "sctp": packet.SCTP, "icmp": packet.ICMP, "icmpv6": packet.ICMPv6,
	"igmp": 2, "gre": 47, "esp": 50, "ah": 51, "ospf": 89, "vrrp": 112,
}

// wire reads the protocol.
func (a askedPacket) wire(p *packet.Packet) error {
	name := strings.ToLower(strings.TrimPrefix(a.protocol, "proto/"))
	if name == "" {
		name = "tcp"
		if a.icmpType != "" {
			name = "icmp"
		}
	}
	n, known := protocolNumbers[name]
	if !known {
		v, err := strconv.ParseUint(name, 10, 8)
		if err != nil {
			return fmt.Errorf("--proto %q: unknown protocol\nhint: there are tcp, udp, sctp, icmp and numbers up to 255", a.protocol)
		}
		n = uint8(v)
	}
	six := p.Source.Is6()
	switch {
	case n == packet.ICMP && six:
		n = packet.ICMPv6
	case n == packet.ICMPv6 && !six:
		return errors.New("--proto icmpv6 is IPv6, the addresses are not\nhint: write --proto icmp")
	}
	p.Protocol = n
	return nil
}

// ports reads the ports, which may be given by the name of a service.
func (a askedPacket) ports(in *policy.Policy, p *packet.Packet) error {
	for _, port := range []struct {
		flag, text string
		to         *uint16
		otherwise  uint16
	}{{"--sport", a.sourcePort, &p.SourcePort, firstPort}, {"--dport", a.port, &p.Port, 0}} {
		switch {
		case port.text != "" && !p.HasPorts():
			return fmt.Errorf("%s %s: %s has no ports", port.flag, port.text, protocolName(p.Protocol))
		case port.text != "":
			n, ok := parsePort(in, p.Protocol, port.text)
			if !ok {
				hint := "write a number from 1 to 65535, or a service that has one port"
				if name := command.Nearest(port.text, portNames(in, p.Protocol)); name != "" && name != port.text {
					hint = "did you mean " + name + "?"
				}
				return fmt.Errorf("%s %q is no port of %s\nhint: %s", port.flag, port.text, protocolName(p.Protocol), hint)
			}
			*port.to = n
		case p.HasPorts() && port.otherwise == 0:
			return errors.New("which port is the packet for?\nhint: say --dport PORT")
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
		return first(ports), len(ports) == 1 && ports[0].From == ports[0].To
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

func first(ports []policy.PortRange) uint16 {
	if len(ports) == 0 {
		return 0
	}
	return ports[0].From
}

// tcpFlagLetters are the flags of --flags, with the names that nft has for them.
var tcpFlagLetters = []struct {
	letter byte
	name   string
	flag   uint8
}{
	{'f', "fin", packet.FIN},
	{'s', "syn", packet.SYN},
	{'r', "rst", packet.RST},
	{'p', "psh", packet.PSH},
	{'a', "ack", packet.ACK},
	{'u', "urg", packet.URG},
	{'e', "ecn", 0x40},
	{'c', "cwr", 0x80},
}

// parseTCPFlags reads flags as names, "syn,ack", or as letters, "SA"; "none" is
// no flag.
func parseTCPFlags(text string) (uint8, bool) {
	text = strings.ToLower(text)
	if text == "none" {
		return 0, true
	}
	if out, ok := flagsOf(strings.Split(text, ","), func(i int) string { return tcpFlagLetters[i].name }); ok {
		return out, true
	}
	return flagsOf(strings.Split(text, ""), func(i int) string { return string(tcpFlagLetters[i].letter) })
}

// flagsOf takes each word for the flag that is called so.
func flagsOf(words []string, called func(i int) string) (out uint8, ok bool) {
	for _, word := range words {
		found := false
		for i, f := range tcpFlagLetters {
			if word == called(i) {
				out, found = out|f.flag, true
			}
		}
		if !found {
			return 0, false
		}
	}
	return out, len(words) > 0
}

func (a askedPacket) tcpFlags(p *packet.Packet) error {
	if p.Protocol != packet.TCP {
		if a.flags != "" {
			return errors.New("--flags is about TCP")
		}
		return nil
	}
	if a.flags == "" {
		if p.Flags = packet.SYN; a.state == string(packet.Established) {
			p.Flags = packet.ACK
		}
		return nil
	}
	var ok bool
	if p.Flags, ok = parseTCPFlags(a.flags); !ok {
		return fmt.Errorf("--flags %q: unknown TCP flags\nhint: write letters of FSRPAUEC, such as SA, or names, such as syn,ack", a.flags)
	}
	return nil
}

// icmp reads the type of an ICMP message; an echo request where none is said.
func (a askedPacket) icmp(p *packet.Packet) error {
	six := p.Protocol == packet.ICMPv6
	if p.Protocol != packet.ICMP && !six {
		if a.icmpType != "" {
			return errors.New("--icmp-type is about ICMP\nhint: leave --proto away")
		}
		return nil
	}
	name := a.icmpType
	if name == "" {
		name = "echo-request"
	}
	if n, err := strconv.ParseUint(name, 10, 8); err == nil {
		p.ICMPType = uint8(n)
	} else if n, ok := policy.ICMPNumber(six, name); ok {
		p.ICMPType = n
	} else {
		return fmt.Errorf("--icmp-type %q: unknown type of IPv%d%s\nhint: a number, or one of %s", name, familyOf(p.Source), meantType(six, name), strings.Join(policy.ICMPNames(six), ", "))
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
	meant := command.Nearest(name, policy.ICMPNames(six))
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

func (a askedPacket) tracked(p *packet.Packet) error {
	state := packet.State(a.state)
	if !slices.Contains([]packet.State{"", packet.New, packet.Established, packet.Related, packet.Invalid, packet.Untracked}, state) {
		return fmt.Errorf("--state %q: unknown state\nhint: there are new, established, related, invalid and untracked", a.state)
	}
	p.State = state
	return nil
}

// marked reads the mark; none where none is said.
func (a askedPacket) marked(p *packet.Packet) error {
	if a.mark == "" {
		return nil
	}
	n, err := strconv.ParseUint(a.mark, 0, 32)
	if err != nil {
		return fmt.Errorf("--mark %q is no mark\nhint: write a number of 32 bits, such as 0x1", a.mark)
	}
	p.Mark = uint32(n)
	return nil
}

// owner is the user that sends; root where nobody says another.
func (a askedPacket) owner(r *resolve.Resolved, way packet.Way) (int64, error) {
	if way != packet.Out {
		if a.user != "" {
			return 0, fmt.Errorf("--user %s cannot be used on %s: only what this host sends has a user", a.user, way)
		}
		return -1, nil
	}
	if a.user == "" {
		return 0, nil
	}
	if id, known := r.Users[a.user]; known {
		return int64(id), nil
	}
	if id, err := strconv.ParseUint(a.user, 10, 32); err == nil {
		return int64(id), nil
	}
	u, err := user.Lookup(a.user)
	if err != nil {
		return 0, fmt.Errorf("--user: this host has no user %q\nhint: give the number", a.user)
	}
	id, err := strconv.ParseUint(u.Uid, 10, 32)
	return int64(id), err
}

// assumed says what of the packet was filled in. The interfaces are those that it may
// come in and leave by.
func (a askedPacket) assumed(p packet.Packet, way packet.Way, ins, outs []string) (out []string) {
	add := func(said, known bool, format string, args ...any) {
		if !said && known {
			out = append(out, fmt.Sprintf(format, args...))
		}
	}
	add(a.source != "", true, "--src %s", p.Source)
	add(a.sourcePort != "", p.HasPorts(), "--sport %d", p.SourcePort)
	add(a.destination != "", true, "--dst %s", p.Destination)
	add(a.in != "", len(ins) == 1, "--in %s", strings.Join(ins, ""))
	add(a.out != "", way == packet.Out && len(outs) == 1, "--out %s", strings.Join(outs, ""))
	add(a.flags != "", p.Protocol == packet.TCP, "--flags %s", flagsText(p.Flags))
	add(a.icmpType != "", p.Protocol == packet.ICMP || p.Protocol == packet.ICMPv6, "--icmp-type echo-request")
	add(a.user != "", way == packet.Out, "--user root")
	return out
}
