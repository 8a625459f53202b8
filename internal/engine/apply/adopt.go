package apply

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"time"

	"sluice/internal/backend"
	"sluice/internal/base/packet"
	"sluice/internal/program"
	"sluice/internal/prove/reach"
	"sluice/internal/system/kernel/conntrack"
	"sluice/internal/system/kernel/socket"
	"sluice/internal/system/kernel/sysctl"
)

// Connections that run when tracking begins have no entries, and the next packet from
// outside would be refused as one of no connection. Those of the host's own sockets get
// their entries before the switch. Of those that it forwards nobody knows; they have the
// time of the policy's grace to send a packet, which the kernel ends (see Passing).

// Adopted is what was done for connections that ran before they were tracked.
type Adopted struct {
	Entries int `json:"entries"` // that were made for the host's own connections
	// Grace is for how many seconds from the switch on TCP passes that belongs to no
	// known connection and opens none; 0: it was not begun. Own says of the host's own
	// connections that they need it too, since not all of their entries could be made.
	Grace float64 `json:"grace"`
	Own   bool    `json:"own,omitempty"`
}

// Text is the same for a reader; "" where nothing was done.
func (a *Adopted) Text() string {
	if a == nil {
		return ""
	}
	text := ""
	if a.Entries == 1 {
		text = "connection tracking knows 1 earlier connection of this host"
	} else if a.Entries > 1 {
		text = fmt.Sprintf("connection tracking knows %d earlier connections of this host", a.Entries)
	}
	if a.Grace > 0 {
		if text != "" {
			text += "; "
		}
		which := "through this host"
		if a.Own {
			which = "from before"
		}
		text += fmt.Sprintf("connections %s have %s to send a packet; unknown connections are then refused", which, time.Duration(a.Grace*float64(time.Second)))
	}
	return text
}

// adoption is how one change treats connections that run.
type adoption struct {
	Adopted
	program *program.Program
	known   map[conntrack.Tuple]bool // that have their entries
}

// passing is the wanted artifact such that connections which run pass the switch; it
// keeps what is to be done for them.
func (s *session) passing(want backend.Artifact, have backend.State, c change) backend.Artifact {
	s.adoption = nil
	p, is := want.(backend.Passing)
	if !is || c.to == nil {
		return want
	}
	own, forwarded := p.Begins(have)
	forwarded = forwarded && forwards()
	if !own && !forwarded {
		if left := c.grace.left(); left > 0 {
			return p.Passing(c.grace.Own, c.grace.Forwarded, left)
		}
		return want
	}
	s.adoption = &adoption{program: c.program, known: map[conntrack.Tuple]bool{}}
	if s.adoption.program == nil {
		var err error
		if s.adoption.program, err = s.program(c.to); err != nil {
			s.noEntries = true
		}
	}
	s.adoption.Own = s.noEntries
	if s.noEntries || forwarded {
		s.adoption.Grace = p.Grace().Seconds()
	}
	return p.Passing(s.noEntries, forwarded, p.Grace())
}

// withTrack puts the step that makes entries before the first one that switches.
func (s *session) withTrack(steps []backend.Step) []backend.Step {
	at := slices.IndexFunc(steps, func(step backend.Step) bool { return step.Purpose == backend.Switch })
	if s.adoption == nil || at < 0 {
		s.adoption = nil
		return steps
	}
	return slices.Insert(slices.Clone(steps), at, backend.Step{Purpose: backend.Track, Name: "open connections of this host", Transaction: tracking{s}})
}

// graceLeft is for how many seconds connections still pass that nobody knows.
func graceLeft(have backend.State) float64 {
	if t, is := have.(backend.Transitional); is {
		return t.Grace().Seconds()
	}
	return 0
}

// passage is the rest of a grace, which comes back with what it was of.
type passage struct {
	Deadline  int64 `json:"deadline"` // by CLOCK_BOOTTIME, ns
	Own       bool  `json:"own,omitempty"`
	Forwarded bool  `json:"forwarded,omitempty"`
}

// passageOf is what is left of the grace of a state; nil where there is none.
func passageOf(have backend.State) *passage {
	t, is := have.(backend.Transitional)
	if !is || t.Grace() == 0 {
		return nil
	}
	p := passage{Deadline: boottime() + int64(t.Grace())}
	p.Own, p.Forwarded = t.Passes()
	return &p
}

func (p *passage) left() time.Duration {
	if p == nil {
		return 0
	}
	return max(0, time.Duration(p.Deadline-boottime()))
}

