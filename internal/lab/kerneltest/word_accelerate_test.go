package kerneltest

import (
	"fmt"
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
		r, conn := c.inside.OpenTCP(testnet.TCPTry{From: at(place("inside", v6), 0), To: at(place("stranger", v6), 80), Message: "first", Patience: enough})
		if conn == nil {
			t.Fatal(r)
		}
		defer conn.Close()
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
