package kerneltest

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"sluice/internal/lab/testnet"
)

// placesPolicy lets each source hold two connections, to servers on the host and
// behind it.
const placesPolicy = `
input:
  default: drop
  rules:
    - allow [http, tcp/7000] max 2 connections per source
forward:
  default: drop
  rules:
    - allow tcp/7000-8080 max 2 connections per source
`

// placesServers are where placesPolicy has places.
var placesServers = []struct {
	to   string
	port uint16
}{{"host", 80}, {"inside", 8080}}

// eachPlace runs a test for each server of placesPolicy, over IPv4 and IPv6.
func eachPlace(t *testing.T, c *town, test func(t *testing.T, v6 bool, to netip.AddrPort)) {
	t.Helper()
	for _, v6 := range []bool{false, true} {
		for _, s := range placesServers {
			t.Run(fmt.Sprintf("%s/IPv6=%t", s.to, v6), func(t *testing.T) { test(t, v6, at(place(s.to, v6), s.port)) })
		}
	}
}

// hold opens a connection; silent ones send nothing.
func (c *town) hold(from netip.Addr, to netip.AddrPort, silent bool, patience time.Duration) (testnet.Result, *testnet.Conn) {
	try := testnet.TCPTry{From: netip.AddrPortFrom(from, 0), To: to, Patience: patience}
	if !silent {
		try.Message = "hello"
	}
	r, conn := c.outside.OpenTCP(try)
	if conn != nil && r.Outcome != testnet.Answered {
		conn.Close()
		conn = nil
	}
	return r, conn
}

// holds opens as many connections as a source may hold, and one more, which is
// refused.
func (c *town) holds(t *testing.T, from netip.Addr, to netip.AddrPort, silent bool) (held []*testnet.Conn) {
	t.Helper()
	for n := range 2 {
		r, conn := c.hold(from, to, silent, enough)
		if conn == nil {
			t.Fatalf("connection %d from %s to %s: %v", n+1, from, to, r)
		}
		t.Cleanup(conn.Close)
		held = append(held, conn)
	}
	c.full(t, from, to)
	return held
}

// full says that a source holds all of its places.
func (c *town) full(t *testing.T, from netip.Addr, to netip.AddrPort) {
	t.Helper()
	if r, conn := c.hold(from, to, false, short); conn != nil {
		conn.Close()
		t.Errorf("one connection too many from %s to %s: %v", from, to, r)
	}
}

// free says that a source has a place again.
func (c *town) free(t *testing.T, from netip.Addr, to netip.AddrPort, why string) {
	t.Helper()
	if err := eventually(func() error {
		r, conn := c.hold(from, to, false, enough)
		if conn != nil {
			conn.Close()
		}
		return r.Error()
	}); err != nil {
		t.Errorf("from %s to %s, after %s: %v", from, to, why, err)
	}
}

// TestForgedSYNsTakeNoPlaces: SYNs in a client's own name leave it its two connections,
// to a server on the host and to one behind it, and what is forged besides them.
func TestForgedSYNsTakeNoPlaces(t *testing.T) {
	c := newTown(t)
	apply(t, c.host, placesPolicy)
	c.deafen()
	answers := c.street.Capture()
	eachPlace(t, c, func(t *testing.T, v6 bool, to netip.AddrPort) {
		client := place("stranger", v6)
		for i := range uint16(forgedPorts) {
			forge(t, c, answers, netip.AddrPortFrom(client, forgedPort+i), to, int(i))
		}
		// A place of what is acknowledged within the window of connection tracking comes
		// back when the server answers it, or sends its SYN-ACK again.
		var held []*testnet.Conn
		for range 2 {
			if err := eventually(func() error {
				r, conn := c.hold(client, to, false, enough)
				if conn != nil {
					t.Cleanup(conn.Close)
					held = append(held, conn)
				}
				return r.Error()
			}); err != nil {
				t.Fatalf("from %s to %s: %v", client, to, err)
			}
		}
		c.full(t, client, to)
		for _, conn := range held {
			if r := conn.Exchange("still", enough); r.Outcome != testnet.Answered {
				t.Errorf("a connection that lives: %v", r)
			}
		}
	})
}

