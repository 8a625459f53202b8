package engine

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"strconv"
	"strings"

	"golang.org/x/net/ipv4"
	"golang.org/x/net/ipv6"
	"golang.org/x/sys/unix"

	"sluice/internal/base/packet"
	"sluice/internal/prove/explain"
)

// decode reads what a packet's headers say, of as much as there is of them. Family is an
// ETH_P_*; of none but IP is anything said.
func (l *Logged) decode(family uint16, data []byte) {
	if family == unix.ETH_P_IPV6 {
		h, err := ipv6.ParseHeader(data)
		if err != nil {
			return
		}
		l.Source, _ = netip.AddrFromSlice(h.Src)
		l.Destination, _ = netip.AddrFromSlice(h.Dst)
		l.Bytes = ipv6.HeaderLen + h.PayloadLen
		l.transport(extended(uint8(h.NextHeader), data[ipv6.HeaderLen:])) //nolint:gosec // it is of one byte
		return
	}
	if family != unix.ETH_P_IP {
		return
	}
	h, err := ipv4.ParseHeader(data)
	if err != nil {
		return
	}
	l.Source, _ = netip.AddrFromSlice(h.Src.To4())
	l.Destination, _ = netip.AddrFromSlice(h.Dst.To4())
	l.Bytes = h.TotalLen
	rest := data[min(h.Len, len(data)):]
	if h.FragOff != 0 {
		rest = nil // what follows is of the first fragment
	}
	l.transport(uint8(h.Protocol), rest) //nolint:gosec // it is of one byte
}

// extended goes behind the extension headers of IPv6 (RFC 8200, RFC 4302). Behind a fragment
// header that is not of the first fragment there is nothing to read.
func extended(next uint8, data []byte) (uint8, []byte) {
	for len(data) >= 8 {
		length := 8 + 8*int(data[1])
		switch next {
		case unix.IPPROTO_HOPOPTS, unix.IPPROTO_ROUTING, unix.IPPROTO_DSTOPTS, unix.IPPROTO_MH:
		case unix.IPPROTO_AH:
			length = 8 + 4*int(data[1])
		case unix.IPPROTO_FRAGMENT:
			length = 8
			if binary.BigEndian.Uint16(data[2:])>>3 != 0 {
				return data[0], nil
			}
		default:
			return next, data
		}
		next, data = data[0], data[min(length, len(data)):]
	}
	return next, data
}

func (l *Logged) transport(protocol uint8, data []byte) {
	l.Protocol = packet.ProtocolName(protocol)
	switch protocol {
	case packet.TCP, packet.UDP, unix.IPPROTO_SCTP, unix.IPPROTO_DCCP, unix.IPPROTO_UDPLITE:
		if len(data) >= 4 {
			l.SourcePort, l.Port = binary.BigEndian.Uint16(data), binary.BigEndian.Uint16(data[2:])
		}
		if protocol == packet.TCP && len(data) >= 14 {
			l.Flags = flags(data[13])
		}
	case packet.ICMP, packet.ICMPv6:
		if len(data) >= 2 {
			l.ICMP = fmt.Sprintf("%d/%d", data[0], data[1])
		}
	}
}

// ErrNoPorts says that a packet was logged without its ports.
var ErrNoPorts = errors.New("its ports are not known: it was a later fragment, or was cut off")

// Question asks what a policy does with such a packet now.
func (l *Logged) Question() (explain.Question, error) {
	q := explain.Question{Protocol: l.Protocol, In: l.In, Out: l.Out, Flags: l.Flags}
	if !l.Source.IsValid() {
		return q, errors.New("its addresses are not known: it was cut off")
	}
	q.Source, q.Destination = l.Source.String(), l.Destination.String()
	if strings.HasPrefix(q.In, "#") { // it was gone
		q.In = ""
	}
	if strings.HasPrefix(q.Out, "#") {
		q.Out = ""
	}
	q.ICMPType, _, _ = strings.Cut(l.ICMP, "/")
	switch h := l.Hook; h {
	case hooks[unix.NF_INET_LOCAL_IN], hooks[unix.NF_INET_FORWARD], hooks[unix.NF_INET_LOCAL_OUT]:
		q.Hook = h
	}
	if _, ported := packet.PortProtocol(l.Protocol); ported {
		if l.Port == 0 {
			return q, ErrNoPorts
		}
		q.SourcePort, q.Port = strconv.Itoa(int(l.SourcePort)), strconv.Itoa(int(l.Port))
		if l.SourcePort == 0 {
			q.SourcePort = "" // no question has it
		}
		if l.Protocol == packet.ProtocolName(packet.TCP) && l.Flags == "" {
			q.Flags = "none"
		}
	}
	return q, nil
}

// flags are the names of TCP's.
func flags(of byte) string {
	var out []string
	for i, name := range []string{"fin", "syn", "rst", "psh", "ack", "urg", "ece", "cwr"} {
		if of>>i&1 != 0 {
			out = append(out, name)
		}
	}
	return strings.Join(out, ",")
}
