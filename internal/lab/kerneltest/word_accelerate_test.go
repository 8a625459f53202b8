package kerneltest

import (
	"fmt"
	"net"
	"testing"

	"sluice/internal/lab/testnet"
)

// A policy that says accelerate hands established flows to the kernel's
// flowtable: their packets no longer pass the forward hook, and arrive.
func TestAccelerateOffloads(t *testing.T) {
	testnet.Require(t, testnet.Flowtable)
	c := newTown(t)
	apply(t, c.host, "forward: { default: drop, accelerate: true, rules: [allow http] }\n")
	c.host.Nft(`table inet t {
		counter forwarded {}
		chain through { type filter hook forward priority 10; tcp dport 80 counter name forwarded; }
	}`)
	for _, v6 := range []bool{false, true} {
		conn := c.open(t, "inside", "stranger", 80, v6, "first")
		before := counter(t, c.host, "forwarded")
		const messages = 20
		for i := range messages {
			if r := conn.Exchange(fmt.Sprint("message ", i), enough); r.Outcome != testnet.Answered {
				t.Fatal(r)
			}
		}
		if n := counter(t, c.host, "forwarded") - before; n != 0 {
			t.Errorf("IPv6 %t: %d packets of an established flow passed the forward hook", v6, n)
		}
	}
}

// The bans before the flowtable ask of destinations too; what goes to all of a network
// comes to this host, where they are no matter, and arrives.
func TestAccelerateSparesBroadcasts(t *testing.T) {
	testnet.Require(t, testnet.Flowtable)
	c := newTown(t)
	apply(t, c.host, "sets: { some: [10.20.0.7, 10.20.0.255] }\nban: [some]\ninput: { default: drop, rules: [allow udp/137] }\nforward: { default: drop, accelerate: true }\n")
	c.host.Nft(`table inet t {
		counter arrived {}
		chain in { type filter hook input priority 10; udp dport 137 counter name arrived; }
	}`)
	if err := c.inside.Do(func() error {
		to, err := net.Dial("udp4", "10.20.0.255:137")
		if err != nil {
			return err
		}
		defer to.Close()
		_, err = to.Write([]byte("who is there"))
		return err
	}); err != nil {
		t.Fatal(err)
	}
	if err := eventually(func() error {
		if n := counter(t, c.host, "arrived"); n != 1 {
			return fmt.Errorf("%d packets arrived", n)
		}
		return nil
	}); err != nil {
		t.Error(err)
	}
}