// TestPlacesGoBack: a source that holds its two connections has another when one ends,
// by either side or by a reset, and none before, whichever way they were opened.
func TestPlacesGoBack(t *testing.T) {
	c := newTown(t)
	apply(t, c.host, placesPolicy)
	eachPlace(t, c, func(t *testing.T, v6 bool, to netip.AddrPort) {
		client := place("stranger", v6)
		t.Run("silent", func(t *testing.T) {
			held := c.holds(t, client, to, true)
			held[0].Close()
			c.free(t, client, to, "a reset of the client's")
			held[1].Close()
		})
		t.Run("ended by the client", func(t *testing.T) {
			held := c.holds(t, client, to, false)
			held[0].Shutdown()
			c.free(t, client, to, "an end by the client, which the server answers with its own")
			held[1].Close()
		})
		t.Run("in parallel", func(t *testing.T) {
			var mu sync.Mutex
			var held []*testnet.Conn
			if err := eventually(func() error { // who gets in may be too late for the time that a try has
				var wait sync.WaitGroup
				for range 20 {
					wait.Go(func() {
						if _, conn := c.hold(client, to, false, short); conn != nil {
							mu.Lock()
							held = append(held, conn)
							mu.Unlock()
						}
					})
				}
				wait.Wait()
				if len(held) < 2 {
					return errors.New("fewer than 2 got in")
				}
				return nil
			}); err != nil || len(held) > 2 {
				t.Errorf("of 20 connections at the same time %d got in, want 2", len(held))
			}
			for _, conn := range held {
				conn.Close()
			}
			c.free(t, client, to, "resets of all")
		})
	})
}

// keeper is a server that accepts connections and ends none by itself.
type keeper struct {
	accepted chan *net.TCPConn
	ended    chan struct{} // the client has ended its side
}

const keeperPort = 7000

func (c *town) keep(t *testing.T, to netip.Addr) keeper {
	t.Helper()
	in := map[bool]*testnet.Namespace{true: c.host, false: c.inside}[to == place("host", to.Is6())]
	listener, err := in.Listen(netip.AddrPortFrom(to, keeperPort).String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	k := keeper{make(chan *net.TCPConn, 100), make(chan struct{}, 100)}
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			k.accepted <- conn.(*net.TCPConn)
			go func() {
				if _, err := io.Copy(io.Discard, conn); err == nil {
					k.ended <- struct{}{}
				}
			}()
		}
	}()
	return k
}

// wait is what comes from a channel, in time that is enough.
func wait[T any](t *testing.T, from chan T, what string) (v T) {
	t.Helper()
	select {
	case v = <-from:
	case <-time.After(enough):
		t.Fatal("there is no " + what)
	}
	return v
}

// accept is the server's end of the connection from an address, if it comes in time;
// others are of tries that were given up.
func (k keeper) accept(from netip.AddrPort, patience time.Duration) *net.TCPConn {
	for late := time.After(patience); ; {
		select {
		case conn := <-k.accepted:
			if remote := conn.RemoteAddr().(*net.TCPAddr).AddrPort(); netip.AddrPortFrom(remote.Addr().Unmap(), remote.Port()) == from {
				return conn
			}
			_ = conn.Close()
		case <-late:
			return nil
		}
	}
}

// fullSilently says of a server that says nothing that a source holds all of its
// places: the connection is refused, or reset.
func (c *town) fullSilently(t *testing.T, k keeper, from netip.Addr, to netip.AddrPort) {
	t.Helper()
	r, conn := c.hold(from, to, true, short)
	if conn != nil {
		defer conn.Close()
	}
	if k.accept(r.Local, short) != nil {
		t.Errorf("one connection too many from %s to %s", from, to)
	}
}

// TestPlacesOfHalfClosed: a connection that its client has ended keeps its place while
// the server keeps it, and gives it back when the server ends or resets it.
func TestPlacesOfHalfClosed(t *testing.T) {
	c := newTown(t)
	apply(t, c.host, placesPolicy)
	eachPlace(t, c, func(t *testing.T, v6 bool, to netip.AddrPort) {
		client, to := place("stranger", v6), netip.AddrPortFrom(to.Addr(), keeperPort)
		k := c.keep(t, to.Addr())
		for _, reset := range []bool{false, true} {
			var held []*testnet.Conn
			var accepted []*net.TCPConn
			for range 2 {
				r, conn := c.hold(client, to, true, enough)
				if conn == nil {
					t.Fatal(r)
				}
				defer conn.Close()
				server := k.accept(r.Local, enough)
				if server == nil {
					t.Fatalf("the server has no connection from %s", r.Local)
				}
				held, accepted = append(held, conn), append(accepted, server)
			}
			c.fullSilently(t, k, client, to)
			held[0].Shutdown()
			wait(t, k.ended, "end of the client's")
			c.fullSilently(t, k, client, to)
			if reset {
				_ = accepted[1].SetLinger(0)
			}
			_ = accepted[1].Close()
			if err := eventually(func() error {
				r, conn := c.hold(client, to, true, enough)
				if conn == nil {
					return errors.New("refused")
				}
				defer conn.Close()
				if server := k.accept(r.Local, short); server != nil {
					return server.Close()
				}
				return errors.New("not accepted")
			}); err != nil {
				t.Errorf("after the server has ended a connection (reset: %t): %v", reset, err)
			}
			_ = accepted[0].Close()
			held[0].Close()
			held[1].Close()
			c.free(t, client, netip.AddrPortFrom(to.Addr(), map[bool]uint16{true: 80, false: 8080}[to.Addr() == place("host", v6)]), "the ends of all")
		}
	})
}

