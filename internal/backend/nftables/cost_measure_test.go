package nftables

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"strings"
	"testing"
	"time"

	"sluice/internal/addrset"
	"sluice/internal/backend"
	measuring "sluice/internal/measure"
	"sluice/internal/testnet"
)

// TestMeasureCost prints the constants of cost_measured.go as they are here.
func TestMeasureCost(t *testing.T) {
	if !*measure {
		t.Skip("asked for by -measure")
	}
	host := kernelHost(t)
	account := newAccount(t)
	v4 := func(i int) netip.Addr {
		return netip.AddrFrom4([4]byte{byte(10 + i>>22), byte(i >> 14), byte(i >> 6), byte(i << 2)})
	}
	v6 := func(i int) netip.Addr {
		return netip.MustParseAddr(fmt.Sprintf("2001:db8:%x:%x::1", i>>16, i&0xffff))
	}
	wide := func(at func(int) netip.Addr) func(*Set, int) {
		return func(s *Set, n int) {
			var b addrset.Builder
			for i := range n {
				b.AddRange(addrset.Range{From: at(i), To: at(i).Next()})
			}
			s.Interval, s.Elements.Addresses = true, b.Set()
		}
	}
	single := func(at func(int) netip.Addr) func(*Set, int) {
		return func(s *Set, n int) {
			var b addrset.Builder
			for i := range n {
				b.AddRange(addrset.Range{From: at(i), To: at(i)})
			}
			s.Size, s.Elements.Addresses = n, b.Set()
		}
	}
	tuples := func(text func(i int) string) func(*Set, int) {
		return func(s *Set, n int) {
			for i := range n {
				s.Elements.Tuples = append(s.Elements.Tuples, text(i))
				if s.Verdicts {
					s.Elements.Verdicts = append(s.Elements.Verdicts, fmt.Sprintf("jump c%d", i%64))
				}
			}
			s.Elements.sortTuples()
			if !s.Interval {
				s.Size = n
			}
		}
	}
	number := func(i int) string { return fmt.Sprint(i) }
	const many = 64 // sets at a time
	for _, kind := range []struct {
		name   string
		set    Set
		fill   func(*Set, int)
		counts [2]int
		sets   int
	}{
		{"hash, IPv4", Set{Types: []string{"ipv4_addr"}}, single(v4), [2]int{16384, 49152}, 1},
		{"hash, IPv6", Set{Types: []string{"ipv6_addr"}}, single(v6), [2]int{16384, 49152}, 1},
		{"hash, IPv4, counted", Set{Types: []string{"ipv4_addr"}, Counted: true}, single(v4), [2]int{16384, 49152}, 1},
		{"hash, 4 bytes", Set{Types: []string{"@nh,64,32"}}, tuples(number), [2]int{16384, 49152}, 1},
		{"map, 1 byte", Set{Types: []string{"@nh,96,8"}, Verdicts: true}, tuples(number), [2]int{16, 256}, many},
		{"map, 2 bytes", Set{Types: []string{"@nh,96,16"}, Verdicts: true}, tuples(number), [2]int{16384, 49152}, 1},
		{"bitmap, 1 byte", Set{Types: []string{"@nh,96,8"}}, tuples(number), [2]int{4, 128}, many},
		{"bitmap, 2 bytes", Set{Types: []string{"@nh,96,16"}}, tuples(number), [2]int{32, 512}, many},
		{"bitmap, 2 bytes, full", Set{Types: []string{"@nh,96,16"}}, tuples(number), [2]int{512, 8192}, 1},
		{"intervals, IPv4, small", Set{Types: []string{"ipv4_addr"}}, wide(v4), [2]int{8, 256}, many},
		{"intervals, IPv4, medium", Set{Types: []string{"ipv4_addr"}}, wide(v4), [2]int{256, 4096}, 4},
		{"intervals, IPv4, large", Set{Types: []string{"ipv4_addr"}}, wide(v4), [2]int{4096, 49152}, 1},
		{"intervals, IPv6, small", Set{Types: []string{"ipv6_addr"}}, wide(v6), [2]int{8, 256}, many},
		{"intervals, IPv6, medium", Set{Types: []string{"ipv6_addr"}}, wide(v6), [2]int{256, 4096}, 4},
		{"intervals, IPv6, large", Set{Types: []string{"ipv6_addr"}}, wide(v6), [2]int{4096, 98304}, 1},
		{"concatenation", Set{Types: []string{"ipv4_addr", "mark"}, Interval: true}, tuples(func(i int) string { return v4(i).String() + "/31 . 80" }), [2]int{4096, 16384}, 1},
	} {
		var bytes [2]uint64
		var took, define [2]time.Duration
		for i, n := range kind.counts {
			definitions := "add table inet m\n"
			var fill contents
			fill.table = "m"
			for c := range 64 {
				definitions += fmt.Sprintf("add chain inet m c%d\n", c)
			}
			for s := range kind.sets {
				k := kind.set
				k.Name = fmt.Sprintf("s%d", s)
				kind.fill(&k, n)
				definitions += fmt.Sprintf("add %s inet m %s { %s }\n", k.noun(), k.Name, k.definition())
				fill.edits = append(fill.edits, edit{insert: &k})
			}
			base, _ := account.take(t, host.Namespace, backend.Step{Text: "add table inet m\n"})
			_ = base
			defined, time1 := account.take(t, host.Namespace, backend.Step{Text: definitions})
			filled, time2 := account.take(t, host.Namespace, backend.Step{Contents: &fill})
			bytes[i], took[i], define[i] = defined+filled, time2, time1
			host.Nft("delete table inet m")
			time.Sleep(300 * time.Millisecond) // the kernel frees behind a grace period
		}
		n := uint64(kind.counts[1]-kind.counts[0]) * uint64(kind.sets)
		each := float64(bytes[1]-bytes[0]) / float64(n)
		t.Logf("%-26s %6.0f bytes, %6d ns an element; %7.0f bytes, %6.1f us a set", kind.name, each, uint64(took[1]-took[0])/n,
			(float64(bytes[0])-each*float64(kind.counts[0]*kind.sets))/float64(kind.sets), float64(define[0].Microseconds())/float64(kind.sets))
	}
	for _, what := range []struct {
		name string
		line func(i int) string
	}{
		{"rule", func(i int) string {
			return fmt.Sprintf("add rule inet m c ip saddr 192.0.2.%d tcp dport %d accept comment \"policy.yaml:12 allow web from served\"\n", i%256, i)
		}},
		{"rule of a layout", func(i int) string { return "add rule inet m c @nh,96,8 @s drop\n" }},
		{"chain", func(i int) string { return fmt.Sprintf("add chain inet m served4_%d_0123abcd\n", i) }},
	} {
		var bytes [2]uint64
		var took [2]time.Duration
		for i, n := range [2]int{500, 2500} {
			var b strings.Builder
			for j := range n {
				b.WriteString(what.line(j))
			}
			account.take(t, host.Namespace, backend.Step{Text: "add table inet m\nadd chain inet m c { type filter hook input priority 0; }\nadd set inet m s { typeof @nh,96,8; }\n"})
			bytes[i], took[i] = account.take(t, host.Namespace, backend.Step{Text: b.String()})
			host.Nft("delete table inet m")
			time.Sleep(300 * time.Millisecond)
		}
		t.Logf("%-26s %6d bytes, %6d ns each", what.name, (bytes[1]-bytes[0])/2000, uint64(took[1]-took[0])/2000)
	}
}

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
