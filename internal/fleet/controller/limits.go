package controller

import (
	"net"
	"net/http"
	"net/netip"
	"strconv"
	"sync"

	"golang.org/x/time/rate"

	"sluice/internal/fleet/wire"
)

// How much is asked on the port of people and programs, in requests a second, and at once.
const (
	callerRate, callerBurst     = 100, 300 // by one principal
	strangerRate, strangerBurst = 5, 50    // that were refused, from one address
)

// mostLimits is how many callers, or addresses, are told apart; the others share a limit.
const mostLimits = 20_000

// limits holds each of many to a rate of their own.
type limits struct {
	each  rate.Limit
	burst int

	mutex sync.Mutex
	of    map[string]*rate.Limiter
}

func newLimits(each rate.Limit, burst int) *limits {
	return &limits{each: each, burst: burst, of: map[string]*rate.Limiter{}}
}

func (l *limits) get(key string) *rate.Limiter {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	if is, has := l.of[key]; has {
		return is
	}
	if len(l.of) >= mostLimits {
		for old, is := range l.of {
			if is.Tokens() >= float64(l.burst) { // as if it had never asked
				delete(l.of, old)
			}
		}
	}
	if len(l.of) >= mostLimits {
		key = ""
		if is, has := l.of[key]; has {
			return is
		}
	}
	is := rate.NewLimiter(l.each, l.burst)
	l.of[key] = is
	return is
}

// neighbours is whom an address is counted with: for IPv6 its /64, which one host has.
func neighbours(r *http.Request) string {
	at, err := netip.ParseAddrPort(r.RemoteAddr)
	if err != nil {
		return ""
	}
	if addr := at.Addr().Unmap(); addr.Is4() {
		return addr.String()
	}
	p, err := at.Addr().WithZone("").Prefix(64)
	if err != nil {
		return ""
	}
	return p.String()
}

// busy answers who asks too much.
func busy(w http.ResponseWriter, text string) {
	w.Header().Set("Retry-After", strconv.Itoa(1))
	wire.Fail(w, &wire.Failure{Text: text, Kind: wire.KindBusy})
}

// mostPeople is how many connections of people and programs are open at once.
const mostPeople = 2000

// mostFrom is how many of them one address has.
const mostFrom = 200

// shared is a listener that closes connections of an address beyond mostFrom.
type shared struct {
	net.Listener

	mutex sync.Mutex
	from  map[netip.Addr]int
}

func (s *shared) Accept() (net.Conn, error) {
	for {
		conn, err := s.Listener.Accept()
		if err != nil {
			return nil, err
		}
		at, err := netip.ParseAddrPort(conn.RemoteAddr().String())
		if err != nil {
			_ = conn.Close()
			continue
		}
		addr := at.Addr().Unmap()
		s.mutex.Lock()
		s.from[addr]++
		over := s.from[addr] > mostFrom
		s.mutex.Unlock()
		held := &sharedConn{Conn: conn, end: sync.OnceFunc(func() {
			s.mutex.Lock()
			defer s.mutex.Unlock()
			if s.from[addr]--; s.from[addr] == 0 {
				delete(s.from, addr)
			}
		})}
		if !over {
			return held, nil
		}
		_ = held.Close()
	}
}

type sharedConn struct {
	net.Conn

	end func()
}

func (c *sharedConn) Close() error {
	defer c.end()
	return c.Conn.Close()
}