// TestBlindACKsTakeNoPlaces: an acknowledgement that connection tracking takes, while the
// server waits for the right one, holds a place until the server sends its SYN-ACK
// again or resets it, and nothing gets in on that connection behind a reset.
func TestBlindACKsTakeNoPlaces(t *testing.T) {
	c := newTown(t)
	apply(t, c.host, placesPolicy)
	c.deafen()
	answers := c.street.Capture()
	eachPlace(t, c, func(t *testing.T, v6 bool, to netip.AddrPort) {
		client := place("stranger", v6)
		for i := range uint16(4) {
			send, number := c.begin(t, answers, at(client, forgedPort+i), to)
			send("A", forgedSequence-100, number-500) // the server's stack takes neither number
		}
		if err := eventually(func() error {
			r, first := c.hold(client, to, false, short)
			if first == nil {
				return r.Error()
			}
			defer first.Close()
			r, second := c.hold(client, to, false, short)
			if second == nil {
				return r.Error()
			}
			second.Close()
			return nil
		}); err != nil {
			t.Errorf("after blind acknowledgements: %v", err)
		}
		_, first := c.hold(client, to, false, enough)
		if first == nil {
			t.Fatal("no first connection")
		}
		defer first.Close()
		send, number := c.begin(t, answers, at(client, forgedPort+9), to)
		send("A", forgedSequence+1, number-500)
		if _, ok := answers.Wait(enough, func(s testnet.Seen) bool {
			return s.From() == to && s.To().Port() == forgedPort+9 && strings.Contains(s.Flags, "R")
		}); !ok {
			t.Fatal("the server resets nothing")
		}
		send("A", forgedSequence+1, number+1)
		send("PA", forgedSequence+1, number+1, []byte("hello")...)
		if s, ok := answers.Wait(short, func(s testnet.Seen) bool {
			return s.From() == to && s.To().Port() == forgedPort+9 && strings.Contains(s.Flags, "P")
		}); ok {
			t.Errorf("a connection without a place is answered: %v", s)
		}
	})
}

// TestPlacesBehindAFullTable: when forged sources have filled the table in which the
// kernel counts, a fresh client has its connections, and no more.
func TestPlacesBehindAFullTable(t *testing.T) {
	const sources = 67_000 // the table holds 65,536
	c := newTown(t)
	apply(t, c.host, placesPolicy)
	eachPlace(t, c, func(t *testing.T, v6 bool, to netip.AddrPort) {
		packet := testnet.SYN(netip.AddrPortFrom(netip.MustParseAddr(map[bool]string{false: "198.18.0.0", true: "2001:db8:f000::1"}[v6]), forgedPort), to, 1460)
		for n := range uint32(sources) {
			last := []byte{0xf0, byte(n >> 16), byte(n >> 8), byte(n)}
			if checksums := []int{transport(packet) + 16, 10}; v6 {
				change(packet, 12, last, checksums[0])
			} else {
				copy(last, []byte{198, 18 + byte(n>>16)})
				change(packet, 12, last, checksums...)
			}
			mustSend(t, c.street, packet)
		}
		c.holds(t, place("stranger", v6), to, false)
	})
	if full := regexp.MustCompile(`counter (connections-\S+-full) \{\s+comment [^\n]*\s+packets [1-9]`).FindAllString(c.host.MustRun("nft", "list", "counters", "table", "inet", "sluice"), -1); len(full) != len(placesServers) {
		t.Errorf("the table of a rule was not full, so this test shows nothing: %q", full)
	}
}

// TestPlacesStay: connections keep their places when the policy is loaded again, and
// places whose connections ended unseen refuse nobody.
func TestPlacesStay(t *testing.T) {
	c := newTown(t)
	apply(t, c.host, placesPolicy)
	flush := func() {
		if err := c.host.Links().ConntrackTableFlush(netlink.ConntrackTable); err != nil {
			t.Fatal(err)
		}
	}
	eachPlace(t, c, func(t *testing.T, v6 bool, to netip.AddrPort) {
		client := place("stranger", v6)
		held := c.holds(t, client, to, false)
		apply(t, c.host, placesPolicy+"output: {default: allow}\n")
		for _, conn := range held {
			if r := conn.Exchange("still", enough); r.Outcome != testnet.Answered {
				t.Errorf("a connection from before another policy: %v", r)
			}
		}
		c.full(t, client, to)
		apply(t, c.host, placesPolicy)
		flush()
		for _, conn := range held {
			conn.Close()
		}
		flush()
		for _, conn := range c.holds(t, client, to, false) {
			conn.Close()
		}
	})
}
