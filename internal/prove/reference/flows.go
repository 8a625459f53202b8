package reference

import (
	"net/netip"
	"slices"

	"sluice/internal/base/packet"
	"sluice/internal/language/policy"
	"sluice/internal/language/resolve"
)

// Flows follows the connections of one host packet after packet, as its kernel's
// connection tracking does, and says of each packet what the policy makes of it.
//
// It models what decides a packet's state: which packets begin a flow and which
// are its answers, the life of a TCP connection, ICMP questions and errors,
// rewriting in both directions, and that a flow is known only from its first
// packet that no hook dropped. It does not model what a test cannot send by
// accident: time-outs, a full table, wrong checksums, helpers, the chunks of SCTP,
// and the choice of another port where two rewritten flows would look alike. Where
// a TCP packet says where it is in its connection, sequence numbers count too.
type Flows struct {
	// Resumes says that connections are taken up midway, as the kernel does
	// unless net.netfilter.nf_conntrack_tcp_loose is 0.
	Resumes bool
	// Quiet leaves out the steps of the paths.
	Quiet bool
	// Route is the interface by which the host sends to an address; nil asks the
	// facts alone.
	Route func(netip.Addr) string

	policy *resolve.Resolved
	known  map[key]*flow           // by the first packet, and by its answer
	spent  map[*policy.Rule]uint64 // of rates, how many packets were let through
}

// NewFlows begins with an empty connection table.
func NewFlows(r *resolve.Resolved) *Flows {
	return &Flows{Resumes: true, policy: r, known: map[key]*flow{}, spent: map[*policy.Rule]uint64{}}
}

// Len is how many flows are known.
func (f *Flows) Len() int { return len(f.known) / 2 }

// Packet says what happens to the next packet, whose state it decides itself,
// and remembers what the kernel would. What a packet over loopback is, its way
// out has said: give it once, as it is sent.
func (f *Flows) Packet(p packet.Packet, way packet.Way) Path {
	p.State, p.Reply, p.DNAT, p.SNAT, p.Original = "", false, false, false, packet.Tuple{}
	w := newWalk(f.policy, p, way)
	w.table, w.quiet = f, f.Quiet
	arrived := w.packet
	path := w.run()
	if w.begins && path.Verdict == policy.Allow && !path.Crowded {
		path.Crowded = !f.begin(arrived, path.Packet)
	}
	if path.Verdict == policy.Reject && w.flow != nil && p.Protocol == packet.TCP && p.Flags&packet.RST == 0 {
		w.flow.tcp = tcpClosed // by the reset that reject sends (nf_conntrack_tcp_set_closing)
	}
	if reset, ok := resetOf(path); ok {
		if f.Route != nil {
			reset.Out = f.Route(reset.Destination)
		}
		answer := f.Packet(reset, packet.Out)
		path.Answer = &answer
	}
	return path
}

// resetOf is the reset that reject answers a TCP packet of no connection with, as
// the host sends it (nf_reject_ip_tcphdr_put). That to a packet of a connection is of
// the connection too, and meets no rule (nf_conntrack_attach).
func resetOf(path Path) (packet.Packet, bool) {
	p := path.Packet
	if path.Verdict != policy.Reject || p.Protocol != packet.TCP || p.Flags&packet.RST != 0 || p.State != packet.Invalid && p.State != packet.Untracked {
		return packet.Packet{}, false
	}
	r := packet.Packet{
		Source: p.Destination, Destination: p.Source, Protocol: packet.TCP, SourcePort: p.Port, Port: p.SourcePort,
		Flags: packet.RST, Owner: -1,
	}
	if p.Flags&packet.ACK == 0 {
		r.Flags |= packet.ACK
	}
	if p.Segment != nil {
		if r.Segment = (&packet.Segment{Seq: p.Segment.Ack}); p.Flags&packet.ACK == 0 {
			r.Segment = &packet.Segment{Ack: endOf(&p)}
		}
	}
	return r, true
}

// key is what the packets of one direction of a flow have in common.
type key struct {
	protocol   uint8
	tuple      packet.Tuple
	kind, code uint8 // of ICMP
	id         uint16
}

func keyOf(p *packet.Packet) key {
	k := key{protocol: p.Protocol, tuple: packet.Tuple{Source: p.Source, Destination: p.Destination}}
	switch {
	case p.HasPorts():
		k.tuple.SourcePort, k.tuple.Port = p.SourcePort, p.Port
	case p.Protocol == packet.ICMP, p.Protocol == packet.ICMPv6:
		k.kind, k.code, k.id = p.ICMPType, p.ICMPCode, p.ICMPID
	}
	return k
}

