package agent

import (
	"net"
	"net/http"
	"sync"
	"time"

	"sluice/internal/agent/api"
	"sluice/internal/system/kernel/peer"
)

// How many connections are kept. At the limit the one that is idle for longest makes room;
// where none is, the new one is closed.
const (
	mostConnections = 1024
	mostOfUser      = 64 // who is not root
	keptForRoot     = 32
)

// connections are those that are open.
type connections struct {
	mutex   sync.Mutex
	open    map[net.Conn]*connection
	refused func(*peer.Peer, refusal)
}

type connection struct {
	*caller
	idle time.Time // since then; zero: a request is under way
}

func (c *connection) root() bool { return c.peer.UID == 0 }

// add takes a connection in, and says which one is to be closed for it, if any.
func (c *connections) add(conn net.Conn, of *caller) (out net.Conn) {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	in := &connection{of, time.Now()}
	switch {
	case in.root():
		out = c.over(conn, mostConnections, func(*connection) bool { return true })
	default:
		out = c.over(conn, mostOfUser, func(o *connection) bool { return o.peer.UID == of.peer.UID })
		if out == nil {
			out = c.over(conn, mostConnections-keptForRoot, func(o *connection) bool { return !o.root() })
		}
	}
	c.open[conn] = in
	if out != nil {
		left := c.open[out].peer
		c.refused(left, refusal{kind: api.TooMany, why: "a connection is closed: too many are open"})
		_ = left.Close()
		delete(c.open, out)
	}
	return out
}

// over is the connection that has to go where there are so many of a kind, nil where there
// are fewer.
func (c *connections) over(conn net.Conn, most int, kind func(*connection) bool) (out net.Conn) {
	many := 0
	var since time.Time
	for o, have := range c.open {
		if !kind(have) {
			continue
		}
		many++
		if !have.idle.IsZero() && (out == nil || have.idle.Before(since)) {
			out, since = o, have.idle
		}
	}
	switch {
	case many < most:
		return nil
	case out == nil:
		return conn
	}
	return out
}

// turned is for http.Server.ConnState.
func (c *connections) turned(conn net.Conn, to http.ConnState) {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	have := c.open[conn]
	switch {
	case have == nil:
	case to == http.StateClosed || to == http.StateHijacked:
		if have.half.Load() {
			c.refused(have.peer, refusal{kind: api.BadRequest, why: "an incomplete request, or not HTTP"})
		}
		_ = have.peer.Close()
		delete(c.open, conn)
	case to == http.StateIdle:
		have.idle = time.Now()
	case to == http.StateActive:
		have.idle = time.Time{}
		have.half.Store(true)
	}
}
