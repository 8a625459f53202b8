package hub

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"sluice/internal/fleet/wire"
)

// told keeps what a hub calls, as lines.
type told struct {
	mutex sync.Mutex
	lines []string
}

func (t *told) add(format string, args ...any) {
	t.mutex.Lock()
	t.lines = append(t.lines, fmt.Sprintf(format, args...))
	t.mutex.Unlock()
}

func (t *told) all() string {
	t.mutex.Lock()
	defer t.mutex.Unlock()
	return strings.Join(t.lines, "\n")
}

func (t *told) options() Options {
	return Options{
		Joined:  func(host string, hello *wire.Hello, _ int) { t.add("%s joined: %s", host, hello.Instance) },
		Said:    func(host string, m *wire.Message) { t.add("%s said: %s", host, m.Report.State) },
		Left:    func(host string) { t.add("%s left", host) },
		Claimed: func(host string, by, has netip.Addr) { t.add("%s claimed", host) },
	}
}

// serve is the handler of a hub that believes the name an agent gives as its path's query.
func serve(h *Hub, ended func(error)) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		conn, err := wire.Accept(w, r)
		if err != nil {
			return
		}
		ended(h.Serve(conn, r.Header.Get("Host-Id"), netip.MustParseAddr("203.0.113.5")))
	})
}

// named is the transport of an agent of that name.
type named struct {
	name string
	http.RoundTripper
}

func (n named) RoundTrip(r *http.Request) (*http.Response, error) {
	r.Header.Set("Host-Id", n.name)
	return n.RoundTripper.RoundTrip(r)
}

// memory is a network without a kernel, so that time in it can be made.
type memory struct {
	conns chan net.Conn
	done  chan struct{}
}

func (m *memory) Accept() (net.Conn, error) {
	select {
	case c := <-m.conns:
		return c, nil
	case <-m.done:
		return nil, net.ErrClosed
	}
}

func (m *memory) Close() error { close(m.done); return nil }

func (m *memory) Addr() net.Addr { return &net.TCPAddr{} }

// lossy is the end of a connection, from which nothing comes any more once it is lost.
type lossy struct {
	net.Conn
	lost  atomic.Bool
	reads atomic.Int64
}

func (l *lossy) Read(into []byte) (int, error) {
	n, err := l.Conn.Read(into)
	l.reads.Add(1)
	for err == nil && l.lost.Load() {
		n, err = l.Conn.Read(into)
	}
	return n, err
}

// agent is the stream of one.
type agent struct {
	*wire.Conn
	network *lossy
}

// inTime runs a hub in a bubble of synctest. dial connects an agent, which has not spoken.
func inTime(t *testing.T, run func(t *testing.T, h *Hub, told *told, dial func(host string) agent)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		told := &told{}
		h := New(told.options())
		network := &memory{make(chan net.Conn), make(chan struct{})}
		server := &http.Server{Handler: serve(h, func(err error) { told.add("ended: %v", err) }), ReadHeaderTimeout: time.Minute}
		go func() { _ = server.Serve(network) }()
		var clients []*http.Transport
		var conns []*wire.Conn
		run(t, h, told, func(host string) agent {
			end := &lossy{}
			transport := &http.Transport{DialContext: func(context.Context, string, string) (net.Conn, error) {
				ours, theirs := net.Pipe()
				network.conns <- theirs
				end.Conn = ours
				return end, nil
			}}
			clients = append(clients, transport)
			conn, err := wire.Dial(t.Context(), &http.Client{Transport: named{host, transport}}, "http://controller.example.net")
			if err != nil {
				t.Fatal(err)
			}
			conns = append(conns, conn)
			return agent{conn, end}
		})
		for _, c := range conns {
			c.Cut()
		}
		_ = server.Close()
		for _, c := range clients {
			c.CloseIdleConnections()
		}
	})
}

func hello(t *testing.T, c *wire.Conn, instance string) {
	t.Helper()
	if err := c.Send(t.Context(), &wire.Message{Hello: &wire.Hello{Version: "1", Instance: instance}}); err != nil {
		t.Fatal(err)
	}
}

// listen reads what a stream brings until it ends.
func listen(c *wire.Conn) <-chan *wire.Message {
	got := make(chan *wire.Message, 1000)
	go func() {
		defer close(got)
		for {
			m, err := c.Receive(context.Background())
			if err != nil {
				return
			}
			got <- m
		}
	}()
	return got
}

// listenUntil reads until that bundle.
func listenUntil(c *wire.Conn, bundle int64) <-chan *wire.Message {
	got := make(chan *wire.Message)
	go func() {
		defer close(got)
		for {
			m, err := c.Receive(context.Background())
			if err != nil {
				return
			}
			got <- m
			if m.Desired != nil && m.Desired.Bundle == bundle {
				return
			}
		}
	}()
	return got
}