// answer is the key of what answers; not ok for an ICMP message that is neither
// question nor answer.
func (k key) answer() (key, bool) {
	t := k.tuple
	k.tuple = packet.Tuple{Source: t.Destination, Destination: t.Source, SourcePort: t.Port, Port: t.SourcePort}
	questions, replies := questions4, replies4
	switch k.protocol {
	case packet.ICMP:
	case packet.ICMPv6:
		questions, replies = questions6, replies6
	default:
		return k, true
	}
	if i := slices.Index(questions, k.kind); i >= 0 {
		k.kind = replies[i]
		return k, true
	}
	if i := slices.Index(replies, k.kind); i >= 0 {
		k.kind = questions[i]
		return k, true
	}
	return k, false
}

// flow is one connection.
type flow struct {
	first, answer key // as the first packet comes in, and as its answer does
	dnat, snat    bool
	answered      bool // a packet went the other way
	tcp           tcpState
	ends          [2]tcpEnd // by direction
	assured       bool      // an ACK came after both ends were in step
	bothOpen      bool      // both ends sent a SYN
	challenged    bool      // a SYN came to a connection that is closing, and may be answered by an ACK

	// Of the last packet that counted, or that was ignored.
	last                         tcpKind
	lastReply                    bool
	lastEnd, lastAck, lastWindow uint32
	lastOffer                    offer // of a SYN that was ignored
}

// begin remembers a flow by its first packet, as it came and as it left; false
// where another has its answers.
func (f *Flows) begin(came, left packet.Packet) bool {
	n := &flow{first: keyOf(&came), dnat: left.DNAT, snat: left.SNAT}
	answer, ok := keyOf(&left).answer()
	if !ok || f.known[answer] != nil {
		return !ok
	}
	n.answer = answer
	if came.Protocol == packet.TCP {
		n.opened(&came)
		n.last = kindOf(came.Flags)
		if n.tcp = tcpEstablished; n.last == isSYN {
			n.tcp = tcpSynSent
		}
	}
	f.known[n.first], f.known[n.answer] = n, n
	return true
}

func (f *Flows) end(n *flow) {
	delete(f.known, n.first)
	delete(f.known, n.answer)
}

// track says what the packet of a walk is.
func (f *Flows) track(w *walk) {
	p := &w.packet
	var why string
	p.State, why = Begins(*p)
	if p.Protocol == packet.TCP && p.State == packet.New && kindOf(p.Flags) != isSYN && !f.Resumes {
		p.State, why = packet.Invalid, "it begins no connection and belongs to no known one: the packet is invalid"
	}
	if p.State != packet.Untracked {
		f.recognise(w, &why)
	}
	w.step("tracking", noPos, "", why)
}

func (f *Flows) recognise(w *walk, why *string) {
	p := &w.packet
	if p.Quoted != nil && carries(p) {
		f.related(w, why)
		return
	}
	if p.Protocol == packet.TCP && kindOf(p.Flags) == isNothing {
		return
	}
	k := keyOf(p)
	n := f.known[k]
	if n == nil {
		return
	}
	reply, moved := k != n.first, goes
	if p.Protocol == packet.TCP {
		switch moved = n.advance(p, reply); moved {
		case refused:
			p.State, *why = packet.Invalid, "a TCP "+string(kindOf(p.Flags))+" makes no sense at this point of its connection: the packet is invalid"
			return
		case reopens:
			f.end(n)
			return // and begins another
		}
	}
	n.claim(w, reply)
	switch {
	case reply || n.answered:
		p.State, *why = packet.Established, "it belongs to a known connection: the packet is established"
	default:
		p.State, *why = packet.New, "it belongs to a connection without a reply so far: the packet is new"
	}
	if p.Protocol == packet.TCP && kindOf(p.Flags) == isRST && moved == goes && !n.answered {
		f.end(n) // an opening that is refused leaves nothing
	}
	n.answered = n.answered || reply
}

// claim makes a packet one of the flow.
func (n *flow) claim(w *walk, reply bool) {
	p := &w.packet
	w.flow, p.Reply, p.DNAT, p.SNAT = n, reply, n.dnat, n.snat
	p.Original = n.first.tuple
}

// related finds the flow that an ICMP error is about: the error carries a packet
// of it, and goes to whom that packet came from.
func (f *Flows) related(w *walk, why *string) {
	inner := keyOf(w.packet.Quoted)
	back, ok := inner.answer()
	n := f.known[back]
	if !ok || n == nil || w.packet.Destination != back.tuple.Destination {
		return
	}
	n.claim(w, back != n.first)
	w.packet.State, *why = packet.Related, "it is an ICMP error about a known connection: the packet is related"
}

func carries(p *packet.Packet) bool {
	if p.Protocol == packet.ICMP {
		return slices.Contains(carriers4, p.ICMPType)
	}
	return p.Protocol == packet.ICMPv6 && p.ICMPType < 128
}

