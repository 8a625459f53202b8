// Package hub keeps the streams of a fleet's agents: one a host. The controller calls it.
//
// What it tells is level-triggered: each kind of message has one slot a host, where the
// latest wins, so a slow agent costs no queue. Bans and allows keep their order; an agent that
// is too slow for them is told to ask. At rest a stream has one goroutine and one
// timer. What an agent says is handed on in its order, and Joined of a host never comes
// before Left of its stream before.
package hub

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"sluice/internal/fleet/wire"
)

const (
	helloWait   = 10 * time.Second // for the first message
	pingEvery   = 30 * time.Second
	pongWait    = 12 * time.Second // so that a stream is cut after 45 s of silence
	pingSlack   = 3 * time.Second  // for the ping of an agent, which makes one from here needless
	writeWait   = 10 * time.Second
	claimWait   = 5 * time.Second // for the answer of a stream whose host connects again
	refuseWait  = time.Second
	mostSaid    = 20 // messages a second of an agent
	mostAtOnce  = 100
	drainPeriod = 30 * time.Second // at most, over which agents come back
	drainPace   = 100              // agents a second that come back, where that takes no longer
)

// Options are what the hub calls. Calls for one host come one at a time, and hold up what
// this host says next.
type Options struct {
	Joined func(host string, hello *wire.Hello, level int) // of the protocol
	Said   func(host string, m *wire.Message)
	// Answered says whether a piece of an answer was waited for. One that was not counts as said.
	Answered func(host string, a *wire.Piece) bool
	Left     func(host string)
	Claimed  func(host string, by, has netip.Addr) // a second agent was refused, which has the same key
}

// Hub keeps the streams.
type Hub struct {
	options Options

	mutex    sync.Mutex
	seats    map[string]*seat
	draining bool
	empty    chan struct{} // closed once it drains and has no stream
}

// New is a hub without streams.
func New(options Options) *Hub {
	return &Hub{options: options, seats: map[string]*seat{}, empty: make(chan struct{})}
}

// Slot is a kind of message to an agent. The lower one goes first.
type Slot int

// Slots.
const (
	Trust Slot = iota
	Desired
	Ask
	drain
	slots
)

// seat is the stream that a host has.
type seat struct {
	host, instance string
	from           netip.Addr
	since          time.Time
	conn           *wire.Conn
	pings          *time.Timer
	gone           chan struct{} // its reader has ended

	mutex   sync.Mutex
	slots   [slots][]byte
	writing bool
	live    [][]byte // in their order
	follows bool     // what is told to all by LiveAll
	asked   []*asked // in their order
}

// Serve is the life of a stream, of the host that its certificate names. It returns why the
// stream has ended.
func (h *Hub) Serve(conn *wire.Conn, host string, from netip.Addr) error {
	defer conn.Cut()
	hello, err := greeting(conn)
	if err != nil {
		return err
	}
	s := &seat{host: host, instance: hello.Instance, from: from, since: time.Now(), conn: conn, gone: make(chan struct{})}
	if refused := h.claim(s); refused != nil {
		refuse(conn, refused)
		return refused
	}
	s.pings = time.AfterFunc(pingEvery+pingSlack, s.ping)
	defer h.leave(s)
	h.options.Joined(host, hello, conn.Level())
	said := rate.NewLimiter(mostSaid, mostAtOnce)
	for {
		m, err := conn.Receive(context.Background())
		if err != nil {
			return err
		}
		if m.Answer != nil && h.options.Answered != nil && h.options.Answered(host, m.Answer) {
			continue
		}
		if !said.Allow() {
			refused := &wire.Failure{Text: fmt.Sprintf("%s sends more than %d messages a second", host, mostSaid), Kind: wire.KindBusy}
			refuse(conn, refused)
			return refused
		}
		if m.Answer == nil {
			h.options.Said(host, m)
		}
	}
}

func greeting(conn *wire.Conn) (*wire.Hello, error) {
	ctx, cancel := context.WithTimeout(context.Background(), helloWait)
	defer cancel()
	m, err := conn.Receive(ctx)
	switch {
	case err != nil:
		return nil, err
	case m.Hello == nil:
		refused := &wire.Failure{Text: "the first message of an agent is hello", Kind: wire.KindBadRequest}
		refuse(conn, refused)
		return nil, refused
	}
	return m.Hello, nil
}

