package apply

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"sluice/internal/backend"
	"sluice/internal/base/english"
	"sluice/internal/base/packet"
	"sluice/internal/program"
	"sluice/internal/prove/reach"
	"sluice/internal/system/host"
)

// SSHClient is somebody who manages the host over ssh at this moment, or a flow that
// carries the packets of such a one.
type SSHClient struct {
	Remote, Local netip.AddrPort
	Interface     string // that its packets come in by, "" is unknown
	// Unproved is as in host.SSHClient: whether anybody is logged in is not known.
	Unproved bool `json:"unproved,omitzero"`
	// Outer is the flow of a tunnel by which somebody is logged in; the zero value
	// where this is the ssh connection itself.
	Outer host.OuterFlow `json:"outer,omitzero"`
}

// carries says that this is the flow of a tunnel.
func (p SSHClient) carries() bool { return p.Outer != host.OuterFlow{} }

// LockOutError says whom a policy would lock out.
type LockOutError struct{ SSHClients []LockedOut }

// LockedOut is one peer whose new connections would fail.
type LockedOut struct {
	SSHClient SSHClient
	By        string // the rule or default that drops them; "" where that cannot be told
	Why       string // it cannot be told
}

func (l LockedOut) String() string {
	o := l.SSHClient.Outer
	switch {
	case l.SSHClient.Unproved:
		return fmt.Sprintf("this policy locks out %s, who is connected to ssh and may be logged in: a new connection to %s is refused by %s", l.SSHClient.Remote.Addr(), l.SSHClient.Local, l.By)
	case !l.SSHClient.carries():
		return fmt.Sprintf("this policy locks out %s, who is logged in: a new connection to %s is refused by %s", l.SSHClient.Remote.Addr(), l.SSHClient.Local, l.By)
	case o.Unknown != "":
		return fmt.Sprintf("cannot determine whether this policy locks out %s, who is logged in through %s: %s", o.Peer, o.Tunnel, o.Unknown)
	case l.By == "":
		return fmt.Sprintf("cannot determine whether this policy locks out %s, who is logged in through %s, when no state is left of the tunnel: whether %s is let through depends on: %s", o.Peer, o.Tunnel, o.Packets(), l.Why)
	}
	return fmt.Sprintf("this policy locks out %s, who is logged in through %s, when no state is left of the tunnel: %s is refused by %s", o.Peer, o.Tunnel, o.Packets(), l.By)
}

func (e *LockOutError) Error() string {
	var b strings.Builder
	for i, p := range e.SSHClients {
		if i > 0 {
			b.WriteByte('\n')
		}
		b.WriteString(p.String())
	}
	b.WriteString("\n  nothing changed")
	return b.String()
}

// BySSH says that somebody's own ssh connections would be refused, and not a tunnel's
// packets alone.
func (e *LockOutError) BySSH() bool {
	return slices.ContainsFunc(e.SSHClients, func(p LockedOut) bool { return !p.SSHClient.carries() })
}

