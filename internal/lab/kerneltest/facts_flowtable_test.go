package kerneltest

import (
	"fmt"
	"strings"
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
		r, conn := c.inside.OpenTCP(testnet.TCPTry{From: at(place("inside", v6), 0), To: at(place("stranger", v6), 80), Message: "first", Patience: enough})
		if conn == nil {
			t.Fatal(r)
		}
		defer conn.Close()
		before := []uint64{counter(t, c.host, "arrived"), counter(t, c.host, "forwarded"), ingressPackets(t, c)}
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
		if n := ingressPackets(t, c) - before[2]; n < messages {
			t.Errorf("IPv6 %t: ingress saw %d of at least %d offloaded packets", v6, n, messages)
		}
	}
}

func ingressPackets(t *testing.T, c *town) (n uint64) {
	t.Helper()
	out := c.host.MustRun("nft", "list", "counter", "netdev", "n", "entered")
	_, rest, ok := strings.Cut(out, "packets ")
	if _, err := fmt.Sscan(rest, &n); !ok || err != nil {
		t.Fatalf("no count in %s", out)
	}
	return n
}
