package nftables

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"strings"
	"testing"

	"sluice/internal/addrset"
	measuring "sluice/internal/measure"
	"sluice/internal/testnet"
)

// scattered is n ranges of 16 addresses, spread evenly over what is not special.
func scattered(n int, random *rand.Rand) addrset.Set {
	var b addrset.Builder
	for i := range n {
		at := 1<<28 + uint32((float64(i)+random.Float64()*0.9)/float64(n)*(1<<30))&^15
		from := netip.AddrFrom4([4]byte{byte(at >> 24), byte(at >> 16), byte(at >> 8), byte(at)})
		to := netip.AddrFrom4([4]byte{byte(at >> 24), byte(at >> 16), byte(at >> 8), byte(at) | 15})
		b.AddRange(addrset.Range{From: from, To: to})
	}
	return b.Set()
}

// TestMeasureLookups prints what lookups cost a packet.
func TestMeasureLookups(t *testing.T) {
	if !*measure {
		t.Skip("asked for by -measure")
	}
	measuring.Require(t)
	net := testnet.New(t)
	random := rand.New(rand.NewPCG(4, 4))
	var cells []measuring.Cell
	count := 0
	add := func(name, ruleset string, sources []netip.Addr, survives func(int) bool) {
		t.Helper()
		lab, err := measuring.NewLab(net, fmt.Sprintf("l%d", count))
		if err != nil {
			t.Fatal(err)
		}
		count++
		if err := lab.Nft(ruleset); err != nil {
			t.Fatal(err)
		}
		s, err := measuring.Load(measuring.UDP(sources, measuring.Target(addrset.IPv4, 9)))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(s.Close)
		cells = append(cells, measuring.Cell{Name: name, Lab: lab, Source: s, Survives: survives})
	}
	table := func(sets, rules string) string {
		return "table inet t {\n" + sets + "\nchain in { type filter hook input priority 0; policy accept;\n" + rules + "\n}\n}\n"
	}
	anywhere := measuring.ByAddress(scattered(1<<16, random), addrset.IPv4, measuring.Sources, 1)
	add("bare", "table inet t { }", anywhere, measuring.All)
	const times = 8
	add("question", table("", strings.Repeat("@nh,96,8 1 drop\n", times)), anywhere, measuring.All)
	bytes := make([]string, 0, 64)
	for i := range 64 {
		bytes = append(bytes, fmt.Sprint(200+i%50))
	}
	_ = bytes
	var sets strings.Builder
	var rules strings.Builder
	for i := range times {
		fmt.Fprintf(&sets, "set b%d { typeof @nh,96,8; elements = { 1, 2, 3, 250, 251 }; }\n", i)
		fmt.Fprintf(&rules, "@nh,96,8 @b%d drop\n", i)
	}
	add("bitmap", table(sets.String(), rules.String()), anywhere, measuring.All)
	sets.Reset()
	rules.Reset()
	for i := range times {
		fmt.Fprintf(&sets, "set b%d { typeof @nh,96,16; elements = { 1, 2, 3, 250, 251 }; }\n", i)
		fmt.Fprintf(&rules, "@nh,96,16 @b%d drop\n", i)
	}
	add("wide", table(sets.String(), rules.String()), anywhere, measuring.All)
	var values []string
	for i := range 256 {
		values = append(values, fmt.Sprintf("%d : jump c", i))
	}
	add("map", table("chain c { }\nmap m { typeof @nh,96,8 : verdict; size 256; elements = { "+strings.Join(values, ", ")+" }; }", strings.Repeat("@nh,96,8 vmap @m\n", times)), anywhere, measuring.All)
	add("jump", table("chain c { }", strings.Repeat("jump c\n", times)), anywhere, measuring.All)
	for _, n := range []int{16, 256, 4096, 16384, 65536} {
		s := scattered(n, random)
		add(fmt.Sprint("interval ", n), table("set s { type ipv4_addr; flags interval; elements = { "+strings.ReplaceAll(s.String(), ", ", ",")+" }; }", "ip saddr @s drop"),
			measuring.ByRange(s, addrset.IPv4, measuring.Sources, 1), measuring.None)
		var single addrset.Builder
		for r := range s.Each() {
			single.AddRange(addrset.Range{From: r.From, To: r.From})
		}
		one := single.Set()
		add(fmt.Sprint("hash ", n), table(fmt.Sprintf("set s { type ipv4_addr; size %d; elements = { %s }; }", n, one), "ip saddr @s drop"),
			measuring.ByAddress(one, addrset.IPv4, measuring.Sources, 1), measuring.None)
	}
	r, err := measuring.Compare(t.Context(), measuring.Plan{Rounds: 11, Packets: 1 << 15}, cells)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range cells {
		added := r.Added(c.Name, "bare").Estimate()
		t.Logf("%-16s %v ns, each %.1f", c.Name, added, added.Median/times)
	}
}