// names lists who is locked out, each once.
func (e *LockOutError) names() string {
	var names []string
	for _, p := range e.SSHClients {
		name := p.SSHClient.Remote.Addr().String()
		if p.SSHClient.carries() {
			name = fmt.Sprintf("%s, who is logged in through %s", p.SSHClient.Outer.Peer, p.SSHClient.Outer.Tunnel)
		}
		if !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return strings.Join(names, ", ")
}

// guard refuses a program under which a peer could not log in again, or the tunnel
// that it is logged in through would not come back. The connections that are open
// now would live on by their state, and prove nothing.
func (h *Host) guard(p *program.Program, peers []SSHClient) error {
	var locked []LockedOut
	told := map[SSHClient]bool{}
	for _, peer := range peers {
		key := peer
		key.Remote = netip.AddrPortFrom(peer.Remote.Addr(), 0)
		if key.Outer.Remote = netip.AddrPortFrom(peer.Outer.Remote.Addr(), 0); told[key] {
			continue
		}
		if peer.Outer.Unknown != "" {
			told[key] = true
			locked = append(locked, LockedOut{SSHClient: peer})
			continue
		}
		r, answer := judge(p, peer)
		switch {
		case !r.Certain && peer.carries():
			// Nobody could come to take it back.
			told[key] = true
			locked = append(locked, LockedOut{SSHClient: peer, Why: strings.Join(r.Doubts, "; ")})
		case !r.Certain:
			told[key] = true
			h.note("cannot determine whether %s could log in again at %s; it depends on: %s",
				peer.Remote.Addr(), peer.Local, strings.Join(r.Doubts, "; "))
		case r.Verdict != program.Accept:
			told[key] = true
			locked = append(locked, LockedOut{SSHClient: peer, By: r.Describe() + answer})
		}
	}
	if len(locked) > 0 {
		return &LockOutError{locked}
	}
	return nil
}

// judge says what happens to the first packet of a peer, or of a tunnel.
func judge(p *program.Program, peer SSHClient) (r reach.Result, answer string) {
	if peer.Outer.Begins != host.FromHere {
		r, answer = judgeFrom(p, firstOf(peer), reach.In)
		if peer.Outer.Begins != host.FromEither || r.Certain && r.Verdict == program.Accept {
			return r, answer
		}
	}
	first := firstOf(peer).Mirror()
	first.Owner, first.Reply = 0, false
	if out, back := judgeFrom(p, first, reach.Out); peer.Outer.Begins == host.FromHere || out.Certain && out.Verdict == program.Accept {
		return out, back
	}
	return r, answer
}

// judgeFrom judges a first packet, and its answer where no state says that it is
// one.
func judgeFrom(p *program.Program, first packet.Packet, way reach.Way) (r reach.Result, answer string) {
	r = reach.Evaluate(p, first, way)
	if r.Verdict != program.Accept || r.Packet.State != packet.Untracked {
		return r, ""
	}
	other := reach.Out
	if way == reach.Out {
		other = reach.In
	}
	if back := reach.Evaluate(p, answerTo(r.Packet), other); back.Verdict != program.Accept || !back.Certain {
		back.Doubts = append(back.Doubts, r.Doubts...)
		back.Certain = back.Certain && r.Certain
		return back, ", which evaluates its replies, since they are not tracked"
	}
	return r, ""
}

// firstOf is the first packet of a new connection of the peer, or of a tunnel.
func firstOf(p SSHClient) packet.Packet {
	first := packet.Packet{
		In: p.Interface, Source: p.Remote.Addr().Unmap(), Destination: p.Local.Addr().Unmap(),
		Protocol: packet.TCP, SourcePort: p.Remote.Port(), Port: p.Local.Port(),
		DestinationLocal: packet.Yes, SourceLocal: packet.No, Owner: -1,
	}
	if p.carries() {
		first.Protocol = p.Outer.Protocol
	}
	if first.Protocol == packet.TCP {
		first.Flags = packet.SYN
	}
	return first
}

// answerTo is what an untracked first packet is answered.
func answerTo(first packet.Packet) packet.Packet {
	p := first.Mirror()
	if p.Protocol == packet.TCP {
		p.Flags = packet.SYN | packet.ACK
	}
	p.Owner = 0 // who accepts connections of administrators is root
	return p
}

// MemoryError says that a policy takes more than the kernel should give.
type MemoryError struct{ Need, Available uint64 }

func (e *MemoryError) Error() string {
	return fmt.Sprintf("this policy takes about %s of kernel memory while it is loaded, of %s that are free\n  nothing changed",
		Bytes(e.Need), Bytes(e.Available))
}

// Bytes is a number of bytes for a reader.
func Bytes(n uint64) string {
	switch {
	case n >= 10<<30:
		return fmt.Sprintf("%d GiB", n>>30)
	case n >= 10<<20:
		return fmt.Sprintf("%d MiB", n>>20)
	case n >= 10<<10:
		return fmt.Sprintf("%d KiB", n>>10)
	}
	return english.Plural(n, "byte")
}

// budget is the part of the free memory that an apply may take.
const budget = 2 // half of it

// forcedConfirm is how long a policy that locks somebody out waits for the
// confirmation that nobody asked for.
const forcedConfirm = time.Minute

// admit refuses an input before anything is changed.
func (h *Host) admit(in Input, o *Options) error {
	if cost := in.Artifact.Cost(); !o.Force && tooLarge(cost, in.Memory) {
		return &MemoryError{cost.Memory, in.Memory}
	}
	return h.admitClients(in.Program, in.SSHClients, o)
}

// tooLarge says that something takes too much of the free memory, of which what
// the old sets take is gone already. None free is not known.
func tooLarge(cost backend.Cost, free uint64) bool { return free > 0 && cost.Memory > free/budget }

// admitClients refuses what locks out an ssh client. Forced, it is on trial: who is
// locked out cannot take it back.
func (h *Host) admitClients(p *program.Program, peers []SSHClient, o *Options) error {
	err := h.guard(p, peers)
	var locked *LockOutError
	if !o.Force || !errors.As(err, &locked) {
		return err
	}
	switch {
	case o.Confirm > 0:
		o.lockOut = fmt.Errorf("this policy locks out %s", locked.names())
	case o.Keep:
		o.lockOut = fmt.Errorf("this policy locks out %s, for good", locked.names())
	default:
		o.Confirm = forcedConfirm
		o.lockOut = remedied(KeepForced, fmt.Errorf("this policy locks out %s, so it is rolled back in %.0fs unless it is confirmed", locked.names(), forcedConfirm.Seconds()))
	}
	return nil
}

// program loads what a generation was lowered from.
func (s store) program(g *Generation) (*program.Program, error) {
	data, err := s.whole(g.Program)
	if err != nil {
		return nil, fmt.Errorf("generation %d: %w", g.Number, err)
	}
	p, err := decodeProgram(data)
	if err != nil {
		return nil, fmt.Errorf("generation %d: %w", g.Number, err)
	}
	return p, nil
}
