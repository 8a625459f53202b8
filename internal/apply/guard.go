package apply

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"sluice/internal/backend"
	"sluice/internal/packet"
	"sluice/internal/program"
	"sluice/internal/reach"
)

// Peer is somebody who manages the host over ssh at this moment.
type Peer struct {
	Remote, Local netip.AddrPort
	Interface     string // that its packets come in by, "" is unknown
}

// LockOutError says whom a policy would lock out.
type LockOutError struct{ Peers []LockedOut }

// LockedOut is one peer whose new connections would fail.
type LockedOut struct {
	Peer Peer
	By   string // the rule or default that drops them
}

func (e *LockOutError) Error() string {
	var b strings.Builder
	for i, p := range e.Peers {
		if i > 0 {
			b.WriteByte('\n')
		}
		fmt.Fprintf(&b, "this policy locks out %s, who is logged in: a new connection to %s is refused by %s",
			p.Peer.Remote.Addr(), p.Peer.Local, p.By)
	}
	b.WriteString("\n  nothing changed")
	b.WriteString("\n  hint: allow ssh from there, or give --force, which takes the policy back unless it is confirmed in time")
	return b.String()
}

// names lists who is locked out, each once.
func (e *LockOutError) names() string {
	var names []string
	for _, p := range e.Peers {
		if name := p.Peer.Remote.Addr().String(); !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return strings.Join(names, ", ")
}

// guard refuses a program under which a peer could not log in again. The
// connection that is open now would live on by its state, and prove nothing.
func (h *Host) guard(p *program.Program, peers []Peer) error {
	var locked []LockedOut
	told := map[string]bool{}
	for _, peer := range peers {
		r, answer := reach.Evaluate(p, handshake(peer), reach.In), ""
		if r.Verdict == program.Accept && r.Packet.State == packet.Untracked {
			// No state says that it is an answer: the rules of output decide.
			if back := reach.Evaluate(p, handshakeAnswer(r.Packet), reach.Out); back.Verdict != program.Accept || !back.Certain {
				back.Doubts = append(back.Doubts, r.Doubts...)
				back.Certain = back.Certain && r.Certain
				r, answer = back, ", which its answers meet, since they are not tracked"
			}
		}
		key := peer.Remote.Addr().String() + " " + peer.Local.String() + " " + peer.Interface
		switch {
		case told[key]:
		case !r.Certain:
			told[key] = true
			h.note("it cannot be told whether %s could log in again at %s; it hangs on: %s",
				peer.Remote.Addr(), peer.Local, strings.Join(r.Doubts, "; "))
		case r.Verdict != program.Accept:
			told[key] = true
			locked = append(locked, LockedOut{peer, r.Describe() + answer})
		}
	}
	if len(locked) > 0 {
		return &LockOutError{locked}
	}
	return nil
}

// handshake is the first packet of a new connection of the peer.
func handshake(p Peer) packet.Packet {
	return packet.Packet{
		In: p.Interface, Source: p.Remote.Addr().Unmap(), Destination: p.Local.Addr().Unmap(),
		Protocol: packet.TCP, SourcePort: p.Remote.Port(), Port: p.Local.Port(), Flags: packet.SYN,
		DestinationLocal: packet.Yes, SourceLocal: packet.No, Owner: -1,
	}
}

// handshakeAnswer is what the host answers to an untracked first packet.
func handshakeAnswer(first packet.Packet) packet.Packet {
	p := first.Mirror()
	p.Flags = packet.SYN | packet.ACK
	p.Owner = 0 // who accepts connections of administrators is root
	return p
}

// MemoryError says that a policy takes more than the kernel should give.
type MemoryError struct{ Need, Available uint64 }

func (e *MemoryError) Error() string {
	return fmt.Sprintf("this policy takes about %s of kernel memory while it is loaded, of %s that are free\n  nothing changed\n  hint: --force loads it all the same",
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
	return fmt.Sprintf("%d bytes", n)
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
	return h.admitPeers(in.Program, in.Peers, o)
}

// tooLarge says that something takes too much of the free memory, of which what
// the old sets take is gone already. None free is not known.
func tooLarge(cost backend.Cost, free uint64) bool { return free > 0 && cost.Memory > free/budget }

// admitPeers refuses what locks out a peer. Forced, it is on trial: who is
// locked out cannot take it back.
func (h *Host) admitPeers(p *program.Program, peers []Peer, o *Options) error {
	err := h.guard(p, peers)
	var locked *LockOutError
	if !o.Force || !errors.As(err, &locked) {
		return err
	}
	switch {
	case o.Confirm > 0:
		o.lockOut = fmt.Sprintf("this policy locks out %s", locked.names())
	case o.Keep:
		o.lockOut = fmt.Sprintf("this policy locks out %s, for good", locked.names())
	default:
		o.Confirm = forcedConfirm
		o.lockOut = fmt.Sprintf("this policy locks out %s, so it goes back in %.0fs unless it is confirmed; --no-confirm keeps it", locked.names(), forcedConfirm.Seconds())
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
