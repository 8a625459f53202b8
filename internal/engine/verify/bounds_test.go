package verify

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"sluice/internal/backend"
	"sluice/internal/program"
)

// mapping translates many prefixes at both ends of a forwarded packet: every pair of
// them is a kind of packets of its own.
func mapping(n int) *program.Program {
	var to, from []program.Rule
	for i := range n {
		a := netip.PrefixFrom(netip.AddrFrom4([4]byte{198, 18, byte(i), 0}), 28)
		b := netip.PrefixFrom(netip.AddrFrom4([4]byte{10, byte(i), 0, 0}), 28)
		to = append(to, program.Rule{Actions: []program.Action{program.DNATPrefix{From: a, To: b}}})
		from = append(from, program.Rule{Actions: []program.Action{program.SNATPrefix{From: b, To: a}}})
	}
	return &program.Program{
		Hooks: []program.Hook{
			{Kind: program.Prerouting, Phase: program.NAT, Default: program.Accept, Chain: "to"},
			{Kind: program.Postrouting, Phase: program.NAT, Default: program.Accept, Chain: "from"},
		},
		Chains: []program.Chain{{Name: "to", Rules: to}, {Name: "from", Rules: from}},
	}
}

// TestBounds: a proof that would take too long, or too much memory, ends, and is none.
func TestBounds(t *testing.T) {
	p := mapping(200)
	for name, b := range map[string]Bounds{"longer than": {Time: time.Millisecond}, "memory": {Memory: 1 << 20}} {
		if _, err := Prove(t.Context(), p, &backend.Lifted{Program: p}, nil, b); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v", name, err)
		}
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	why := fmt.Errorf("somebody")
	cancel(why)
	if _, err := Prove(ctx, p, &backend.Lifted{Program: p}, nil, Bounds{}); !errors.Is(err, why) {
		t.Errorf("ended by the context: %v", err)
	}
	small := mapping(3)
	if out, err := Prove(t.Context(), small, &backend.Lifted{Program: small}, nil, Bounds{Time: time.Hour, Memory: 1 << 40}); err != nil || !out.Proved {
		t.Errorf("within bounds: %v %v", out, err)
	}
}
