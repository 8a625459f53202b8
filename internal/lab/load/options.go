package load

import (
	"context"
	"net"
	"net/netip"
	"time"
)

// Options say what is asked, how and for how long.
type Options struct {
	// URL to ask: http or https. A name is resolved once, before the start.
	URL    string
	Method string   // "" is GET
	Header []string // "Name: value" each
	Body   []byte

	// Connections that may be open at a time; 0 means 1.
	Connections int
	// NewConnections opens one for each request and asks the server to close it;
	// else connections are kept alive.
	NewConnections bool
	// Rate is requests per second of all connections together, by schedule (open
	// loop); 0 means that each connection sends when it is free (closed loop).
	Rate float64
	// For is how long requests are started; 0 means ten seconds. Those under way at
	// the end are waited for until their time-out.
	For time.Duration
	// Requests ends it earlier, when so many were started; 0 is no such end.
	Requests uint64
	// Timeout of a connection's opening, and of a request; 0 means ten seconds.
	Timeout time.Duration
	// Every is the length of an interval of the result; 0 means a second.
	Every time.Duration

	// Dialer opens connections, such as from inside a network namespace: it is given
	// "tcp" and an address with port. nil is this process's own namespace.
	Dialer func(ctx context.Context, network, address string) (net.Conn, error)
	// Bind are local addresses that connections take in turn, each with local ports
	// of its own. Not with Dialer.
	Bind []netip.Addr
	// Insecure accepts any certificate.
	Insecure bool

	// Progress is told of every interval when it has ended, in order, from one
	// goroutine; nil is nobody. A request whose end is recorded later than that is
	// in the Result alone.
	Progress func(Tick)
}

// Tick is one interval, told while the load runs.
type Tick struct {
	Interval
	Done float64 // the part of Options.For that is over, 0 to 1
}
