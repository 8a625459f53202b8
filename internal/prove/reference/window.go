package reference

import "sluice/internal/base/packet"

// How far a TCP connection is in sequence numbers, as the kernel's tracker follows
// it (tcp_in_window and nf_conntrack_tcp_packet of nf_conntrack_proto_tcp.c), for
// packets that say where they stand.

// tcpEnd is what the tracker knows of one end of a connection.
type tcpEnd struct {
	end     uint32 // behind the last byte that it sent (td_end)
	limit   uint32 // behind the last byte that it may send (td_maxend)
	window  uint32 // the widest that it offered; 0: nothing of it was seen (td_maxwin)
	acked   uint32 // the highest byte that it acknowledged (td_maxack)
	hasAck  bool
	liberal bool // taken up midway, so it is let out of its window
	closer  bool // it began to close
	offer   offer
}

// offer is what an end said of options in its SYN.
type offer struct {
	scaled bool  // it scales its windows
	scale  uint8 // by how many bits (td_scale)
	sacks  bool  // it understands selective acknowledgements
}

// mostScale is TCP_MAX_WSCALE (RFC 7323, section 2.3).
const mostScale = 14

// offerOf reads the options of a SYN as tcp_options does.
func offerOf(p *packet.Packet) (o offer, ok bool) {
	options := p.Segment.Options
	if options == nil {
		return offer{}, false
	}
	if o.sacks = options.SACKPermitted; options.Scaled {
		o.scaled, o.scale = true, min(options.Scale, mostScale)
	}
	return o, true
}

// maxAckWindow is how far behind an acknowledgement may be (MAXACKWINCONST).
const maxAckWindow = 66_000

func before(a, b uint32) bool { return int32(a-b) < 0 } //nolint:gosec // sequence numbers wrap

// endOf is the sequence number behind a segment.
func endOf(p *packet.Packet) uint32 {
	end := p.Segment.Seq + p.Segment.Data
	for _, flag := range []uint8{packet.SYN, packet.FIN} {
		if p.Flags&flag != 0 {
			end++
		}
	}
	return end
}

// opened is what the first packet of a connection says of its ends.
func (n *flow) opened(p *packet.Packet) {
	if p.Segment == nil {
		return
	}
	from, to := &n.ends[0], &n.ends[1]
	if from.begin(p); kindOf(p.Flags) != isSYN { // taken up midway
		from.limit += from.window
		from.liberal, to.liberal = true, true
		from.offer.sacks, to.offer.sacks = true, true
	}
	n.inWindow(p, false)
}

// begin is what a SYN, or the first that is seen of an end, says of it.
func (e *tcpEnd) begin(p *packet.Packet) {
	e.end = endOf(p)
	window := uint32(p.Segment.Window)
	if p.Flags&packet.SYN == 0 {
		window <<= e.offer.scale
	} else if o, ok := offerOf(p); ok {
		e.offer, e.hasAck, e.closer = o, false, false
	}
	e.limit, e.window = e.end, max(1, window)
}

// inWindow says whether a segment is where it may be, and moves the ends on:
// refused where it is invalid, ignored where it passes and counts for nothing.
func (n *flow) inWindow(p *packet.Packet, reply bool) move {
	from, to := &n.ends[0], &n.ends[1]
	if reply {
		from, to = to, from
	}
	seq, ack, window := p.Segment.Seq, p.Segment.Ack, uint32(p.Segment.Window)
	end := endOf(p)
	sack := ack
	if o := p.Segment.Options; to.offer.sacks && o != nil && o.SACK != 0 && before(ack, o.SACK) {
		sack = o.SACK
	}
	syn, acks, rst := p.Flags&packet.SYN != 0, p.Flags&packet.ACK != 0, p.Flags&packet.RST != 0
	opening := n.tcp == tcpSynSent || n.tcp == tcpSynReceived
	switch {
	case from.window == 0 && syn, syn && opening && before(from.end, end):
		first := from.window == 0
		if from.begin(p); reply && !(from.offer.scaled && to.offer.scaled) {
			from.offer.scale, to.offer.scale = 0, 0
		}
		if !acks && (first || reply) {
			return goes // both ends open
		}
	case from.window == 0:
		from.begin(p)
		from.limit += from.window
		if to.window == 0 {
			to.end, to.limit = sack, sack
		} else if sack == to.end+1 {
			to.end++ // the answer to a keepalive
		}
	}
	if !acks || rst && ack == 0 {
		ack, sack = to.end, to.end
	}
	if rst && seq == 0 && n.tcp == tcpSynSent {
		seq, end = from.end, from.end
	}
	out := func(m move) move {
		if from.liberal {
			return goes
		}
		return m
	}
	inReceived := to.window == 0 || before(from.end-to.window-1, end)
	ackNotOld := before(to.end-max(from.window, maxAckWindow)-1, sack)
	switch {
	case !before(seq, from.limit+1):
		if to.window != 0 && inReceived && ackNotOld && end-from.limit+1 <= to.window && before(sack, to.end+1) {
			from.end = end
			return out(ignored)
		}
		return out(refused)
	case !before(sack, to.end+1):
		return out(refused)
	case !inReceived, !ackNotOld:
		return out(ignored)
	}
	if !syn {
		window <<= from.offer.scale
	}
	from.window = max(from.window, window+sack-ack)
	if before(from.end, end) {
		from.end = end
	}
	if acks && (!from.hasAck || before(from.acked, ack)) {
		from.acked, from.hasAck = ack, true
	}
	if to.window != 0 && before(from.limit, end) {
		to.window += end - from.limit
	}
	if before(to.limit-1, sack+window) {
		if to.limit = sack + window; window == 0 {
			to.limit++
		}
	}
	if kindOf(p.Flags) == isACK {
		n.lastEnd = end
	}
	return goes
}

// reset says what a reset does to a connection: refused where it is none of this
// connection's, goes where it ends it, ignored where it may have been meant to and
// the other end has to say. Sure says that its window is not asked.
func (n *flow) reset(p *packet.Packet, reply bool) (m move, sure bool) {
	switch n.tcp {
	case tcpFinWait, tcpCloseWait, tcpLastAck, tcpTimeWait, tcpClosed:
		return goes, true
	}
	other := &n.ends[1]
	if reply {
		other = &n.ends[0]
	}
	seq, ack := p.Segment.Seq, p.Segment.Ack
	if p.Flags&packet.ACK == 0 {
		ack = 0
	}
	m = goes
	if other.hasAck && n.last != isSYN {
		inUse := n.tcp == tcpEstablished && n.assured
		switch {
		case seq == 0 && !inUse:
			return goes, false
		case before(seq, other.acked):
			return refused, false
		case !inUse, seq == other.acked, n.last == isACK && n.lastReply == reply && seq == n.lastEnd:
			return goes, false
		}
		m = ignored
	}
	switch {
	case (n.answered && n.last == isSYN && n.lastReply != reply || !n.assured && n.last == isACK) && ack == n.lastEnd,
		n.tcp == tcpSynSent && n.last == isACK && n.lastReply && seq == n.lastAck:
		return m, true // it answers what was let through without being believed
	}
	return m, false
}
