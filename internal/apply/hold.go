package apply

import (
	"context"
	"slices"
	"time"

	"sluice/internal/kernel/socket"
	"sluice/internal/kernel/sysctl"
)

// holdTime is how long running connections have to send a packet each when
// tracking begins: longer than the retransmission of a busy one takes.
const holdTime = 3 * time.Second

// hold gives running connections the time to be seen by connection tracking.
// Where there are none it takes none.
func (s *session) hold(ctx context.Context) error {
	if !connectionsRun() {
		return nil
	}
	select {
	case <-time.After(holdTime):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// connectionsRun says whether the namespace has a TCP connection to elsewhere,
// or forwards, which no socket tells of. What cannot be asked counts as yes.
func connectionsRun() bool {
	for _, name := range []string{"net.ipv4.ip_forward", "net.ipv6.conf.all.forwarding"} {
		if value, err := sysctl.Read(name); err == nil && value != "0" {
			return true
		}
	}
	sockets, err := socket.TCP()
	return err != nil || slices.ContainsFunc(sockets, func(s socket.Socket) bool {
		return s.State == socket.Established && !s.Remote.Addr().IsLoopback()
	})
}
