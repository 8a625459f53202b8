package kerneltest

import (
	"fmt"
	"net/netip"
	"sync"
	"testing"

	"sluice/internal/lab/testnet"
	"sluice/internal/program"
)

// TestWordWiden: the eighth source of a prefix that a limit bans has the prefix banned,
// however often each is caught, and nobody else; who is never banned goes on.
func TestWordWiden(t *testing.T) {
	for _, way := range []struct {
		name, to string
		port     uint16
		udp      bool
	}{{"by handshakes", "host", 22, false}, {"by handshakes through the host", "inside", 5432, false}, {"by packets", "host", 53, true}} {
		t.Run(way.name, func(t *testing.T) {
			c := newTown(t)
			apply(t, c.host, `
never-ban: [203.0.113.77, "2001:db8:77:77::/64"]
input:
  default: drop
  rules:
    - allow [ssh, udp/53] limit 1/hour per source then ban 10m widen
    - allow http
forward:
  default: drop
  rules:
    - allow tcp/5432 limit 1/hour per source then ban 10m widen
`)
			for _, v6 := range []bool{false, true} {
				source := func(n int) netip.Addr {
					if v6 {
						return netip.MustParseAddr(fmt.Sprintf("2001:db8:77:%d::1", n))
					}
					return netip.MustParseAddr(fmt.Sprintf("203.0.113.%d", n))
				}
				caught := func(n int) {
					from, to := at(source(n), 0), at(place(way.to, v6), way.port)
					if way.udp {
						c.outside.TryUDP(testnet.UDPTry{From: from, To: to, Patience: enough})
						c.outside.TryUDP(testnet.UDPTry{From: from, To: to, Patience: short})
						return
					}
					var open []*testnet.Conn
					for range 3 {
						if _, conn := c.outside.OpenTCP(testnet.TCPTry{From: from, To: to, Patience: short}); conn != nil {
							open = append(open, conn)
							defer conn.Close()
						}
					}
					for _, conn := range open {
						conn.Exchange("each is over the limit but the first", short)
					}
				}
				wants := func(from netip.Addr, want testnet.Outcome, why string) {
					t.Helper()
					if r := c.outside.TryTCP(testnet.TCPTry{From: at(from, 0), To: at(place("host", v6), 80), Patience: patience(want == testnet.Answered)}); r.Outcome != want {
						t.Errorf("%s, %s: %v, want %v", from, why, r, want)
					}
				}
				var all sync.WaitGroup
				for n := range program.Widening - 1 {
					all.Go(func() { caught(100 + n) })
				}
				all.Wait()
				wants(source(100), testnet.Silent, "caught")
				wants(source(50), testnet.Answered, "as long as one less is banned")
				caught(107)
				wants(source(50), testnet.Silent, "once its prefix is banned")
				wants(source(77), testnet.Answered, "never banned")
				wants(place("stranger", v6), testnet.Answered, "of another prefix")
			}
		})
	}
}
