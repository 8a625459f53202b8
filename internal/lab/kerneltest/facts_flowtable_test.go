package kerneltest

import (
	"fmt"
	"testing"

	"sluice/internal/lab/testnet"
)

// The packets of an offloaded flow miss prerouting and forward; ingress, before
// the flowtable, still sees them. So with a flowtable bans are asked at ingress.
func TestFactOffloadedFlowsMissForward(t *testing.T) {
	testnet.Require(t, testnet.Flowtable, testnet.NetdevIngr)
	c := newTown(t)
	c.host.Nft(`table inet t {
		counter arrived {}
		counter forwarded {}
		flowtable f { hook ingress priority 0; devices = { wan0, lan0 }; }
		chain pre { type filter hook prerouting priority raw; tcp dport 80 counter name arrived; }
		chain through {
			type filter hook forward priority 0;
			tcp dport 80 counter name forwarded
			ct state established meta l4proto tcp flow add @f
		}
	}
	table netdev n {
		counter entered {}
		chain c { type filter hook ingress device "lan0" priority -10; tcp dport 80 counter name entered; }
	}`)
	for _, v6 := range []bool{false, true} {
		conn := c.open(t, "inside", "stranger", 80, v6, "first")
		before := []uint64{counter(t, c.host, "arrived"), counter(t, c.host, "forwarded"), counterOf(t, c.host, "netdev n", "entered")}
		const messages = 20
		for i := range messages {
			if r := conn.Exchange(fmt.Sprint("message ", i), enough); r.Outcome != testnet.Answered {
				t.Fatal(r)
			}
		}
		missed := counter(t, c.host, "arrived") == before[0] && counter(t, c.host, "forwarded") == before[1]
		if !missed {
			t.Errorf("IPv6 %t: offloaded packets passed prerouting or forward", v6)
		}
		if n := counterOf(t, c.host, "netdev n", "entered") - before[2]; n < messages {
			t.Errorf("IPv6 %t: ingress saw %d of at least %d offloaded packets", v6, n, messages)
		}
	}
}
