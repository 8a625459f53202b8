package stress

import (
	"fmt"
	"sync"
	"time"

	"sluice/internal/lab/testnet"
)

// connects opens connections of every service in both families until it is
// stopped.
type connects struct {
	end  chan struct{}
	done sync.WaitGroup

	mu     sync.Mutex
	opened uint64
	failed []string
}

const connectPause = 100 * time.Millisecond

// serve starts the servers that connects ask, as a set-up step.
func (l *lab) serve() {
	for _, s := range services {
		_, to := s.ends(l)
		for _, f := range families {
			to.ServeTCP(s.listens(f, s.connectPort()).String())
		}
	}
}

func (l *lab) startConnects() *connects {
	c := &connects{end: make(chan struct{})}
	for _, s := range services {
		for _, f := range families {
			c.done.Go(func() { c.run(l, s, f) })
		}
	}
	return c
}

func (c *connects) run(l *lab, s service, f family) {
	from, _ := s.ends(l)
	for {
		r := from.TryTCP(testnet.TCPTry{To: s.asked(f, s.connectPort()), Message: "hello", Patience: connectTime})
		c.mu.Lock()
		c.opened++
		if err := r.Error(); err != nil {
			c.failed = append(c.failed, fmt.Sprintf("%s, IPv%d: %v", s, f, err))
		}
		c.mu.Unlock()
		select {
		case <-c.end:
			return
		case <-time.After(connectPause):
		}
	}
}

// stop stops and says how many were opened, and which failed.
func (c *connects) stop() (opened uint64, failed []string) {
	close(c.end)
	c.done.Wait()
	return c.opened, c.failed
}
