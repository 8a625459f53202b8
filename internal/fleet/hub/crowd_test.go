package hub

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"sluice/internal/fleet/wire"
)

func TestFlood(t *testing.T) {
	t.Parallel()
	inTime(t, func(t *testing.T, h *Hub, told *told, dial func(string) agent) {
		c := dial("web-1")
		got := listen(c.Conn)
		hello(t, c.Conn, "a")
		report := &wire.Message{Report: &wire.Report{State: wire.StateProved}}
		for range 60 * mostSaid { // at what is allowed
			if err := c.Send(t.Context(), report); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Second / mostSaid)
		}
		n := 0
		for c.Send(t.Context(), report) == nil && n < 10*mostAtOnce {
			n++
		}
		if n > mostAtOnce+2 {
			t.Errorf("%d messages at once are taken", n)
		}
		if m := <-got; m == nil || m.Refused == nil || m.Refused.Kind != wire.KindBusy {
			t.Errorf("the message is %v, want busy", m)
		}
	})
}

func TestPaced(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		network := &memory{make(chan net.Conn), make(chan struct{})}
		l := Paced(network, 10_000)
		go func() {
			for {
				a, b := net.Pipe()
				select {
				case network.conns <- a:
					_ = b.Close()
				case <-network.done:
					return
				}
			}
		}()
		began := time.Now()
		for range 2 * Handshakes {
			if _, err := l.Accept(); err != nil {
				t.Fatal(err)
			}
		}
		if took := time.Since(began); took < 1800*time.Millisecond || took > 2*time.Second {
			t.Errorf("%d handshakes in %v", 2*Handshakes, took)
		}
		_ = l.Close()
		if _, err := l.Accept(); !errors.Is(err, net.ErrClosed) {
			t.Errorf("closed, and %v", err)
		}
	})
}

// TestHostsWaitBehindStrangers: who has no certificate has a host that connects wait its turn, a
// second for so many handshakes, and keeps it from nothing else.
func TestHostsWaitBehindStrangers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		network := &memory{make(chan net.Conn), make(chan struct{})}
		l := Paced(network, 100*Handshakes)
		const strangers = 10 * Handshakes
		own, host := net.Pipe()
		go func() {
			for range strangers {
				stranger, _ := net.Pipe()
				network.conns <- stranger
			}
			network.conns <- own
		}()
		began := time.Now()
		var last net.Conn
		for range strangers + 1 {
			var err error
			if last, err = l.Accept(); err != nil {
				t.Fatal(err)
			}
		}
		if waited := time.Since(began); waited < 9*time.Second || waited > 10*time.Second { // of this test's clock
			t.Errorf("it waited %v behind %d", waited, strangers)
		}
		go func() { _, _ = host.Write([]byte("x")) }()
		if _, err := last.Read(make([]byte, 1)); err != nil { // it is the host's
			t.Error(err)
		}
		_ = l.Close()
	})
}

// TestManyAgents: hundreds in TLS on loopback come, are told, answer, and come again over
// what is left of their streams.
func TestManyAgents(t *testing.T) {
	t.Parallel()
	agents := 200
	if !testing.Short() {
		agents = 1000
	}
	told := &told{}
	options := told.options()
	var h *Hub
	options.Said = func(host string, m *wire.Message) { h.Tell(host, Ask, []byte(`{"ask": {"what": "facts"}}`)) }
	h = New(options)
	server := httptest.NewUnstartedServer(serve(h, func(error) {}))
	server.Listener = Paced(server.Listener, agents*4)
	server.StartTLS()
	defer server.Close()
	var all sync.WaitGroup
	for n := range agents {
		all.Go(func() {
			host := fmt.Sprintf("host-%d", n)
			client := &http.Client{Transport: named{host, server.Client().Transport}}
			for range 2 {
				c, err := wire.Dial(t.Context(), client, server.URL)
				if err != nil {
					t.Errorf("%s: %v", host, err)
					return
				}
				defer c.Cut()
				hello(t, c, host)
				var m *wire.Message
				for m == nil || m.Desired.Bundle != 7 {
					if m, err = c.Receive(t.Context()); err != nil {
						t.Errorf("%s: %v", host, err)
						return
					}
				}
				if err := c.Send(t.Context(), &wire.Message{Report: &wire.Report{State: wire.StateProved}}); err != nil {
					t.Errorf("%s: %v", host, err)
				}
				for m.Ask == nil {
					if m, err = c.Receive(t.Context()); err != nil {
						t.Errorf("%s: %v", host, err)
						return
					}
				}
			}
		})
	}
	stop := make(chan struct{})
	go func() {
		for bundle := int64(1); ; bundle = min(bundle+1, 7) {
			h.TellAll(Desired, fmt.Appendf(nil, `{"desired": {"bundle": %d}}`, bundle))
			select {
			case <-stop:
				return
			case <-time.After(50 * time.Millisecond):
			}
		}
	}()
	all.Wait()
	close(stop)
	server.CloseClientConnections()
	_ = h.Drain(t.Context())
	if joined, left := strings.Count(told.all(), " joined"), strings.Count(told.all(), " left"); joined != 2*agents || left != joined {
		t.Errorf("%d joined and %d left", joined, left)
	}
}

// TestPacesHaveRoom: how an answer goes on, or that nobody waits for it, reaches an agent behind
// however many questions, in one message a question.
func TestPacesHaveRoom(t *testing.T) {
	t.Parallel()
	inTime(t, func(t *testing.T, h *Hub, _ *told, dial func(string) agent) {
		c := dial("web-1")
		hello(t, c.Conn, "a")
		synctest.Wait()
		asks := func(id int64) bool {
			text, err := wire.Encode(&wire.Message{Question: &wire.Question{Id: id, Method: http.MethodGet, Path: "/v1"}})
			if err != nil {
				t.Fatal(err)
			}
			return h.Question("web-1", text)
		}
		id := int64(1)
		for asks(id) { // none of which it reads
			synctest.Wait()
			id++
		}
		for range 1000 {
			h.Pace("web-1", wire.Pace{Id: 1, Pieces: 1})
		}
		h.Pace("web-1", wire.Pace{Id: 2, Cancel: true})
		h.Pace("web-9", wire.Pace{Id: 2, Cancel: true})
		var told []wire.Pace
		for m := range listen(c.Conn) {
			if m.Pace == nil {
				continue
			}
			if told = append(told, *m.Pace); m.Pace.Id == 2 {
				break
			}
		}
		if want := []wire.Pace{{Id: 1, Pieces: wire.Pieces}, {Id: 2, Cancel: true}}; !slices.Equal(told, want) {
			t.Errorf("the agent received %+v", told)
		}
	})
}
