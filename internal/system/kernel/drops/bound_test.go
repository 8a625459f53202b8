package drops

import (
	"context"
	"testing"
	"time"

	"sluice/internal/lab/testnet"
)

// TestBound floods: the program rests, what it does not see is reckoned, and behind the flood
// all is counted again.
func TestBound(t *testing.T) {
	testnet.Require(t, testnet.Namespaces, testnet.Nftables, canTell)
	n := testnet.New(t).Namespace("flooded")
	n.Nft("table inet t { chain c { type filter hook input priority 0; udp dport 9 drop\n }\n }")
	w, err := Watch(number(t, n))
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	w.flood = 100
	go w.Bound()
	ctx, stop := context.WithTimeout(t.Context(), enough)
	defer stop()
	sent := 0
	for w.Reckoned() == 0 && ctx.Err() == nil {
		send(t, n, "127.0.0.1:9", 50)
		sent += 50
	}
	counted, err := w.counted()
	if err != nil {
		t.Fatal(err)
	}
	seen := uint64(0)
	for _, packets := range counted {
		seen += packets
	}
	if seen == 0 || seen >= uint64(sent) || w.Reckoned() == 0 {
		t.Errorf("of %d packets %d are counted, %d reckoned", sent, seen, w.Reckoned())
	}
	// Without a flood each packet is counted and nothing is reckoned, as soon as the program
	// is back: on a busy machine that may take a while.
	for {
		before, had := w.Reckoned(), sum(named(t, w, number(t, n)))
		send(t, n, "127.0.0.1:9", 7)
		for wait := time.Now().Add(4 * calmTime); sum(named(t, w, number(t, n))) != had+7 && time.Now().Before(wait); {
			time.Sleep(time.Millisecond)
		}
		got, reckoned := sum(named(t, w, number(t, n)))-had, w.Reckoned()-before
		if got == 7 && reckoned == 0 {
			return
		}
		if ctx.Err() != nil {
			t.Fatalf("7 packets are counted as %d, %d are reckoned", got, reckoned)
		}
	}
}
