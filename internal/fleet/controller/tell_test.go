package controller

import (
	"context"
	"fmt"
	"maps"
	"sync"
	"testing"
	"time"

	"sluice/internal/fleet/hub"
)

// TestToldInOrder: of two that tell a host at once, the one that knows what is newer tells last.
func TestToldInOrder(t *testing.T) {
	t.Parallel()
	f := newFleet(t, "example.net")
	f.text += "roll-out: {stages: [100%], settle: none}\n"
	a, err := f.join("web-1", f.token(nil, 1))
	ok(t, err)
	conn := a.stream(nil)
	last, asked := make(chan int64, 100), make(chan bool)
	go func() {
		for {
			m, err := conn.Receive(context.Background())
			switch {
			case err != nil:
				return
			case m.Desired != nil:
				last <- m.Desired.Bundle
			case m.Ask != nil:
				close(asked)
			}
		}
	}()
	c := f.controller
	for n := range int64(2) {
		_, err := f.publish(fmt.Sprintf("input: {default: drop} # %d\n", n))
		ok(t, err)
	}
	for <-last != 2 {
	}
	now := c.view.Load()
	before := *now
	before.desired = maps.Clone(now.desired)
	d := before.desired["web-1"]
	d.Bundle = 1
	before.desired["web-1"] = d
	of, err := c.contents.of(t.Context(), c.Store, 1)
	ok(t, err)
	of.mutex.Lock() // who reports bundle 1 waits for it
	c.view.Store(&before)
	var tell sync.WaitGroup
	tell.Go(func() { c.tell(context.WithoutCancel(t.Context()), "web-1") })
	f.until("one tells", func() bool {
		turn, _ := c.telling.turns.Load("web-1")
		is, _ := turn.(*sync.Mutex)
		taken := !is.TryLock()
		if !taken {
			is.Unlock()
		}
		return taken
	})
	time.Sleep(100 * time.Millisecond) // in which it comes to the bundle
	c.view.Store(now)
	tell.Go(func() { c.tell(context.WithoutCancel(t.Context()), "web-1") })
	time.Sleep(100 * time.Millisecond) // in which who waits for no turn has told
	of.mutex.Unlock()
	tell.Wait()
	c.hub.Tell("web-1", hub.Ask, askFacts)
	<-asked
	was := int64(0)
	for len(last) > 0 {
		was = <-last
	}
	if was != 2 {
		t.Errorf("bundle %d is told last", was)
	}
}
