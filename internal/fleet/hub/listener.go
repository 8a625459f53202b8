package hub

import (
	"context"
	"net"

	"golang.org/x/net/netutil"
	"golang.org/x/time/rate"
)

// Handshakes is how many connections Paced lets in a second: what two processors do in TLS
// beside their other work.
const Handshakes = 500

// Paced is a listener that accepts no more than Handshakes a second, and holds no more than
// most at once. Those beyond wait in the kernel.
func Paced(l net.Listener, most int) net.Listener {
	ctx, cancel := context.WithCancel(context.Background())
	return &paced{netutil.LimitListener(l, most), rate.NewLimiter(Handshakes, Handshakes/10), ctx, cancel}
}

type paced struct {
	net.Listener
	limit *rate.Limiter
	ctx   context.Context
	end   context.CancelFunc
}

func (p *paced) Accept() (net.Conn, error) {
	if err := p.limit.Wait(p.ctx); err != nil {
		return nil, net.ErrClosed
	}
	return p.Listener.Accept()
}

func (p *paced) Close() error {
	p.end()
	return p.Listener.Close()
}
