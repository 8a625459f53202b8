package nftables

import (
	"bufio"
	"context"
	"flag"
	"fmt"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"sluice/internal/kernel/nft"
)

var measure = flag.Bool("measure", false, "measure what elements take in the kernel at hand")

// TestMeasureCost prints the constants of cost_measured.go as they are here.
func TestMeasureCost(t *testing.T) {
	if !*measure {
		t.Skip("asked for by -measure")
	}
	host := kernelHost(t)
	v4 := func(i int) string {
		return netip.AddrFrom4([4]byte{byte(10 + i>>22), byte(i >> 14), byte(i >> 6), byte(i << 2)}).String()
	}
	v6 := func(i int) string {
		return netip.MustParseAddr(fmt.Sprintf("2001:db8:%x:%x::1", i>>16, i&0xffff)).String()
	}
	for _, layout := range []struct {
		name, definition string
		element          func(i int) string
	}{
		{"hash IPv4", "type ipv4_addr;", v4},
		{"hash IPv6", "type ipv6_addr;", v6},
		{"hash IPv4 counted", "type ipv4_addr; counter;", v4},
		{"interval IPv4", "type ipv4_addr; flags interval;", func(i int) string { return v4(i) + "-" + netip.MustParseAddr(v4(i)).Next().String() }},
		{"interval IPv6", "type ipv6_addr; flags interval;", func(i int) string { return v6(i) + "-" + netip.MustParseAddr(v6(i)).Next().String() }},
		{"interval IPv4 counted", "type ipv4_addr; flags interval; counter;", func(i int) string { return v4(i) + "-" + netip.MustParseAddr(v4(i)).Next().String() }},
		{"concatenation with ranges", "type ipv4_addr . inet_proto . inet_service; flags interval;", func(i int) string { return v4(i) + "/31 . tcp . 80" }},
		{"dynamic", "type ipv4_addr; flags dynamic,timeout; size 1000000; timeout 1h;", v4},
	} {
		var bytes [2]uint64
		var took [2]time.Duration
		counts := [2]int{8192, 40960}
		for i, n := range counts {
			items := make([]string, n)
			for j := range items {
				items[j] = layout.element(j)
			}
			text := "add table inet m\nadd set inet m s { " + layout.definition + " }\n" + elementText("add", "inet m", "s", items)
			before := slabBytes(t)
			begin := time.Now()
			if err := host.Do(func() error { return nft.Run(context.Background(), text) }); err != nil {
				t.Fatal(err)
			}
			took[i], bytes[i] = time.Since(begin), slabBytes(t)-before
			host.Nft("delete table inet m")
			time.Sleep(500 * time.Millisecond) // the kernel frees behind a grace period
		}
		n := uint64(counts[1] - counts[0])
		t.Logf("%-28s %5d bytes, %6d ns an element", layout.name, (bytes[1]-bytes[0])/n, uint64(took[1]-took[0])/n)
	}
	rules := func(n int) string {
		var b strings.Builder
		b.WriteString("add table inet m\nadd chain inet m c { type filter hook input priority 0; }\n")
		for i := range n {
			fmt.Fprintf(&b, "add rule inet m c ip saddr 192.0.2.%d tcp dport %d accept comment \"policy.yaml:12 allow web from served\"\n", i%256, i)
		}
		return b.String()
	}
	var bytes [2]uint64
	var took [2]time.Duration
	for i, n := range [2]int{500, 5500} {
		before, begin := slabBytes(t), time.Now()
		if err := host.Do(func() error { return nft.Run(context.Background(), rules(n)) }); err != nil {
			t.Fatal(err)
		}
		took[i], bytes[i] = time.Since(begin), slabBytes(t)-before
		host.Nft("delete table inet m")
		time.Sleep(500 * time.Millisecond)
	}
	t.Logf("%-28s %5d bytes, %6d ns a rule", "rule", (bytes[1]-bytes[0])/5000, uint64(took[1]-took[0])/5000)
}

// slabBytes is what kernel objects take on this machine: slabs, and the arrays
// that were too large for one.
func slabBytes(t *testing.T) uint64 {
	t.Helper()
	f, err := os.Open("/proc/meminfo")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var total uint64
	for lines := bufio.NewScanner(f); lines.Scan(); {
		fields := strings.Fields(lines.Text())
		switch fields[0] {
		case "Slab:", "VmallocUsed:":
			n, err := strconv.ParseUint(fields[1], 10, 64)
			if err != nil {
				t.Fatal(err)
			}
			total += n << 10
		}
	}
	return total
}
