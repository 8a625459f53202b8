package main

import (
	"net/netip"
	"sync"
	"time"

	"sluice/internal/testnet"
)

// patience is how long a try waits for what may never come.
const patience = 700 * time.Millisecond

const (
	answered = "answered"
	silent   = "silent"
)

// try is one row of the table: the same thing in both families.
type try struct {
	what string
	do   func(c *client, own, host netip.Addr) testnet.Result
	// open says whether the policy lets the client through.
	open func(c *client) bool
}

func isAllowed(c *client) bool { return c.allowed }

var tries = []try{
	{"tcp/80, a page of nginx", func(c *client, own, host netip.Addr) testnet.Result {
		return get(c.space, own, host, patience)
	}, isAllowed},
	{"udp/443, a datagram and its answer", func(c *client, own, host netip.Addr) testnet.Result {
		return c.space.TryUDP(testnet.UDPTry{From: netip.AddrPortFrom(own, 0), To: netip.AddrPortFrom(host, 443), Patience: patience})
	}, isAllowed},
	{"icmp, an echo request", func(c *client, own, host netip.Addr) testnet.Result {
		return c.space.TryEcho(testnet.EchoTry{From: own, To: host, Patience: patience})
	}, isAllowed},
	{"tcp/22, ssh", func(c *client, own, host netip.Addr) testnet.Result {
		return c.space.TryTCP(testnet.TCPTry{From: netip.AddrPortFrom(own, 0), To: netip.AddrPortFrom(host, 22), Patience: patience})
	}, func(c *client) bool { return c.office }},
}

// whoGetsIn tries every service from every client, in both families.
func (d *demo) whoGetsIn() error {
	d.title("Who gets in")
	type cell struct{ v4, v6 testnet.Result }
	results := make([]cell, len(d.clients)*len(tries))
	var group sync.WaitGroup
	for i, c := range d.clients {
		for j, t := range tries {
			group.Go(func() {
				r := &results[i*len(tries)+j]
				r.v4 = t.do(c, c.v4, host4)
				r.v6 = t.do(c, c.v6, host6)
			})
		}
	}
	group.Wait()

	d.head()
	for i, c := range d.clients {
		d.say("%s  %s  %s", d.paint("1", c.name), c.v4, c.v6)
		for j, t := range tries {
			want := silent
			if t.open(c) {
				want = answered
			}
			r := results[i*len(tries)+j]
			d.check("  "+t.what, want, both(r.v4, r.v6))
		}
	}
	return nil
}

// both is one word where both families saw the same.
func both(v4, v6 testnet.Result) string {
	if v4.Outcome == v6.Outcome {
		return v4.Outcome.String()
	}
	return "IPv4 " + v4.String() + ", IPv6 " + v6.String()
}
