package faults

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	agent "sluice/internal/agent/fleet"
	"sluice/internal/fleet/wire"
)

// link is the way between a host and controllers.
type link struct {
	f    *fleet
	host *host

	mutex   sync.Mutex
	healed  chan struct{} // closed when it is not cut any more
	conns   map[*cable]bool
	streams map[*stream]bool
	caught  []wire.Desired // what this host was told, for whoever replays it
	bundle  int64          // that it was told last, and since when
	since   time.Time
	lied    bool
}

const latency = 5 * time.Millisecond

// addressOf is that of host n, or of a controller: 1 and 2.
func addressOf(n byte) netip.AddrPort {
	return netip.AddrPortFrom(netip.AddrFrom4([4]byte{192, 0, 2, n}), 7443)
}

// cut has nothing come through for a while, in either direction.
func (l *link) cut(d time.Duration) {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	if l.healed != nil {
		return
	}
	healed := make(chan struct{})
	l.healed = healed
	time.AfterFunc(d, func() { l.uncut(healed) })
}

func (l *link) uncut(healed chan struct{}) {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	if l.healed == healed && healed != nil {
		close(healed)
		l.healed = nil
	}
}

// through waits until something comes through, or the connection is closed.
func (l *link) through(closed <-chan struct{}) error {
	for {
		l.mutex.Lock()
		healed := l.healed
		l.mutex.Unlock()
		if healed == nil {
			return nil
		}
		select {
		case <-healed:
		case <-closed:
			return net.ErrClosed
		}
	}
}

// cable is one end of a connection. What is written waits, as in the buffer of a socket,
// for as long as nothing comes through.
type cable struct {
	net.Conn

	link   *link
	to     *seat
	peer   netip.AddrPort
	out    chan []byte
	closed chan struct{}
	once   sync.Once
}

func (l *link) newCable(c net.Conn, to *seat, peer netip.AddrPort) *cable {
	end := &cable{Conn: c, link: l, to: to, peer: peer, out: make(chan []byte, 4096), closed: make(chan struct{})}
	go end.carry()
	return end
}

// connect is a host's dialer.
func (l *link) connect(ctx context.Context, _, to string) (net.Conn, error) {
	at := l.f.seats[slices.IndexFunc(l.f.seats, func(s *seat) bool { return s.address() == to })]
	l.f.mutex.Lock()
	r := at.run
	l.f.mutex.Unlock()
	if r == nil {
		return nil, errCut
	}
	if err := l.through(ctx.Done()); err != nil {
		return nil, ctx.Err()
	}
	a, b := net.Pipe()
	mine, theirs := l.newCable(a, at, addressOf(byte(at.number))), l.newCable(b, at, addressOf(l.host.number))
	select {
	case r.listener.conns <- theirs:
	case <-r.listener.closed:
		_ = mine.Close()
		_ = theirs.Close()
		return nil, errCut
	case <-ctx.Done():
		_ = mine.Close()
		_ = theirs.Close()
		return nil, ctx.Err()
	}
	l.mutex.Lock()
	l.conns[mine], l.conns[theirs] = true, true
	l.mutex.Unlock()
	return mine, nil
}

func (c *cable) carry() {
	for {
		select {
		case <-c.closed:
			return
		case b := <-c.out:
			if c.link.through(c.closed) != nil {
				return
			}
			if _, err := c.Conn.Write(b); err != nil {
				_ = c.Close()
			}
		}
	}
}

func (c *cable) Write(b []byte) (int, error) {
	select {
	case <-c.closed:
		return 0, net.ErrClosed
	case c.out <- bytes.Clone(b):
		return len(b), nil
	}
}

// Close breaks it, after what was written has had time to come through.
func (c *cable) Close() error {
	c.once.Do(func() {
		c.link.mutex.Lock()
		delete(c.link.conns, c)
		c.link.mutex.Unlock()
		time.AfterFunc(latency, func() {
			close(c.closed)
			_ = c.Conn.Close()
		})
		_ = c.SetReadDeadline(time.Now())
	})
	return nil
}

func (c *cable) SetDeadline(t time.Time) error    { return c.SetReadDeadline(t) }
func (c *cable) SetWriteDeadline(time.Time) error { return nil }
func (c *cable) RemoteAddr() net.Addr             { return net.TCPAddrFromAddrPort(c.peer) }

// breakAll breaks each connection to a controller; nil: to all.
func (l *link) breakAll(to *seat) {
	l.mutex.Lock()
	conns := maps.Clone(l.conns)
	l.mutex.Unlock()
	for c := range conns {
		if to == nil || c.to == to {
			_ = c.Close()
		}
	}
}

func (l *link) all() []*stream {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	var all []*stream
	for s := range l.streams {
		all = append(all, s)
	}
	return all
}

func (l *link) cutStreams() {
	for _, s := range l.all() {
		s.Cut()
	}
}

// heal ends what is wrong. A stream that lost something is known to be broken by now.
func (l *link) heal() {
	l.mutex.Lock()
	healed := l.healed
	l.mutex.Unlock()
	l.uncut(healed)
	for _, s := range l.all() {
		s.mutex.Lock()
		lost := s.lost
		s.mutex.Unlock()
		if lost {
			s.Cut()
		}
	}
}

