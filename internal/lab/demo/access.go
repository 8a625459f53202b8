package demo

import (
	"fmt"
	"net/netip"
	"sync"
	"time"

	"sluice/internal/lab/testnet"
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
	// packet is what sluice explain is told of it.
	packet []string
	// open says whether the policy lets the client through.
	open func(c *client) bool
}

func isAllowed(c *client) bool { return c.allowed }

var tries = []try{
	{"tcp/80, a page of nginx", func(c *client, own, host netip.Addr) testnet.Result {
		return get(c.space, own, host, patience)
	}, []string{"--dport", "80"}, isAllowed},
	{"udp/443, a datagram and its answer", func(c *client, own, host netip.Addr) testnet.Result {
		return c.space.TryUDP(testnet.UDPTry{From: netip.AddrPortFrom(own, 0), To: netip.AddrPortFrom(host, 443), Patience: patience})
	}, []string{"--proto", "udp", "--dport", "443"}, isAllowed},
	{"icmp, an echo request", func(c *client, own, host netip.Addr) testnet.Result {
		return c.space.TryEcho(testnet.EchoTry{From: own, To: host, Patience: patience})
	}, []string{"--icmp-type", "echo-request"}, isAllowed},
	{"tcp/22, ssh", func(c *client, own, host netip.Addr) testnet.Result {
		return c.space.TryTCP(testnet.TCPTry{From: netip.AddrPortFrom(own, 0), To: netip.AddrPortFrom(host, 22), Patience: patience})
	}, []string{"--dport", "22"}, func(c *client) bool { return c.office }},
}

// whoGetsIn asks sluice explain about every service and every client, in both
// families, and then tries all of them.
func (d *demo) whoGetsIn() error {
	d.title("Who gets in")
	american := d.client("United States")
	if err := d.quoteExplain("not in visitors", "--src", american.v4.String(), "--dport", "80"); err != nil {
		return err
	}
	said, err := d.askAll()
	if err != nil {
		return err
	}
	results := make([][2]testnet.Result, len(d.clients)*len(tries))
	var group sync.WaitGroup
	for i, c := range d.clients {
		for j, t := range tries {
			group.Go(func() {
				r := &results[i*len(tries)+j]
				r[0] = t.do(c, c.v4, host4)
				r[1] = t.do(c, c.v6, host6)
			})
		}
	}
	group.Wait()

	d.head()
	defer d.leaveOut(false)
	for i, c := range d.clients {
		d.leaveOut(!c.pictured)
		d.say("%s  %s  %s", d.paint("1", c.name), c.v4, c.v6)
		for j, t := range tries {
			want := silent
			if t.open(c) {
				want = answered
			}
			r := results[i*len(tries)+j]
			d.check("  "+t.what, want, both(r[0], r[1]))
		}
		of := func(n int) string { return fmt.Sprintf("%d of %d", n, 2*len(tries)) }
		from, to := i*len(tries), (i+1)*len(tries)
		d.check("  packets that met what sluice explain had said", of(2*len(tries)), of(foretold(said[from:to], results[from:to])))
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