// forwards says whether connections through this host can run: whether the namespace
// forwards packets and has an interface that is up, as it has none at boot when rules
// are loaded ahead of the network. What cannot be asked counts as yes.
func forwards() bool {
	up := func(i net.Interface) bool { return i.Flags&(net.FlagUp|net.FlagLoopback) == net.FlagUp }
	if list, err := net.Interfaces(); err == nil && !slices.ContainsFunc(list, up) {
		return false
	}
	for _, name := range []string{"net.ipv4.ip_forward", "net.ipv6.conf.all.forwarding"} {
		if value, err := sysctl.Read(name); err != nil || value != "0" {
			return true
		}
	}
	return false
}

// tracking is the step that makes entries.
type tracking struct{ *session }

// Take makes them, in connection tracking and not in the rules.
func (t tracking) Take(context.Context) error { return t.adoptConnections() }

// Text says nothing: no rule changes.
func (tracking) Text() string { return "" }

// adoptConnections makes the entries of the host's own connections that have none. Where that
// fails the change is planned again, with a grace for them.
func (s *session) adoptConnections() error {
	if s.adoption.program == nil {
		return nil
	}
	flows, err := s.adoption.flows()
	if err == nil {
		var made int
		made, err = conntrack.Adopt(flows)
		s.adoption.Entries += made
	}
	if err == nil {
		for _, f := range flows {
			s.adoption.known[f.Original] = true
		}
		return nil
	}
	if s.noEntries {
		return nil // there is a grace for them
	}
	s.note("open connections of this host cannot get entries in advance: %v", err)
	s.noEntries = true
	return fmt.Errorf("%w: %w", backend.ErrChanged, err)
}

// adoptLate is adoptConnections behind the switch, for connections that happened meanwhile.
func (s *session) adoptLate() {
	if s.adoption != nil && !s.noEntries {
		_ = s.adoptConnections() // it says itself why it failed
		s.noEntries = false
	}
}

// The states of a socket that sends or receives data, as the kernel numbers them
// (include/net/tcp_states.h).
const (
	finWait1, finWait2, closeWait socket.State = 4, 5, 8
)

// flows are the connections of the host's own sockets that the program tracks and that
// are not known so far. Those of banned addresses end, and what the host says to itself
// needs no entry.
func (a *adoption) flows() ([]conntrack.Flow, error) {
	sockets, err := socket.TCP()
	if err != nil {
		return nil, err
	}
	local, err := localAddresses()
	if err != nil {
		return nil, err
	}
	listens := map[uint16][]netip.Addr{}
	for _, k := range sockets {
		if k.State == socket.Listen {
			listens[k.Local.Port()] = append(listens[k.Local.Port()], k.Local.Addr())
		}
	}
	banned := bannedFlows(a.program)
	untracked := a.untracked(local)
	established, closing := conntrack.TCPSeconds()
	var out []conntrack.Flow
	for _, k := range sockets {
		f := conntrack.Flow{Protocol: packet.TCP, Answered: true, Seconds: established}
		switch k.State {
		case socket.Established:
		case finWait1, finWait2, closeWait:
			f.Closing, f.Seconds = true, closing
		default:
			continue
		}
		there := k.Remote.Addr().WithZone("")
		here := k.Local.Addr().WithZone("")
		if there.IsLoopback() || local[there] || banned.Contains(there) {
			continue
		}
		f.Original = conntrack.Tuple{Source: here, SourcePort: k.Local.Port(), Destination: there, DestinationPort: k.Remote.Port()}
		if slices.ContainsFunc(listens[k.Local.Port()], func(at netip.Addr) bool { return at.IsUnspecified() || at == k.Local.Addr() }) {
			f.Original = f.Original.Turned() // who listens was called
		}
		if !a.known[f.Original] && !untracked(f.Original, k.Local) {
			out = append(out, f)
		}
	}
	return out, nil
}

// untracked says of flows whether the program keeps them out of tracking, which their
// end at this host decides.
func (a *adoption) untracked(local map[netip.Addr]bool) func(conntrack.Tuple, netip.AddrPort) bool {
	if !bypasses(a.program) {
		return func(conntrack.Tuple, netip.AddrPort) bool { return false }
	}
	type end struct {
		at  netip.AddrPort
		way reach.Way
	}
	known := map[end]bool{}
	return func(t conntrack.Tuple, at netip.AddrPort) bool {
		first, way := firstPacket(conntrack.Entry{Protocol: packet.TCP, Original: t, Reply: t.Turned()}, local)
		is, told := known[end{at, way}]
		if !told {
			r := reach.Evaluate(a.program, first, way)
			is = len(r.Doubts) == 0 && r.Packet.State == packet.Untracked
			known[end{at, way}] = is
		}
		return is
	}
}
