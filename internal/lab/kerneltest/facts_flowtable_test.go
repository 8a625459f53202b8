package kerneltest

import (
	"fmt"
	"testing"

	"sluice/internal/lab/testnet"
)

// handing is a host that hands flows to a flowtable, in a chain of its own.
const handing = `table inet t {
	counter forwarded {}
	counter arrived {}
	flowtable f { hook ingress priority 0; devices = { wan0, lan0 }; }
	chain pre { type filter hook prerouting priority raw; tcp dport 80 counter name arrived; }
	chain known { flow add @f; }
	chain through {
		type filter hook forward priority 0;
		meta l4proto { tcp, udp } counter name forwarded
		ct state established meta l4proto { tcp, udp } jump known
	}
}`

// The packets of an offloaded flow miss prerouting and forward. So a ban has to end
// what the flowtable carries.
func TestFactOffloadedFlowsMissForward(t *testing.T) {
	testnet.Require(t, testnet.Flowtable)
	c := newTown(t)
	c.host.Nft(handing)
	for _, v6 := range []bool{false, true} {
		conn := c.open(t, "inside", "stranger", 80, v6, "first")
		before := []uint64{counter(t, c.host, "arrived"), counter(t, c.host, "forwarded")}
		for i := range 20 {
			if r := conn.Exchange(fmt.Sprint("message ", i), enough); r.Outcome != testnet.Answered {
				t.Fatal(r)
			}
		}
		if counter(t, c.host, "arrived") != before[0] || counter(t, c.host, "forwarded") != before[1] {
			t.Errorf("IPv6 %t: offloaded packets passed prerouting or forward", v6)
		}
	}
}

// A flow leaves a flowtable at once, before its next packet, when its entry is deleted
// from the connection table, and when the flowtable is rebuilt in one transaction.
func TestFactFlowsLeaveTheFlowtable(t *testing.T) {
	testnet.Require(t, testnet.Flowtable)
	c := newTown(t)
	c.host.Nft(handing)
	street := c.street.Capture()
	for _, v6 := range []bool{false, true} {
		p := c.passage(street, place("stranger", v6))
		for what, leave := range map[string]func(){
			"the entry was deleted": func() {
				c.host.MustRun("conntrack", "-D", "-f", map[bool]string{false: "ipv4", true: "ipv6"}[v6], "-p", "udp", "--dport", "53")
			},
			"the flowtable was rebuilt": func() {
				c.host.Nft("flush chain inet t known; delete flowtable inet t f; add flowtable inet t f { hook ingress priority 0; devices = { wan0, lan0 }; }; add rule inet t known flow add @f")
			},
		} {
			p.offloaded(t)
			leave()
			before := counter(t, c.host, "forwarded")
			p.arrive(t)
			if counter(t, c.host, "forwarded") == before {
				t.Errorf("IPv6 %t: after %s a packet does not pass forward", v6, what)
			}
		}
	}
}
