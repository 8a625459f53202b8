package agent

import (
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	"sluice/internal/agent/api"
	"sluice/internal/agent/config"
	"sluice/internal/engine/apply"
	"sluice/internal/system/host"
	"sluice/internal/system/kernel/peer"
)

type callerKey struct{}

// caller is who has a connection.
type caller struct {
	peer    *peer.Peer
	half    atomic.Bool // a request has begun to come
	once    sync.Once
	by      apply.Author
	session *host.SSHClient
}

// who says who it is, which is found out once.
func (c *caller) who() (apply.Author, *host.SSHClient) {
	c.once.Do(func() {
		c.by, c.session = apply.Caller(c.peer.PID, int(c.peer.UID))
		if !c.peer.There() { // it may be that of who has his number by now
			c.by, c.session = apply.Caller(0, int(c.peer.UID))
		}
	})
	return c.by, c.session
}

// right is what a caller may do.
type right int

const (
	nothing right = iota
	read
	change
	all // of root
)

func (r right) String() string {
	return string([]api.YouMay{api.YouMayNothing, api.YouMayRead, api.YouMayChange, api.YouMayChange}[r])
}

func (s *server) may(p *peer.Peer) right {
	groups := append(slices.Clone(p.Groups), p.GID)
	switch {
	case p.UID == 0:
		return all
	case p.UID == fleetUser && s.fleetMay != config.None:
		return read
	case s.changes.Has(p.UID, groups...):
		return change
	case s.reads.Has(p.UID, groups...):
		return read
	}
	return nothing
}

func refused(kind api.Kind, format string, args ...any) *api.Failure {
	return &api.Failure{Text: fmt.Sprintf(format, args...), Exit: 2, Kind: kind}
}

func noChange() error {
	return refused(api.NotAllowed, "only root and those named in the agent's file may change the firewall")
}
