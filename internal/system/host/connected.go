package host

import (
	"net/netip"
	"slices"

	"sluice/internal/system/kernel/socket"
)

// mostConnected is of how many connections addresses are remembered.
const mostConnected = 1024

// Connected answers SSHClientsOf again and again for the network namespace that it is asked
// in, without a walk over the kernel's whole table of connections (a millisecond on a machine
// of 24 GiB) for an address from which there is none. Who may be logged in has a connection,
// and the kernel counts those that are opened: as long as it counted none more, only those that
// stood there at the last walk can be. Whether somebody has logged in on one of them is not
// remembered. The zero value knows nothing. It is for one goroutine at a time.
type Connected struct {
	opened uint64 // by others, before the table was walked
	from   []netip.Addr
	known  bool
}

// SSHClientsOf is what the function of that name is.
func (c *Connected) SSHClientsOf(asked func(netip.Addr) bool) ([]SSHClient, error) {
	opened, err := socket.Opened()
	if err == nil && c.known && opened == c.opened && !slices.ContainsFunc(c.from, asked) {
		return nil, nil
	}
	*c = Connected{}
	sockets, walkErr := socket.TCP()
	if walkErr != nil {
		return nil, walkErr
	}
	if err == nil && len(sockets) <= mostConnected {
		c.remember(sockets, opened)
	}
	return sshClientsAmong(sockets, asked)
}

// remember has those that are not established yet too: the kernel has counted them.
func (c *Connected) remember(sockets []socket.Socket, opened uint64) {
	for _, s := range sockets {
		if s.State != socket.Listen && s.Remote.IsValid() {
			c.from = append(c.from, withoutZone(s.Remote).Addr())
		}
	}
	c.opened, c.known = opened, true
}