func refuse(conn *wire.Conn, f *wire.Failure) {
	ctx, cancel := context.WithTimeout(context.Background(), refuseWait)
	defer cancel()
	_ = conn.Send(ctx, &wire.Message{Refused: f})
}

// claim puts a stream in place of its host. The stream before is dead where it does
// not answer, and it is the same agent's where the instance is the same; otherwise there
// are two hosts.
func (h *Hub) claim(s *seat) *wire.Failure {
	for {
		h.mutex.Lock()
		if h.draining {
			h.mutex.Unlock()
			return &wire.Failure{Text: "this controller is ending", Kind: wire.KindUnavailable}
		}
		old := h.seats[s.host]
		if old == nil {
			h.seats[s.host] = s
			h.mutex.Unlock()
			return nil
		}
		h.mutex.Unlock()
		if old.instance != s.instance && old.answers() {
			if h.options.Claimed != nil {
				h.options.Claimed(s.host, s.from, old.from)
			}
			return &wire.Failure{Text: fmt.Sprintf("two hosts claim %s: this one, from %s, and the one at %s that is connected; if this is a copy of it, enrol it again under a name of its own", s.host, s.from, old.from), Kind: wire.KindTaken}
		}
		old.conn.Cut()
		<-old.gone
	}
}

func (s *seat) answers() bool {
	ctx, cancel := context.WithTimeout(context.Background(), claimWait)
	defer cancel()
	return s.conn.Ping(ctx) == nil
}

func (h *Hub) leave(s *seat) {
	s.conn.Cut()
	s.pings.Stop()
	h.options.Left(s.host)
	h.mutex.Lock()
	delete(h.seats, s.host)
	h.emptied()
	h.mutex.Unlock()
	close(s.gone)
}

// emptied is called with the mutex.
func (h *Hub) emptied() {
	if h.draining && len(h.seats) == 0 {
		close(h.empty)
	}
}

func (s *seat) ping() {
	if silent := s.conn.Silent(); silent < pingEvery {
		s.again(pingEvery + pingSlack - silent)
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), pongWait)
	defer cancel()
	if s.conn.Ping(ctx) != nil {
		s.conn.Cut()
		return
	}
	s.again(pingEvery)
}

func (s *seat) again(in time.Duration) {
	select {
	case <-s.gone:
	default:
		s.pings.Reset(in)
	}
}

func (h *Hub) seat(host string) *seat {
	h.mutex.Lock()
	defer h.mutex.Unlock()
	return h.seats[host]
}

// Tell puts an encoded message into a slot of a host, over one that is still there. It says
// whether the host is connected.
func (h *Hub) Tell(host string, slot Slot, message []byte) bool {
	s := h.seat(host)
	if s != nil {
		s.put(slot, message)
	}
	return s != nil
}

// TellAll puts it into that slot of each host.
func (h *Hub) TellAll(slot Slot, message []byte) {
	for _, s := range h.all() {
		s.put(slot, message)
	}
}

func (h *Hub) all() []*seat {
	h.mutex.Lock()
	defer h.mutex.Unlock()
	all := make([]*seat, 0, len(h.seats))
	for _, s := range h.seats {
		all = append(all, s)
	}
	return all
}

func (s *seat) put(slot Slot, message []byte) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	s.slots[slot] = message
	s.wake()
}

// wake is called with the mutex.
func (s *seat) wake() {
	if !s.writing {
		s.writing = true
		go s.write()
	}
}

// write empties the slots.
func (s *seat) write() {
	for {
		message := s.take()
		if message == nil {
			return
		}
		ctx, cancel := context.WithTimeout(context.Background(), writeWait)
		err := s.conn.SendEncoded(ctx, message)
		cancel()
		if err != nil {
			s.conn.Cut() // and writing stays: nothing is written any more
			return
		}
	}
}

func (s *seat) take() []byte {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	for i, message := range s.slots {
		if message != nil {
			s.slots[i] = nil
			return message
		}
	}
	if len(s.live) > 0 {
		message := s.live[0]
		if s.live = s.live[1:]; message == nil {
			message = asksLive
		}
		return message
	}
	for len(s.asked) > 0 {
		is := s.asked[0]
		s.asked = s.asked[1:]
		if message := is.encoded(); message != nil {
			return message
		}
	}
	s.writing = false
	return nil
}

// mostAsked is how many questions, and paces of their answers, wait for an agent before it is
// asked no more.
const mostAsked = 256