// lie has a thief of a controller's keys, or the network's memory, say something.
func (l *link) lie() {
	l.f.mutex.Lock()
	newest := int64(len(l.f.texts))
	l.f.mutex.Unlock()
	l.mutex.Lock()
	caught := l.caught
	l.lied = l.lied || len(caught) > 0
	l.mutex.Unlock()
	if len(caught) == 0 {
		return
	}
	for _, s := range l.all() {
		for _, lie := range l.f.mixed(lies) {
			d := caught[len(caught)-1]
			switch lie {
			case "order forged":
				d.Bundle, d.Rollout = newest+50, 999
			case "order of an old bundle forged":
				d.Bundle, d.Rollout = 1, 998
			case "members forged":
				d.Members, d.Blobs = l.forge(d.Order.Revision)
			case "order replayed":
				d = caught[l.f.below(len(caught))]
			}
			l.f.fault(lie, l.host)
			s.lose()
			s.hand(&wire.Message{Desired: &d}, true)
		}
	}
}

// lies are what lie says.
var lies = []string{"order forged", "order of an old bundle forged", "members forged", "order replayed"}

// stream is one stream of an agent, of which messages are lost, doubled and overtaken by
// others while there are faults.
type stream struct {
	agent.Stream
	*link

	up   chan *wire.Message
	in   chan *wire.Message
	over chan struct{}
	once sync.Once
	lost bool
}

// Dial is the agent's.
func (l *link) Dial(ctx context.Context) (agent.Stream, error) {
	inner, err := l.host.network.Dial(ctx)
	if err != nil {
		return nil, err
	}
	s := &stream{Stream: inner, link: l, up: make(chan *wire.Message, 1024), in: make(chan *wire.Message, 1024), over: make(chan struct{})}
	l.mutex.Lock()
	l.streams[s] = true
	l.mutex.Unlock()
	down := make(chan *wire.Message)
	go func() {
		defer s.Cut()
		for {
			m, err := inner.Receive(context.Background())
			if err != nil {
				return
			}
			if m.Desired != nil {
				l.mutex.Lock()
				l.caught = append(l.caught, *m.Desired)
				l.mutex.Unlock()
			}
			select {
			case down <- m:
			case <-s.over:
				return
			}
		}
	}()
	go s.carry(down, s.deliver)
	go s.carry(s.up, func(m *wire.Message) {
		ctx, stop := context.WithTimeout(context.Background(), 10*time.Second)
		defer stop()
		if inner.Send(ctx, m) != nil {
			s.Cut()
		}
	})
	return s, nil
}

// carry brings messages to the other side, in their order while nothing is wrong.
func (s *stream) carry(from <-chan *wire.Message, to func(*wire.Message)) {
	for {
		select {
		case <-s.over:
			return
		case m := <-from:
			time.Sleep(latency)
			switch {
			case !s.f.faults() || m.Hello != nil: // a stream without a hello ends at once
				to(m)
			case s.f.chance(12):
				s.f.fault("message lost", s.host)
				s.lose()
			case s.f.chance(12):
				s.f.fault("message doubled", s.host)
				to(m)
				to(m)
			case s.f.chance(8):
				s.f.fault("message late", s.host)
				s.lose() // to what came first, it is as good as lost
				time.AfterFunc(s.f.upTo(10*time.Second), func() { to(m) })
			default:
				to(m)
			}
		}
	}
}

func (s *stream) lose() {
	s.mutex.Lock()
	s.lost = true
	s.mutex.Unlock()
}

// deliver hands a message of a controller to the agent.
func (s *stream) deliver(m *wire.Message) { s.hand(m, false) }

// hand hands a message to the agent, and records what it has been told.
func (s *stream) hand(m *wire.Message, lie bool) {
	select {
	case <-s.over:
		return
	default:
	}
	if d := m.Desired; d != nil {
		s.told(d, lie)
	}
	if m.Trust != nil {
		s.heard(m.Trust)
	}
	select {
	case s.in <- m:
	default:
		s.Cut()
	}
}

func (l *link) told(d *wire.Desired, lie bool) {
	l.f.history.Add(Event{Kind: Told, Host: l.host.id, Order: d.Order, Bundle: d.Bundle, RolloutID: d.Rollout, Lie: lie})
	l.mutex.Lock()
	defer l.mutex.Unlock()
	if l.bundle != d.Bundle {
		l.bundle, l.since = d.Bundle, time.Now()
	}
}

// heard records the floor of what is signed. A host takes metadata that is not older
// than what it has.
func (l *link) heard(t *wire.Trust) {
	_, field, _ := strings.Cut(string(t.Targets), `"floor":`)
	var floor int64
	_, _ = fmt.Sscan(field, &floor) // none is 0
	l.f.history.Add(Event{Kind: Heard, Host: l.host.id, Floor: floor})
}

// Send is the agent's.
func (s *stream) Send(ctx context.Context, m *wire.Message) error {
	if m.Report != nil && m.Report.Order != (wire.Order{}) {
		s.f.history.Add(Event{Kind: Took, Host: s.host.id, Order: m.Report.Order})
	}
	select {
	case <-s.over:
		return errCut
	case s.up <- m:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Receive is the agent's.
func (s *stream) Receive(ctx context.Context) (*wire.Message, error) {
	select {
	case m := <-s.in:
		return m, nil
	case <-s.over:
		return nil, errors.New("the stream is over")
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// Cut ends the stream on both sides.
func (s *stream) Cut() {
	s.once.Do(func() {
		s.link.mutex.Lock()
		delete(s.streams, s)
		s.link.mutex.Unlock()
		close(s.over)
		s.Stream.Cut()
	})
}
