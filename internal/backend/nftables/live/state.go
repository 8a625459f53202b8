package live

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"slices"

	"sluice/internal/backend/trace"
	"sluice/internal/base/packet"
	"sluice/internal/system/kernel/conntrack"
	"sluice/internal/system/kernel/nft"
	"sluice/internal/system/kernel/replica"
)

// senderMAC is the hardware address of who is on the other end; it is a local one.
var senderMAC = net.HardwareAddr{0x02, 0x51, 0xce, 0, 0, 1}

// frameTo is the hardware address for a destination: the device's own, or that of a
// group.
func frameTo(l replica.Link, to netip.Addr) net.HardwareAddr {
	b := to.Unmap().AsSlice()
	switch {
	case to.Unmap().Is4() && to.IsMulticast(): // RFC 1112
		return net.HardwareAddr{0x01, 0x00, 0x5e, b[1] & 0x7f, b[2], b[3]}
	case to.IsMulticast(): // RFC 2464
		return net.HardwareAddr{0x33, 0x33, b[12], b[13], b[14], b[15]}
	case to.Unmap() == netip.AddrFrom4([4]byte{255, 255, 255, 255}):
		return net.HardwareAddr{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}
	}
	return l.MAC
}

// chooseFlags makes the packet one that connection tracking takes for what it is to be.
func (x *experiment) chooseFlags() error {
	p := &x.question.Packet
	tcp := p.Protocol == packet.TCP
	switch p.State {
	case packet.Established:
		if tcp && p.Flags == 0 {
			p.Flags = packet.ACK
		}
		if isICMP(p.Protocol) && !hasFlow(*p) {
			return refuse(fmt.Sprintf("errors are related to a connection; use %s related, or no state", x.question.Name("state")), "an ICMP message of type %d and state established", p.ICMPType)
		}
	case packet.Related:
		if isICMP(p.Protocol) && !reportsError(*p) {
			return refuse("only ICMP errors are related to a connection", "an ICMP message of type %d and state related", p.ICMPType)
		}
		if tcp && p.Flags == 0 {
			p.Flags = packet.SYN
		}
	case packet.Invalid:
		return x.makeInvalid()
	case packet.New:
		if tcp && p.Flags == 0 {
			p.Flags = packet.SYN
		}
	}
	return nil
}

// makeInvalid gives the packet a defect that connection tracking looks for: TCP without
// any flag; a length of UDP, or a checksum of ICMP that is wrong (where checksums are
// looked at: on the way in).
func (x *experiment) makeInvalid() error {
	p := &x.question.Packet
	switch {
	case p.Protocol == packet.TCP:
		if p.Flags != 0 && p.Flags != packet.SYN|packet.FIN {
			p.Flags = 0
		}
	case p.Protocol == packet.UDP || p.Protocol == protoUDPLite:
		x.defect = badLength
	case isICMP(p.Protocol) && x.question.Way != packet.Out:
		x.defect = badChecksum
	default:
		return refuse("TCP and UDP can be invalid, and incoming ICMP", "an invalid packet of protocol %d on the way %s", p.Protocol, x.question.Way)
	}
	return nil
}

func isICMP(protocol uint8) bool { return protocol == packet.ICMP || protocol == packet.ICMPv6 }

// enterFlow makes the entry in the connection table of the copy that the state of the
// packet needs.
func (x *experiment) enterFlow(ctx context.Context) error {
	p := x.question.Packet
	if p.State != packet.Established && p.State != packet.Related {
		return nil
	}
	if p.State == packet.Related && isICMP(p.Protocol) && reportsError(p) {
		about := flowOf(reported(p))
		about.Answered = true
		return enter(about)
	}
	flow := flowOf(p)
	if p.State == packet.Related {
		other := packet.Packet{Source: p.Destination, Destination: p.Source, SourcePort: innerPort, Port: innerPort}
		master := conntrack.Flow{Protocol: packet.UDP, Original: tupleOf(other), Answered: true}
		if err := enter(master); err != nil {
			return err
		}
		flow.Master = &master
		return enter(flow)
	}
	flow.Answered = true
	if err := x.beginFlow(ctx, p); err != nil {
		return err
	}
	return enter(flow)
}

func enter(f conntrack.Flow) error {
	if err := conntrack.Create(f); err != nil {
		return fmt.Errorf("give the packet its state: %w", err)
	}
	return nil
}

func tupleOf(p packet.Packet) conntrack.Tuple {
	return conntrack.Tuple{Source: p.Source, Destination: p.Destination, SourcePort: p.SourcePort, DestinationPort: p.Port}
}

// icmpQuestions are the types of ICMP and ICMPv6 that other types answer, by the answer.
var icmpQuestions = map[uint8]map[uint8]uint8{
	packet.ICMP:   {0: 8, 14: 13, 16: 15, 18: 17},
	packet.ICMPv6: {129: 128, 140: 139},
}

// hasFlow says of ICMP that a message asks, or answers, so that it belongs to a flow.
func hasFlow(p packet.Packet) bool {
	for answer, question := range icmpQuestions[p.Protocol] {
		if p.ICMPType == answer || p.ICMPType == question {
			return true
		}
	}
	return false
}

// flowOf is the flow that a packet belongs to.
func flowOf(p packet.Packet) conntrack.Flow {
	question, answers := icmpQuestions[p.Protocol][p.ICMPType]
	if p.Reply || answers {
		p = p.Mirror()
	}
	f := conntrack.Flow{Protocol: p.Protocol, Original: tupleOf(p)}
	if isICMP(p.Protocol) {
		f.Original.SourcePort, f.Original.DestinationPort = 0, 0
		f.ICMPType, f.ICMPID = p.ICMPType, icmpID(p)
		if answers {
			f.ICMPType = question
		}
	}
	return f
}

// ofKnownFlow says of a packet whose state nobody said that the calling thread's
// namespace knows its flow. Where that cannot be asked it is not so.
func ofKnownFlow(q trace.Question) bool {
	p := q.Packet
	if p.State != "" || !p.HasPorts() || !p.Source.IsValid() || !p.Destination.IsValid() {
		return false
	}
	known, err := conntrack.Known(flowOf(p))
	return err == nil && known
}

// beginFlow sends a first packet of the flow, so that its entry has the rewriting that the
// rules give it. Where they do not let it pass there is no entry then, and nothing is lost.
func (x *experiment) beginFlow(ctx context.Context, p packet.Packet) error {
	rewrites := slices.ContainsFunc(x.copy.Rules.Chains, func(c nft.Chain) bool { return c.NAT })
	if p.Reply || !rewrites && !x.copy.Legacy {
		return nil
	}
	if err := nft.Run(ctx, quietTable(p)); err != nil {
		return fmt.Errorf("make the table that marks the packet: %w", err)
	}
	p.State = packet.New
	if p.Protocol == packet.TCP {
		p.Flags = packet.SYN
	}
	// What a local socket sends would be dropped by the quiet table, and is
	// rewritten as its own flow is.
	if x.question.Way != packet.Out && x.question.Packet.In != "lo" {
		if err := x.deliver(ctx, p); err != nil {
			return err
		}
	}
	return nft.Run(ctx, "delete table inet "+tableName+"\n")
}
