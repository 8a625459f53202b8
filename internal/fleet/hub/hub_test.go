package hub

import (
	"context"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"sluice/internal/fleet/wire"
)

func TestSilentStreamDies(t *testing.T) {
	t.Parallel()
	inTime(t, func(t *testing.T, h *Hub, told *told, dial func(string) agent) {
		c := dial("web-1")
		got := listen(c.Conn)
		hello(t, c.Conn, "a")
		synctest.Wait()
		time.Sleep(10 * time.Minute) // while it answers pings
		if h.Online()["web-1"].From != netip.MustParseAddr("203.0.113.5") {
			t.Fatalf("it is gone:\n%s", told.all())
		}
		h.Tell("web-1", Ask, []byte(`{"ask": {"what": "facts"}}`))
		synctest.Wait()
		if len(got) != 1 || (<-got).Ask == nil {
			t.Error("it is not told what it is asked")
		}

		silent := dial("web-2")
		hello(t, silent.Conn, "a")
		silent.network.lost.Store(true)
		listen(silent.Conn)
		synctest.Wait()
		time.Sleep(44 * time.Second)
		if _, has := h.Online()["web-2"]; !has {
			t.Errorf("it is dead before 45 s:\n%s", told.all())
		}
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if _, has := h.Online()["web-2"]; has {
			t.Error("it is online after 46 s of silence")
		}
		if _, has := h.Online()["web-1"]; !has {
			t.Error("the other one went with it")
		}
	})
}

