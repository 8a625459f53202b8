package packetbench

import (
	"fmt"
	"testing"

	"sluice/internal/lab/testnet"
	"sluice/internal/language/policy"
	"sluice/internal/system/host"
)

// TestLabForwards: a host that forwards has other rules than one that does not.
func TestLabForwards(t *testing.T) {
	b := &bench{Context: t.Context(), net: testnet.New(t), devices: devicesOf(&policy.Policy{})}
	for i, here := range []host.Facts{{}, {Forwarding4: true}, {Forwarding6: true}} {
		b.here = here
		l, err := b.lab(Sluice, fmt.Sprintf("forwards%d", i))
		if err != nil {
			t.Fatal(err)
		}
		facts, err := factsOf(b, l)
		if err != nil {
			t.Fatal(err)
		}
		if facts.Forwarding4 != here.Forwarding4 || facts.Forwarding6 != here.Forwarding6 {
			t.Errorf("forwarding %v %v in the lab, %v %v here", facts.Forwarding4, facts.Forwarding6, here.Forwarding4, here.Forwarding6)
		}
	}
}
