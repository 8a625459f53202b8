package nftables

import (
	"context"
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"sluice/internal/addrset"
	live "sluice/internal/measure"
	"sluice/internal/testnet"
)

// TestMeasurePacketCost prints what a packet pays for single expressions, beside
// the constants of cost_measured.go: UDP from one address, behind a rule that
// leaves tracking out of it.
func TestMeasurePacketCost(t *testing.T) {
	if !*measure {
		t.Skip("asked for by -measure")
	}
	net := testnet.New(t)
	live.Require(t)
	source, err := live.Load(live.UDP([]netip.Addr{netip.MustParseAddr("192.0.2.1")}, live.Target(addrset.IPv4, 80)))
	if err != nil {
		t.Fatal(err)
	}
	defer source.Close()
	exact := make([]string, 650)
	ranges := make([]string, 4096)
	for i := range exact {
		exact[i] = fmt.Sprintf("203.0.%d.%d", i/250, i%250+1)
	}
	for i := range ranges {
		ranges[i] = fmt.Sprintf("10.%d.%d.0/25", i/256, i%256)
	}
	const one = "one"
	variants := []struct {
		name, rule string
		constant   float64
	}{
		{one, "meta mark 1 accept", 0},
		{"base chain", "", packetBase},
		{"compare", "meta mark 7 accept", packetCompare},
		{"name", "iifname other accept", packetName},
		{"range", "meta mark 7-9 accept", packetRange},
		{"some", "udp dport { 1, 7, 9 } accept", packetSome + packetCompare},
		{"hash", "ip saddr @exact accept", packetHash + packetCompare},
		{"interval", "ip saddr @ranges accept", packetInterval + 12*packetHalve + packetCompare},
		{"route", "fib saddr type local accept", packetRoute},
		{"jump", "jump elsewhere", packetJump},
		{"counter", "counter name counted", packetCounter},
		{"limit", "limit rate 1/second accept", packetLimit},
	}
	var cells []live.Cell
	for i, v := range variants {
		lab, err := live.NewLab(net, fmt.Sprintf("price%d", i))
		if err != nil {
			t.Fatal(err)
		}
		more := ""
		if v.name == "base chain" {
			more = "chain more { type filter hook prerouting priority -300; meta mark 1 accept; }\n"
		}
		rule := v.rule
		if rule != "" && v.name != one {
			rule = "meta mark 1 accept; " + rule
		}
		err = lab.Nft(fmt.Sprintf(`table inet prices {
	counter counted { }
	set exact { type ipv4_addr; elements = { %s }; }
	set ranges { type ipv4_addr; flags interval; elements = { %s }; }
	chain elsewhere { }
	%s
	chain input { type filter hook input priority 0; %s; }
}
`, strings.Join(exact, ", "), strings.Join(ranges, ", "), more, strings.TrimSuffix("meta mark 1 accept; "+strings.TrimPrefix(rule, "meta mark 1 accept; "), "; ")))
		if err != nil {
			t.Fatalf("%s: %v", v.name, err)
		}
		cells = append(cells, live.Cell{Name: v.name, Lab: lab, Source: source, Survives: live.All})
	}
	r, err := live.Compare(context.Background(), live.Plan{Rounds: 31, Packets: 1 << 15}, cells)
	if err != nil {
		t.Fatal(err)
	}
	for _, v := range variants[1:] {
		t.Logf("%-12s %6.1f ns, constant %.0f", v.name, r.Added(v.name, one).Estimate().Median, v.constant)
	}
}