// asked is a question, or how the answer to one goes on.
type asked struct {
	question []byte
	pace     wire.Pace // where there is no question
}

func (a *asked) encoded() []byte {
	if a.question != nil {
		return a.question
	}
	message, err := wire.Encode(&wire.Message{Pace: &a.pace})
	if err != nil {
		return nil // it is of no question
	}
	return message
}

// Question tells a host what it is asked, behind all else, in the order of the calls. It says
// whether the host is connected and keeps up.
func (h *Hub) Question(host string, message []byte) bool {
	s := h.seat(host)
	if s == nil {
		return false
	}
	s.mutex.Lock()
	defer s.mutex.Unlock()
	if len(s.asked) >= mostAsked {
		return false
	}
	s.asked = append(s.asked, &asked{question: message})
	s.wake()
	return true
}

// Pace tells a host how the answer to a question goes on, behind the question. It always has
// room: what waits of one question is one message.
func (h *Hub) Pace(host string, p wire.Pace) {
	s := h.seat(host)
	if s == nil {
		return
	}
	s.mutex.Lock()
	defer s.mutex.Unlock()
	for _, is := range s.asked {
		if is.question == nil && is.pace.Id == p.Id {
			is.pace.Pieces = min(is.pace.Pieces+p.Pieces, wire.Pieces)
			is.pace.Cancel = is.pace.Cancel || p.Cancel
			return
		}
	}
	s.asked = append(s.asked, &asked{pace: p})
	s.wake()
}

// mostLive is how many messages of bans and allows wait for an agent.
const mostLive = 16

// asksLive has an agent ask for the bans and allows that it lacks.
var asksLive = []byte(`{"live":{}}`)

// Live tells a host of bans and allows, behind what it was told of them before; nil has it
// ask for what it lacks. From then on it is told by LiveAll.
func (h *Hub) Live(host string, message []byte) {
	if s := h.seat(host); s != nil {
		s.mutex.Lock()
		defer s.mutex.Unlock()
		s.follows = true
		s.follow(message)
	}
}

// LiveAll tells it to each host that Live was called for.
func (h *Hub) LiveAll(message []byte) {
	for _, s := range h.all() {
		s.mutex.Lock()
		if s.follows {
			s.follow(message)
		}
		s.mutex.Unlock()
	}
}

// follow is called with the mutex. Of what an agent will ask for nothing has to wait.
func (s *seat) follow(message []byte) {
	if len(s.live) > 0 && s.live[len(s.live)-1] == nil {
		return
	}
	if s.live = append(s.live, message); len(s.live) > mostLive || message == nil {
		s.live = [][]byte{nil}
	}
	s.wake()
}

// Cut ends the stream of a host, which is told why if it listens.
func (h *Hub) Cut(host string, why *wire.Failure) {
	if s := h.seat(host); s != nil {
		refuse(s.conn, why)
		s.conn.Cut()
	}
}

// Presence is where and since when a host is connected.
type Presence struct {
	From  netip.Addr
	Since time.Time
}

// Online is the hosts that are connected.
func (h *Hub) Online() map[string]Presence {
	h.mutex.Lock()
	defer h.mutex.Unlock()
	online := make(map[string]Presence, len(h.seats))
	for host, s := range h.seats {
		online[host] = Presence{s.from, s.since}
	}
	return online
}

// comeBack is within how long so many agents are to come back.
func comeBack(agents int) time.Duration {
	return min(drainPeriod, time.Duration(1+agents/drainPace)*time.Second)
}

// Drain takes no more streams, tells agents to come back within 30 s at most, each after a
// time of its own, and waits until they have left. Once ctx is done it cuts those that have
// not.
func (h *Hub) Drain(ctx context.Context) error {
	h.mutex.Lock()
	if h.draining {
		h.mutex.Unlock()
		return errors.New("the hub is draining already")
	}
	h.draining = true
	within := comeBack(len(h.seats))
	h.emptied()
	h.mutex.Unlock()
	message, err := wire.Encode(&wire.Message{Drain: &wire.Drain{WithinSeconds: int(within.Seconds())}})
	if err != nil {
		return err
	}
	h.TellAll(drain, message)
	select {
	case <-h.empty:
	case <-ctx.Done():
		for _, s := range h.all() {
			s.conn.Cut()
		}
		<-h.empty
	}
	return nil
}