// TestPingsOfAgents: one that pings is not pinged, and is alive by that.
func TestPingsOfAgents(t *testing.T) {
	t.Parallel()
	inTime(t, func(t *testing.T, h *Hub, told *told, dial func(string) agent) {
		c := dial("web-1")
		listen(c.Conn)
		hello(t, c.Conn, "a")
		synctest.Wait()
		before := c.network.reads.Load()
		const pings = 30
		for range pings {
			time.Sleep(pingEvery)
			if err := c.Ping(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		if n := c.network.reads.Load() - before; n != pings {
			t.Errorf("it got %d frames for %d pings of its own", n, pings)
		}
	})
}

func TestNoHello(t *testing.T) {
	t.Parallel()
	inTime(t, func(t *testing.T, h *Hub, told *told, dial func(string) agent) {
		dial("web-1")
		time.Sleep(helloWait + time.Second)
		synctest.Wait()
		if !strings.Contains(told.all(), "ended: ") {
			t.Error("a stream without hello stays")
		}
		c := dial("web-2")
		if err := c.Send(t.Context(), &wire.Message{Report: &wire.Report{State: wire.StateProved}}); err != nil {
			t.Fatal(err)
		}
		if m, err := c.Receive(t.Context()); err != nil || m.Refused == nil || m.Refused.Kind != wire.KindBadRequest {
			t.Errorf("%v, %v", m, err)
		}
	})
}

// TestSlowAgent: one that takes no write is closed after 10 s, and the others are told.
func TestSlowAgent(t *testing.T) {
	t.Parallel()
	inTime(t, func(t *testing.T, h *Hub, told *told, dial func(string) agent) {
		slow, quick := dial("slow"), dial("quick")
		hello(t, slow.Conn, "a")
		hello(t, quick.Conn, "b")
		got := listen(quick.Conn)
		synctest.Wait()
		h.TellAll(Desired, []byte(`{"desired": {"bundle": 3}}`))
		if m := <-got; m.Desired.Bundle != 3 {
			t.Errorf("%v", m)
		}
		time.Sleep(writeWait + time.Second)
		synctest.Wait()
		online := h.Online()
		if _, has := online["slow"]; has || len(online) != 1 {
			t.Errorf("%v", online)
		}
	})
}

func TestLatestWins(t *testing.T) {
	t.Parallel()
	inTime(t, func(t *testing.T, h *Hub, told *told, dial func(string) agent) {
		c := dial("web-1")
		hello(t, c.Conn, "a")
		synctest.Wait()
		for n := range 100 { // none of which it reads
			h.Tell("web-1", Desired, fmt.Appendf(nil, `{"desired": {"bundle": %d}}`, n+1))
			synctest.Wait()
			h.Tell("web-1", Trust, []byte(`{"trust": {}}`))
			synctest.Wait()
		}
		var bundles []int64
		trust := 0
		for m := range listenUntil(c.Conn, 100) {
			if m.Desired != nil {
				bundles = append(bundles, m.Desired.Bundle)
			} else {
				trust++
			}
		}
		if fmt.Sprint(bundles, trust) != "[1 100] 1" {
			t.Errorf("it is told %v, and %d times whom to trust", bundles, trust)
		}
		if h.Tell("web-9", Desired, []byte(`{}`)) {
			t.Error("one that is not there was told")
		}
	})
}

// TestLiveKeepsItsOrder: bans come in their order, none twice, and who does not read is told
// to ask once it does; who was not told of any is told of none.
func TestLiveKeepsItsOrder(t *testing.T) {
	t.Parallel()
	inTime(t, func(t *testing.T, h *Hub, _ *told, dial func(string) agent) {
		fast, slow, other := dial("web-1"), dial("web-2"), dial("web-3")
		for _, c := range []agent{fast, slow, other} {
			hello(t, c.Conn, "a")
		}
		synctest.Wait()
		live := func(n int) []byte {
			text, err := wire.Encode(&wire.Message{Live: &wire.Live{Envelope: []byte{byte(n)}}})
			if err != nil {
				t.Fatal(err)
			}
			return text
		}
		got := listen(fast.Conn)
		h.Live("web-1", live(0))
		h.Live("web-2", live(0))
		h.Live("nowhere", live(0))
		for n := range 100 {
			h.LiveAll(live(n + 1))
			synctest.Wait()
		}
		for n := range 101 {
			if m := <-got; m.Live == nil || len(m.Live.Envelope) != 1 || int(m.Live.Envelope[0]) != n {
				t.Fatalf("message %d is %+v", n, m.Live)
			}
		}
		h.Live("web-1", nil)
		h.LiveAll(live(101))
		if m := <-got; m.Live == nil || m.Live.Envelope != nil {
			t.Errorf("it is not told to ask: %+v", m.Live)
		}
		h.Tell("web-3", Ask, []byte(`{"ask":{"what":"facts"}}`))
		if m := <-listen(other.Conn); m == nil || m.Ask == nil {
			t.Errorf("who follows no bans is told %+v", m)
		}
		late := listen(slow.Conn)
		var told []string
		for m := range late {
			told = append(told, fmt.Sprint(m.Live.Envelope))
			if m.Live.Envelope == nil {
				break
			}
		}
		if len(told) > 2+mostLive || told[0] != "[0]" {
			t.Errorf("who is slow is told %v", told)
		}
		synctest.Wait()
		h.LiveAll(live(102))
		for m := range late {
			if e := m.Live.Envelope; len(e) == 1 && e[0] == 102 {
				break
			} else if len(e) == 1 {
				t.Errorf("%v comes after what it had to ask for", e)
			}
		}
	})
}

// TestTwoHostsOneName: the second that is alive at once is refused, and told why; the
// same agent, and one whose stream before is dead, come in.
func TestTwoHostsOneName(t *testing.T) {
	t.Parallel()
	inTime(t, func(t *testing.T, h *Hub, told *told, dial func(string) agent) {
		first := dial("web-1")
		alive := listen(first.Conn)
		hello(t, first.Conn, "a")
		synctest.Wait()
		copied := dial("web-1")
		hello(t, copied.Conn, "b")
		m, err := copied.Receive(t.Context())
		if err != nil || m.Refused == nil || m.Refused.Kind != wire.KindTaken || !strings.Contains(m.Refused.Text, "two hosts claim web-1") {
			t.Fatalf("%v, %v", m, err)
		}
		if _, err := copied.Receive(t.Context()); err == nil {
			t.Error("the stream goes on")
		}
		synctest.Wait()
		if len(alive) != 0 || len(h.Online()) != 1 {
			t.Error("the first one is told something")
		}
		again := dial("web-1")
		hello(t, again.Conn, "a")
		synctest.Wait()
		if _, more := <-alive; more || len(h.Online()) != 1 {
			t.Error("its old stream stays")
		}
		restarted := dial("web-1") // and the stream of before reads nothing
		hello(t, restarted.Conn, "c")
		time.Sleep(claimWait + time.Second)
		synctest.Wait()
		want := "web-1 joined: a\nweb-1 claimed\nweb-1 left\nweb-1 joined: a\nweb-1 left\nweb-1 joined: c"
		var got []string
		for line := range strings.SplitSeq(told.all(), "\n") {
			if !strings.HasPrefix(line, "ended: ") {
				got = append(got, line)
			}
		}
		if strings.Join(got, "\n") != want {
			t.Errorf("it is\n%s\nand not\n%s", strings.Join(got, "\n"), want)
		}
	})
}

func TestDrain(t *testing.T) {
	t.Parallel()
	inTime(t, func(t *testing.T, h *Hub, told *told, dial func(string) agent) {
		good, bad := dial("good"), dial("bad")
		hello(t, good.Conn, "a")
		hello(t, bad.Conn, "b")
		listen(bad.Conn)
		synctest.Wait()
		go func() {
			for {
				m, err := good.Receive(context.Background())
				if err != nil {
					return
				}
				if m.Drain != nil && m.Drain.WithinSeconds == 1 {
					go good.Close("drained")
				}
			}
		}()
		began := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		if err := h.Drain(ctx); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(began); took != 5*time.Second {
			t.Errorf("it took %v though one stayed", took)
		}
		late := dial("late")
		hello(t, late.Conn, "c")
		if m, err := late.Receive(t.Context()); err != nil || m.Refused == nil || m.Refused.Kind != wire.KindUnavailable {
			t.Errorf("%v, %v", m, err)
		}
		if err := h.Drain(ctx); err == nil {
			t.Error("it drains twice")
		}
	})
	inTime(t, func(t *testing.T, h *Hub, told *told, dial func(string) agent) {
		if err := h.Drain(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

func TestComeBack(t *testing.T) {
	t.Parallel()
	for agents, want := range map[int]time.Duration{0: time.Second, 1000: 11 * time.Second, 20_000: drainPeriod} {
		if got := comeBack(agents); got != want {
			t.Errorf("%d agents come back within %v, not %v", agents, got, want)
		}
	}
}

func TestCut(t *testing.T) {
	t.Parallel()
	inTime(t, func(t *testing.T, h *Hub, told *told, dial func(string) agent) {
		listens, hangs := dial("listens"), dial("hangs")
		hello(t, listens.Conn, "a")
		hello(t, hangs.Conn, "b")
		got := listen(listens.Conn)
		synctest.Wait()
		for _, host := range []string{"listens", "hangs", "nobody"} {
			h.Cut(host, &wire.Failure{Text: host + " is revoked", Kind: wire.KindRevoked})
		}
		synctest.Wait()
		if m := <-got; m == nil || m.Refused == nil || m.Refused.Kind != wire.KindRevoked {
			t.Errorf("it is told %v", m)
		}
		if len(h.Online()) != 0 {
			t.Errorf("%v stay", h.Online())
		}
	})
}