// advance moves a TCP connection on.
func (n *flow) advance(p *packet.Packet, reply bool) move {
	kind, side := kindOf(p.Flags), 0
	if reply {
		side = 1
	}
	was := n.tcp
	next, m := was.next(kind, reply)
	if m == reopens && !n.ends[0].closer && !n.ends[1].closer && (n.last != isRST || n.lastReply != reply) {
		m = ignored // nobody closed it that is known of
	}
	known, asksWindow := p.Segment != nil, p.Segment != nil
	switch {
	case m == refused, m == reopens:
		return m
	case m == ignored && kind == isSYNACK && n.last == isSYN && n.lastReply != reply && (!known || p.Segment.Ack == n.lastEnd):
		was, next = tcpSynSent, tcpSynReceived // the ends were in step, and this host was not
		n.ends[1-side] = tcpEnd{end: n.lastEnd, limit: n.lastEnd, window: max(1, n.lastWindow), offer: n.lastOffer}
		n.ends[side] = tcpEnd{liberal: n.ends[side].liberal}
	case m == ignored:
		n.ignore(p, reply)
		return ignored
	case next == tcpSynSentTwice:
		n.bothOpen = true
	case next == tcpSynReceived && reply && kind == isACK && n.bothOpen:
		next = tcpEstablished
	case was == tcpLastAck && kind == isACK && n.lastReply != reply && n.last == isSYN && n.challenged:
		n.challenged = false // one such ACK is expected
		return ignored
	case kind == isRST && known:
		var sure bool
		switch m, sure = n.reset(p, reply); m {
		case refused:
			return refused
		case ignored:
			next = was
		}
		asksWindow = !sure
	}
	if asksWindow {
		if m := n.inWindow(p, reply); m != goes {
			n.closes(kind, reply, m)
			return m
		}
	}
	if next == tcpFinWait && was != tcpFinWait {
		n.ends[side].closer = true
	}
	if n.answered && next == tcpEstablished && (was == tcpSynReceived || was == tcpEstablished) {
		n.assured = true
	}
	n.tcp, n.last, n.lastReply = next, kind, reply
	return goes
}

// closes keeps, of a connection in use, that an end would have closed it by a packet
// outside of its window (nf_tcp_handle_invalid of nf_conntrack_proto_tcp.c), until
// the other end would, too.
func (n *flow) closes(kind tcpKind, reply bool, m move) {
	closing := func(k tcpKind) bool { return k == isFIN || k == isRST }
	if m == refused && n.assured && closing(kind) && (n.lastReply == reply || !closing(n.last)) {
		n.last, n.lastReply = kind, reply
	}
}

// ignore keeps what a packet said that may be right where this host is not in step.
func (n *flow) ignore(p *packet.Packet, reply bool) {
	kind := kindOf(p.Flags)
	n.last, n.lastReply = kind, reply
	if kind == isSYN && !reply {
		n.challenged, n.bothOpen = n.tcp == tcpLastAck, false
	}
	if p.Segment == nil {
		return
	}
	n.lastEnd, n.lastWindow = endOf(p), uint32(p.Segment.Window)
	if kind == isSYN && !reply {
		n.lastOffer, _ = offerOf(p)
	}
	if n.tcp == tcpSynSent && kind == isACK && reply {
		n.lastAck = p.Segment.Ack
	}
}

// rewriteDestination leads a packet of the flow where its first one was led, or
// back to whoever began it.
func (n *flow) rewriteDestination(w *walk) {
	p := &w.packet
	var to netip.Addr
	var port uint16
	switch {
	case !p.Reply && n.dnat:
		to, port = n.answer.tuple.Source, n.answer.tuple.SourcePort
	case p.Reply && n.snat:
		to, port = n.first.tuple.Source, n.first.tuple.SourcePort
	default:
		return
	}
	p.Destination = to
	if p.State != packet.Related && p.HasPorts() {
		p.Port = port
	}
	w.settle()
	w.step("nat", noPos, "", w.because("the destination becomes %s, as for the whole connection", endText(p.Destination, p.Port, *p)))
}

// rewriteSource gives a packet of the flow the source that its first one got, or
// that of the end which was asked.
func (n *flow) rewriteSource(w *walk) {
	p := &w.packet
	var from netip.Addr
	var port uint16
	switch {
	case !p.Reply && n.snat:
		from, port = n.answer.tuple.Destination, n.answer.tuple.Port
	case p.Reply && n.dnat:
		from, port = n.first.tuple.Destination, n.first.tuple.Port
	default:
		return
	}
	p.Source = from
	if p.State != packet.Related && p.HasPorts() {
		p.SourcePort = port
	}
	w.step("nat", noPos, "", w.because("the source becomes %s, as for the whole connection", endText(p.Source, p.SourcePort, *p)))
}
