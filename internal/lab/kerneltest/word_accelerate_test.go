package kerneltest

import (
	"fmt"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"sluice/internal/lab/testnet"
)

// A policy that says accelerate hands established flows to the kernel's
// flowtable: their packets no longer pass the forward hook, and arrive.
func TestAccelerateOffloads(t *testing.T) {
	testnet.Require(t, testnet.Flowtable)
	c := newTown(t)
	apply(t, c.host, "forward: { default: drop, accelerate: true, rules: [allow http] }\n")
	c.offloads(t)
}

// passage is a flow of UDP from inside, packet by packet.
type passage struct {
	*town
	street   *testnet.Capture
	from, to netip.AddrPort
	sent     atomic.Int64
}

func (c *town) passage(street *testnet.Capture, to netip.Addr) *passage {
	return &passage{town: c, street: street, from: at(place("inside", to.Is6()), 4000), to: netip.AddrPortFrom(to, 53)}
}

func (p *passage) text(n int64) string { return fmt.Sprintf("packet %d.", n) }

// send sends one packet and gives its number. It may be called from one goroutine at a time.
func (p *passage) send() (int64, error) {
	n := p.sent.Add(1)
	return n, p.yard.Send(testnet.UDP(p.from, p.to, []byte(p.text(n))...))
}

// arrive sends one packet, which arrives outside.
func (p *passage) arrive(t *testing.T) {
	t.Helper()
	n, err := p.send()
	if err != nil {
		t.Fatal(err)
	}
	if _, came := p.street.Wait(enough, func(s testnet.Seen) bool { return s.To() == p.to && string(s.Payload) == p.text(n) }); !came {
		t.Fatalf("packet %d to %s does not arrive", n, p.to)
	}
}

// arrived is the number of the last packet that arrived outside.
func (p *passage) arrived() (last int64) {
	for _, s := range p.street.Seen() {
		var n int64
		if _, err := fmt.Sscanf(string(s.Payload), "packet %d.", &n); err == nil && s.To() == p.to {
			last = max(last, n)
		}
	}
	return last
}

// offloaded sends packets until one passes forward by.
func (p *passage) offloaded(t *testing.T) {
	t.Helper()
	if err := eventually(func() error {
		before := counter(t, p.host, "forwarded")
		p.arrive(t)
		if counter(t, p.host, "forwarded") != before {
			return fmt.Errorf("packets to %s pass forward", p.to)
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
}

// forwarded counts what passes the forward hook of a host.
const forwarded = `table inet t {
	counter forwarded {}
	chain through { type filter hook forward priority -10; meta l4proto { tcp, udp } counter name forwarded; }
}`

// A ban ends what the flowtable carries: of what is sent after the command has returned
// nothing passes, whatever the ban and whatever the rules asked before. Other flows go on,
// and take the fast path again.
func TestAcceleratedFlowsEndWithABan(t *testing.T) {
	testnet.Require(t, testnet.Flowtable)
	for name, bans := range map[string]string{"bans by command alone": "", "beside bans of the policy": "ban: [some]"} {
		t.Run(name, func(t *testing.T) {
			e := newBinary(t)
			e.host.Nft(forwarded)
			policy := "version: 1\nsets: { some: [%s] }\n" + bans + "\nforward: { default: drop, accelerate: true, rules: [allow udp/53, allow http] }\n"
			e.run(t, "apply", e.write(t, "first", fmt.Sprintf(policy, "198.18.0.1")))
			street := e.street.Capture()
			for _, v6 := range []bool{false, true} {
				others, conn := e.passage(street, place("office", v6)), e.open(t, "inside", "office", 80, v6, "first")
				others.offloaded(t)
				ends := func(how string, to netip.Addr, command ...string) {
					t.Helper()
					others.offloaded(t)
					p := e.passage(street, to)
					p.offloaded(t)
					stop := make(chan struct{})
					sent := make(chan error, 1)
					go func() {
						for {
							if _, err := p.send(); err != nil {
								sent <- err
								return
							}
							select {
							case <-stop:
								sent <- nil
								return
							case <-time.After(100 * time.Microsecond):
							}
						}
					}()
					e.run(t, command...)
					last := p.sent.Load()
					for p.sent.Load() < last+200 && len(sent) == 0 {
						time.Sleep(time.Millisecond)
					}
					close(stop)
					if err := <-sent; err != nil {
						t.Fatal(err)
					}
					others.arrive(t) // behind all of them
					if n := p.arrived(); n == 0 || n > last {
						t.Errorf("%s: the last packet to %s that passed is number %d; %d were sent when the command returned", how, to, n, last)
					}
				}
				of := func(last string) netip.Addr {
					if v6 {
						return netip.MustParseAddr("2001:db8:99::" + last)
					}
					return netip.MustParseAddr("192.0.2." + last)
				}
				banned := e.open(t, "inside", "stranger", 80, v6, "first")
				ends("the first ban", of("7"), "ban", of("7").String())
				if r := banned.Exchange("more", short); r.Outcome == testnet.Answered {
					t.Errorf("a connection with %s passes", of("7"))
				}
				ends("another address", of("8"), "ban", of("8").String(), "--for", "1h")
				prefix := netip.PrefixFrom(of("32"), of("32").BitLen()-4).Masked().String()
				ends("a range", of("35"), "ban", prefix)
				ends("another range", of("99"), "ban", netip.PrefixFrom(of("99"), of("99").BitLen()-1).Masked().String())
				if bans != "" {
					ends("a policy", of("10"), "apply", e.write(t, "second", fmt.Sprintf(policy, of("10").String())))
				}
				if r := conn.Exchange("after all", enough); r.Outcome != testnet.Answered {
					t.Errorf("a connection with nobody banned: %v", r)
				}
				others.offloaded(t)
				if out := e.host.MustRun("conntrack", "-L", "-f", map[bool]string{false: "ipv4", true: "ipv6"}[v6], "-p", "udp"); !strings.Contains(out, "[OFFLOAD]") {
					t.Errorf("no entry says so: %s", out)
				}
				e.run(t, "verify")
			}
		})
	}
}

// Many bans in a row: each holds when its command has returned, and flows with others
// arrive all the time.
func TestAcceleratedFlowsEndWithManyBans(t *testing.T) {
	testnet.Require(t, testnet.Flowtable)
	e := newBinary(t)
	e.host.Nft(forwarded)
	e.run(t, "apply", e.write(t, "policy", "version: 1\nforward: { default: drop, accelerate: true, rules: [allow udp/53] }\n"))
	street := e.street.Capture()
	others := e.passage(street, place("office", false))
	others.offloaded(t)
	var flows []*passage
	for i := range 30 {
		p := e.passage(street, netip.AddrFrom4([4]byte{192, 0, 2, byte(100 + i)}))
		p.offloaded(t)
		flows = append(flows, p)
	}
	for i, p := range flows {
		e.run(t, "ban", p.to.Addr().String())
		last := p.sent.Load()
		if _, err := p.send(); err != nil {
			t.Fatal(err)
		}
		others.arrive(t)
		if n := p.arrived(); n > last {
			t.Errorf("ban %d: packet %d to %s passes, of which %d were sent before", i, n, p.to, last)
		}
	}
	others.offloaded(t)
	e.run(t, "verify")
	e.run(t, "unban", flows[0].to.Addr().String())
	flows[0].offloaded(t)
}
