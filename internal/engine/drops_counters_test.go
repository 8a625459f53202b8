package engine

import (
	"context"
	"net"
	"slices"
	"testing"

	"sluice/internal/lab/testnet"
	"sluice/internal/system/kernel/netns"
)

// TestDropsByCounters counts where there is no BPF.
func TestDropsByCounters(t *testing.T) {
	t.Parallel()
	testnet.Require(t, testnet.Namespaces)
	n := testnet.New(t).Unnamed("host")
	h, err := NewHost(t.TempDir(), "", "test")
	if err != nil {
		t.Fatal(err)
	}
	if h.Netns, err = netns.Open(n.Path()); err != nil {
		t.Fatal(err)
	}
	defer h.Netns.Close()
	for reason, want := range map[string]bool{"": true, "Udp.NoPorts": true, "Udp.RcvbufErrors": false} {
		chosen, err := DropChoice{Reason: reason}.read()
		if err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithCancel(t.Context())
		told := 0
		out, err := h.dropsByCounters(ctx, chosen, func(DropCounts) {
			if told++; told > 1 {
				stop()
				return
			}
			if err := n.Do(func() error {
				for range 3 { // each from a port of its own: an ICMP error ends what the next one sends
					c, err := net.Dial("udp", "127.0.0.1:9")
					if err != nil {
						return err
					}
					_, _ = c.Write([]byte("x"))
					_ = c.Close()
				}
				return nil
			}); err != nil {
				t.Error(err)
			}
		})
		stop()
		if err != nil || out.By != ByCounters {
			t.Fatalf("%v %v", out, err)
		}
		if got := slices.Contains(out.Places, DropPlace{Reason: "Udp.NoPorts", Packets: 3}); got != want {
			t.Errorf("%q: %+v", reason, out)
		}
	}
}
