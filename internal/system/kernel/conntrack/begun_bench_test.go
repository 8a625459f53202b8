package conntrack_test

import (
	"net"
	"net/netip"
	"testing"

	"sluice/internal/lab/testnet"
	"sluice/internal/system/kernel/conntrack"
)

// BenchmarkBegun is what a new connection of UDP to loopback takes, with and without somebody
// who counts.
func BenchmarkBegun(b *testing.B) {
	for _, counted := range []bool{false, true} {
		b.Run(map[bool]string{true: "counted", false: "alone"}[counted], func(b *testing.B) {
			host := testnet.New(b).Unnamed("host")
			host.Nft("table inet t { chain c { type filter hook output priority 0; ct state new accept; }\n chain i { type filter hook input priority 0; udp dport 9 drop; }\n }")
			err := host.Do(func() error {
				if counted {
					c, err := conntrack.CountBegun()
					if err != nil {
						return err
					}
					defer c.Close()
				}
				s, err := net.ListenUDP("udp4", nil)
				if err != nil {
					return err
				}
				defer s.Close()
				to := netip.MustParseAddr("127.1.0.0")
				b.ResetTimer()
				for range b.N {
					to = to.Next()
					if _, err := s.WriteToUDPAddrPort([]byte("x"), netip.AddrPortFrom(to, 9)); err != nil {
						return err
					}
				}
				return nil
			})
			if err != nil {
				b.Fatal(err)
			}
		})
	}
}
