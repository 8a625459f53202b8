package nflog

import (
	"bytes"
	"context"
	"errors"
	"net"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"sluice/internal/lab/testnet"
)

const enough = time.Minute

// TestRead sees packets that a rule logs, with what the kernel says of them, and counts those
// that were not read in time.
func TestRead(t *testing.T) {
	t.Parallel()
	testnet.Require(t, testnet.Nftables)
	host := testnet.New(t).Unnamed("host")
	if _, err := host.Run("ip", "link", "set", "lo", "up"); err != nil {
		t.Fatal(err)
	}
	if _, err := host.RunContext(t.Context(), "table inet t { chain c { type filter hook input priority 0; udp dport 9 log prefix \"input_x seen\" group 5171 snaplen 128\n}\n}\n", "nft", "-f", "-"); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	seen, listens, ended := make(chan Packet, 100), make(chan struct{}), make(chan error, 1)
	go func() {
		ended <- host.Do(func() error {
			return Read(ctx, 5171, 40, func() { close(listens) }, func(p Packet) { seen <- p })
		})
	}()
	select {
	case <-listens:
	case err := <-ended:
		t.Fatal(err)
	}
	if err := host.Do(func() error { return Read(ctx, 5171, 40, func() {}, func(Packet) {}) }); !errors.Is(err, ErrTaken) {
		t.Errorf("a second one: %v", err)
	}
	for _, to := range []string{"127.0.0.1:9", "[::1]:9"} {
		if err := host.Do(func() error {
			c, err := net.Dial("udp", to)
			if err != nil {
				return err
			}
			_, err = c.Write(bytes.Repeat([]byte{'x'}, 1000))
			return errors.Join(err, c.Close())
		}); err != nil {
			t.Fatal(err)
		}
		select {
		case p := <-seen:
			version, family := p.Payload[0]>>4, map[byte]uint16{4: unix.ETH_P_IP, 6: unix.ETH_P_IPV6}
			if p.Prefix != "input_x seen" || p.Hook != 1 || p.In != "lo" || p.Out != "" || len(p.Payload) != 40 || p.Family != family[version] || p.Lost != 0 || time.Since(p.Time).Abs() > time.Hour {
				t.Errorf("%s: %+v", to, p)
			}
		case <-time.After(enough):
			t.Fatalf("%s is not seen", to)
		}
	}
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// FuzzParse reads what no kernel sends.
func FuzzParse(f *testing.F) {
	f.Add([]byte{})
	f.Add([]byte{2, 0, 0, 1, 8, 0, 1, 0, 8, 0, 1, 0, 8, 0, 12, 0, 0, 0, 0, 7, 6, 0, 10, 0, 'a', 0, 0, 0})
	f.Add(slices.Concat([]byte{2, 0, 0, 1, 20, 0, 3, 0}, bytes.Repeat([]byte{255}, 16), []byte{8, 0, 4, 0, 0, 0, 0, 1, 5, 0, 9, 0, 'x', 0, 0, 0}))
	f.Fuzz(func(_ *testing.T, message []byte) {
		_, _, _ = parse(message, func(uint32) string { return "" })
	})
}
