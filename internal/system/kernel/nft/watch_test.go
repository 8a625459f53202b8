package nft_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"sluice/internal/lab/testnet"
	"sluice/internal/system/kernel/nft"
)

// TestWatch: each transaction is told of once, with who made it, however much it changed.
// Those of another namespace are not.
func TestWatch(t *testing.T) {
	testnet.Require(t, testnet.Nftables)
	net := testnet.New(t)
	host, other := net.Unnamed("host"), net.Unnamed("other")
	ctx, stop := context.WithCancel(t.Context())
	changes, ended := make(chan nft.Change, 100), make(chan error, 1)
	go func() {
		ended <- host.Do(func() error { return nft.Watch(ctx, func(c nft.Change) { changes <- c }) })
	}()
	next := func() (c nft.Change) {
		t.Helper()
		select {
		case c = <-changes:
		case err := <-ended:
			t.Fatal(err)
		case <-time.After(time.Minute):
			t.Fatal("a transaction is not told of")
		}
		return c
	}
	if c := next(); c != (nft.Change{}) {
		t.Errorf("when it listens it says %+v", c)
	}
	var many strings.Builder
	many.WriteString("add table inet t\nadd set inet t s { type ipv4_addr; }\n")
	for i := range 20_000 {
		fmt.Fprintf(&many, "add element inet t s { 10.0.%d.%d }\n", i>>8, i&255)
	}
	for _, text := range []string{"add table inet t", many.String(), "flush ruleset"} {
		other.Nft("add table inet t")
		host.Nft(text)
		c := next()
		var now uint32
		if err := host.Do(func() (err error) { now, err = nft.Generation(); return err }); err != nil {
			t.Fatal(err)
		}
		if c.Generation != now || c.Name != "nft" || c.PID == 0 {
			t.Errorf("%.30s: %+v, and the ruleset is number %d", text, c, now)
		}
	}
	stop()
	if err := <-ended; err != nil || len(changes) > 0 {
		t.Errorf("%d more: %v", len(changes), err)
	}
}
