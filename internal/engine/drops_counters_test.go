package engine

import (
	"context"
	"net"
	"net/netip"
	"slices"
	"testing"
	"time"

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
		out, err := h.dropsByCounters(ctx, chosen, func(Dropped) {}, func(DropCounts) {
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

// Where no packet can be looked at, those are shown that the trace reports.
func TestTracedByCounters(t *testing.T) {
	testnet.Require(t, testnet.Nftables)
	t.Parallel()
	n := testnet.New(t).Unnamed("host")
	n.Nft("table inet other { chain c { type filter hook output priority 0; udp dport 9 drop\n }\n }")
	h, err := NewHost(t.TempDir(), "", "test")
	if err != nil {
		t.Fatal(err)
	}
	if h.Netns, err = netns.Open(n.Path()); err != nil {
		t.Fatal(err)
	}
	defer h.Netns.Close()
	ctx, stop := context.WithTimeout(t.Context(), time.Minute)
	defer stop()
	chosen, err := DropChoice{Reason: "netfilter-drop", Trace: true}.read()
	if err != nil {
		t.Fatal(err)
	}
	if chosen.tracer, err = h.traceDrops(ctx); err != nil {
		t.Fatal(err)
	}
	defer chosen.tracer.close()
	n.TryUDP(testnet.UDPTry{To: netip.MustParseAddrPort("127.0.0.1:9"), Patience: 1})
	var got Dropped
	out, err := h.dropsByCounters(ctx, chosen, func(d Dropped) { got = d; stop() }, func(DropCounts) {})
	if err != nil {
		t.Fatal(err)
	}
	if got.By == nil || got.By.Rule != "udp dport 9 drop" || got.Hook != "output" || got.Port != 9 || got.Out != "lo" || len(out.Rules) != 1 || out.Rules[0].Packets != 1 || out.Traced == nil {
		t.Errorf("%+v by %+v; %+v", got, got.By, out)
	}
}
