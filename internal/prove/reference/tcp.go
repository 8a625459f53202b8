package reference

import "sluice/internal/base/packet"

// tcpKind is what a TCP packet is by its flags.
type tcpKind string

const (
	isSYN     tcpKind = "SYN"
	isSYNACK  tcpKind = "SYN-ACK"
	isFIN     tcpKind = "FIN"
	isACK     tcpKind = "ACK"
	isRST     tcpKind = "RST"
	isNothing tcpKind = "packet with senseless flags"
)

// kindOf reads the flags as the kernel's tracker does (nf_conntrack_proto_tcp.c):
// only these combinations are known, PSH and those of congestion set aside, and
// URG beside SYN, ACK and FIN-ACK.
func kindOf(flags uint8) tcpKind {
	urgent := flags&packet.URG != 0
	switch flags & (packet.SYN | packet.RST | packet.FIN | packet.ACK) {
	case packet.SYN:
		return isSYN
	case packet.ACK:
		return isACK
	case packet.FIN | packet.ACK:
		return isFIN
	case packet.SYN | packet.ACK:
		if !urgent {
			return isSYNACK
		}
	case packet.RST, packet.RST | packet.ACK:
		if !urgent {
			return isRST
		}
	}
	return isNothing
}

// tcpState is how far a connection is, as one sees it from the middle.
type tcpState int

const (
	tcpNone tcpState = iota
	tcpSynSent
	tcpSynSentTwice // both ends sent a SYN
	tcpSynReceived
	tcpEstablished
	tcpFinWait   // one end is done
	tcpCloseWait // and the other knows
	tcpLastAck   // both are done
	tcpTimeWait
	tcpClosed // by a reset
)

// move is what a packet means for a connection.
type move int

const (
	goes    move = iota // to the state that is given
	ignored             // it may be right, but the connection stays as it is
	refused             // it is invalid
	reopens             // the connection is over and this packet may begin another
)

// next says what a packet means for a connection. Sequence numbers are taken to
// be right.
func (s tcpState) next(kind tcpKind, reply bool) (tcpState, move) {
	opening := s == tcpSynSent || s == tcpSynSentTwice
	switch kind {
	case isRST:
		return tcpClosed, goes
	case isSYN:
		return s.afterSYN(reply)
	case isSYNACK:
		switch {
		case reply && opening, !reply && (s == tcpSynSentTwice || s == tcpSynReceived):
			return tcpSynReceived, goes
		case reply:
			return s, ignored
		}
		return s, refused
	case isFIN:
		switch s {
		case tcpSynSent, tcpSynSentTwice:
			return s, refused
		case tcpSynReceived, tcpEstablished:
			return tcpFinWait, goes
		case tcpFinWait, tcpCloseWait:
			return tcpLastAck, goes
		}
		return s, goes
	case isACK:
		switch {
		case opening && reply: // of a connection that was half open
			return s, ignored
		case opening:
			return s, refused
		case s == tcpSynReceived && !reply:
			return tcpEstablished, goes
		case s == tcpFinWait:
			return tcpCloseWait, goes
		case s == tcpLastAck:
			return tcpTimeWait, goes
		}
		return s, goes
	}
	return s, refused
}

func (s tcpState) afterSYN(reply bool) (tcpState, move) {
	switch {
	case s == tcpTimeWait, s == tcpClosed && !reply:
		return tcpSynSent, reopens
	case reply && (s == tcpSynSent || s == tcpSynSentTwice):
		return tcpSynSentTwice, goes
	case reply:
		return s, refused
	case s == tcpSynSent || s == tcpSynSentTwice:
		return s, goes
	}
	return s, ignored
}
