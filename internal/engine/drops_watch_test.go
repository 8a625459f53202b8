package engine_test

import (
	"context"
	"testing"
	"time"

	"sluice/internal/engine"
	"sluice/internal/lab/testnet"
	"sluice/internal/system/kernel/netns"
)

// TestDropWatch has one program for several namespaces, which come and go: what was counted
// stays, and each reader sees his own.
func TestDropWatch(t *testing.T) {
	t.Parallel()
	testnet.Require(t, testnet.Namespaces, seesDrops)
	lab := testnet.New(t)
	type one struct {
		net    *testnet.Namespace
		inside *netns.Namespace
	}
	var d engine.DropWatch
	begin := func(label string) one {
		n := lab.Unnamed(label)
		inside, err := netns.Open(n.Path())
		if err == nil {
			err = d.Begin(inside.Number())
		}
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = inside.Close() })
		return one{n, inside}
	}
	counted := func(o one) uint64 {
		all, err := d.ByReason(o.inside.Number())
		if err != nil {
			t.Fatal(err)
		}
		return all["NO_SOCKET"]
	}
	dropped := func(o one, packets int, want uint64) {
		t.Helper()
		for range packets {
			if err := udpTo(o.net, "127.0.0.1:9")(); err != nil {
				t.Fatal(err)
			}
		}
		for end := time.Now().Add(dropsEnough); counted(o) != want; time.Sleep(time.Millisecond) {
			if time.Now().After(end) {
				t.Fatalf("%d are counted, want %d", counted(o), want)
			}
		}
	}
	shop := begin("shop")
	dropped(shop, 5, 5)
	mail := begin("mail")
	dropped(shop, 2, 7)
	dropped(mail, 3, 3)

	// Two readers, one of each, while a third namespace comes and goes.
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	seen := make(chan string, 1024)
	ended := make(chan error, 2)
	for name, o := range map[string]one{"shop": shop, "mail": mail} {
		h, err := engine.NewHost(t.TempDir(), "", "test")
		if err != nil {
			t.Fatal(err)
		}
		h.Netns = o.inside
		go func() {
			counts, err := h.DropsFrom(ctx, engine.DropsFrom{Watch: &d}, engine.DropChoice{}, func(p engine.Dropped) {
				if p.Port != map[string]uint16{"shop": 21, "mail": 22}[name] {
					t.Errorf("%s has %+v", name, p)
				}
				seen <- name
			}, func(engine.DropCounts) {})
			if err == nil && (len(counts.Places) != 1 || counts.Looked == 0) {
				t.Errorf("%s: %+v", name, counts)
			}
			ended <- err
		}()
	}
	await := func() {
		t.Helper()
		have := map[string]bool{}
		for end := time.After(dropsEnough); len(have) < 2; {
			for o, to := range map[one]string{shop: "127.0.0.1:21", mail: "127.0.0.1:22"} {
				if err := udpTo(o.net, to)(); err != nil {
					t.Fatal(err)
				}
			}
			select {
			case name := <-seen:
				have[name] = true
			case <-time.After(20 * time.Millisecond):
			case <-end:
				t.Fatalf("seen by %v", have)
			}
		}
	}
	await()
	third := begin("third")
	await()
	d.End(third.inside.Number())
	await()
	stop()
	for range 2 {
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}
	d.End(mail.inside.Number())
	before := counted(shop)
	dropped(shop, 1, before+1)
}

// BenchmarkDropsByReason is what a reading of the metrics pays for drops.
func BenchmarkDropsByReason(b *testing.B) {
	testnet.Require(b, testnet.Namespaces, seesDrops)
	n := testnet.New(b).Unnamed("host")
	inside, err := netns.Open(n.Path())
	if err != nil {
		b.Fatal(err)
	}
	defer inside.Close()
	var d engine.DropWatch
	if err := d.Begin(inside.Number()); err != nil {
		b.Fatal(err)
	}
	defer d.End(inside.Number())
	if err := udpTo(n, "127.0.0.1:9")(); err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		if _, err := d.ByReason(inside.Number()); err != nil {
			b.Fatal(err)
		}
	}
}
