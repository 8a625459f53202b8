package policy

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"sluice/internal/base/packet"
	"sluice/internal/base/sorting"
	"sluice/internal/language/source"
)

// protocolNames are the protocols that proto/NAME knows.
var protocolNames = map[string]uint8{
	"igmp": 2, "ipip": 4, "tcp": packet.TCP, "udp": packet.UDP, "ipv6": 41, "gre": 47, "esp": 50, "ah": 51,
	"eigrp": 88, "ospf": 89, "pim": 103, "vrrp": 112, "l2tp": 115, "sctp": packet.SCTP,
}

// parseServiceWord reads what is not the name of a service: "tcp/80", "udp",
// "proto/112", "icmp", "icmp NAME". It returns nil and no problem for a text
// that may be a name.
func parseServiceWord(s string) (*ServiceMatch, *problem) {
	fields := strings.Fields(s)
	if len(fields) == 0 {
		return nil, problemf("", "service is empty")
	}
	head, rest, slash := strings.Cut(fields[0], "/")
	if fields[0] != "icmp" && len(fields) > 1 {
		return nil, problemf("write each as an element of the list: ["+strings.Join(fields, ", ")+"]", "%s is more than one service", source.Quote(s))
	}
	switch number, known := packet.PortProtocol(head); {
	case known && !slash:
		return &ServiceMatch{Protocol: number}, nil
	case known:
		p, problem := parsePorts(rest)
		if problem != nil {
			return nil, problem
		}
		return &ServiceMatch{Protocol: number, Ports: []PortRange{p}}, nil
	}
	switch {
	case head == "proto" && slash:
		return parseProto(rest)
	case head == "proto":
		return nil, problemf("write proto/112, or tcp/80 for TCP and UDP", "proto needs a number")
	case slices.Contains([]string{"icmp6", "icmpv6", "icmpx", "ipv6-icmp"}, head):
		return nil, problemf("write icmp, which covers both families if both have the type, or icmp … ipv6 for one of them", "unknown protocol %s", source.Quote(head))
	case head == "icmp" && slash:
		return nil, problemf("write icmp NAME, as in icmp echo-request", "icmp has no ports")
	case head == "icmp":
		if len(fields) == 1 {
			return &ServiceMatch{Protocol: packet.ICMP}, nil
		}
		t := icmpNamed(fields[1])
		if t == nil {
			return nil, problemf("known are "+strings.Join(icmpNames(), ", "), "unknown ICMP type %s%s", source.Quote(fields[1]), source.DidYouMean(fields[1], icmpNames()))
		}
		if len(fields) > 2 {
			return nil, problemf("", "unexpected %s after the ICMP type", source.Quote(fields[2]))
		}
		return &ServiceMatch{Protocol: packet.ICMP, ICMP: t}, nil
	case slash && isDigits(head):
		if rest == "tcp" || rest == "udp" || rest == "sctp" {
			return nil, problemf("write "+rest+"/"+head, "%s is in the wrong order", source.Quote(s))
		}
	case slash:
		if n, ok := protocolNames[head]; ok {
			return nil, problemf(fmt.Sprintf("write proto/%d", n), "%s has no ports", head)
		}
		if isBuiltin(head) {
			return nil, problemf("write "+head+", or tcp/"+rest+" for another port", "a port cannot follow the name of a service: %s", source.Quote(s))
		}
		names := []string{"tcp", "udp", "sctp", "proto"}
		return nil, problemf("write tcp/PORT, udp/PORT, sctp/PORT or proto/NUMBER", "unknown protocol %s%s", source.Quote(head), source.DidYouMean(head, names))
	}
	if isDigits(fields[0]) {
		return nil, problemf("write tcp/"+fields[0]+" or udp/"+fields[0], "port %s without a protocol", source.Quote(fields[0]))
	}
	return nil, nil
}

func parseProto(s string) (*ServiceMatch, *problem) {
	n, ok := protocolNames[s]
	if !ok {
		if number, _, more := strings.Cut(s, "/"); more {
			return nil, problemf("write tcp/PORT, udp/PORT or sctp/PORT for protocols with ports", "a port for a protocol that has none: %s", source.Quote("proto/"+number))
		}
		v, err := strconv.ParseUint(s, 10, 64)
		if !isDigits(s) || (len(s) > 1 && s[0] == '0') {
			return nil, problemf("write proto/NUMBER, as in proto/112", "unknown protocol %s", source.Quote(s))
		}
		if err != nil || v > 255 {
			return nil, problemf("protocols are 0 to 255", "protocol %s is above 255", source.Quote(s))
		}
		n = uint8(v)
	}
	if n == packet.ICMP || n == packet.ICMPv6 {
		return nil, problemf("write icmp, followed by ipv4 or ipv6 for one family", "proto/%d is ICMP", n)
	}
	return &ServiceMatch{Protocol: n}, nil
}

// String is the canonical word for m, of which it has one when m came from one
// word.
func (m ServiceMatch) String() string {
	if m.Any {
		return "any"
	}
	if m.Protocol == packet.ICMP {
		if m.ICMP != nil {
			return "icmp " + m.ICMP.Name
		}
		return "icmp"
	}
	name := packet.PortProtocolName(m.Protocol)
	if name == "" {
		return "proto/" + strconv.Itoa(int(m.Protocol))
	}
	if len(m.Ports) == 0 {
		return name
	}
	words := make([]string, len(m.Ports))
	for i, p := range m.Ports {
		words[i] = name + "/" + p.String()
	}
	return strings.Join(words, ", ")
}

// mergeMatches joins what is of one protocol: ports sorted and without
// overlaps, every port where one of them is every port, each ICMP type once.
// Protocols keep the order in which they first appear.
func mergeMatches(in []ServiceMatch) []ServiceMatch {
	var order []uint8
	all := map[uint8]bool{}
	ports := map[uint8][]PortRange{}
	var types []*ICMPType
	for _, m := range in {
		if m.Any {
			return []ServiceMatch{{Any: true}}
		}
		if !slices.Contains(order, m.Protocol) {
			order = append(order, m.Protocol)
		}
		switch {
		case m.ICMP != nil:
			if !slices.ContainsFunc(types, func(t *ICMPType) bool { return t.Name == m.ICMP.Name }) {
				types = append(types, m.ICMP)
			}
		case len(m.Ports) == 0:
			all[m.Protocol] = true
		}
		ports[m.Protocol] = append(ports[m.Protocol], m.Ports...)
	}
	var out []ServiceMatch
	for _, protocol := range order {
		switch {
		case all[protocol]:
			out = append(out, ServiceMatch{Protocol: protocol})
		case protocol == packet.ICMP:
			for _, t := range types {
				out = append(out, ServiceMatch{Protocol: protocol, ICMP: t})
			}
		default:
			out = append(out, ServiceMatch{Protocol: protocol, Ports: mergePorts(ports[protocol])})
		}
	}
	return out
}

func mergePorts(in []PortRange) []PortRange {
	in = slices.Clone(in)
	sorting.By(in, func(a, b PortRange) int { return cmp.Or(cmp.Compare(a.From, b.From), cmp.Compare(a.To, b.To)) })
	var out []PortRange
	for _, p := range in {
		if n := len(out); n > 0 && int(p.From) <= int(out[n-1].To)+1 {
			out[n-1].To = max(out[n-1].To, p.To)
			continue
		}
		out = append(out, p)
	}
	return out
}
