package calibrate

import (
	"context"
	"fmt"
	"net/netip"
	"strings"

	"sluice/internal/base/addrset"
	"sluice/internal/lab/measure"
	"sluice/internal/lab/testnet"
)

// repeated is how often the rule under test is in a chain: one alone costs as
// little as two injections differ by.
const repeated = 8

// bench is a group of cells that are measured in turns.
type bench struct {
	net   *testnet.Net
	cells []measure.Cell
	label string
}

// add makes a lab with a ruleset that lets every packet pass.
func (b *bench) add(name, ruleset string, source *measure.Source) error {
	lab, err := measure.NewLab(b.net, fmt.Sprintf("%s%d", b.label, len(b.cells)))
	if err != nil {
		return err
	}
	if err := lab.Nft(ruleset); err != nil {
		return fmt.Errorf("load the rules of %q: %w", name, err)
	}
	b.cells = append(b.cells, measure.Cell{Name: name, Lab: lab, Source: source, Survives: measure.All})
	return nil
}

func (b *bench) run(ctx context.Context, o Options, what string) (*measure.Result, error) {
	return measure.Compare(ctx, measure.Plan{Rounds: o.Rounds, Packets: o.Packets, Begin: func(round int) {
		o.Say("%s: round %d of %d", what, round+1, o.Rounds)
	}}, b.cells)
}

const (
	bare  = "bare"
	again = "bare, again"
	bare6 = "bare, IPv6"
)

// packets measures what is asked of packets in sets and fields that are near: UDP
// from one address of each family.
func (m *Measured) packets(ctx context.Context, net *testnet.Net, o Options) error {
	o.Say("rules for packets")
	source, err := measure.Load(measure.UDP([]netip.Addr{netip.MustParseAddr("192.0.2.1")}, measure.Target(addrset.IPv4, 80)))
	if err != nil {
		return err
	}
	defer source.Close()
	source6, err := measure.Load(measure.UDP([]netip.Addr{netip.MustParseAddr("2001:db8:1::1")}, measure.Target(addrset.IPv6, 80)))
	if err != nil {
		return err
	}
	defer source6.Close()
	exact := make([]string, 650)
	for i := range exact {
		exact[i] = fmt.Sprintf("203.0.%d.%d", i/250, i%250+1)
	}
	ranges := make([]string, 4096)
	for i := range ranges {
		ranges[i] = fmt.Sprintf("10.%d.%d.0/25", i/256, i%256)
	}
	b := bench{net: net, label: "p"}
	for _, v := range []struct{ name, rule, objects string }{
		{bare, "", ""},
		{again, "", ""},
		{"base", "", more(repeated)},
		{"compare", "meta mark 7 accept", ""},
		{"name", "iifname other accept", ""},
		{"range", "meta mark 7-9 accept", ""},
		{"some", "udp dport { 1, 7, 9 } accept", ""},
		{"hash", "ip saddr @exact accept", fmt.Sprintf("set exact { type ipv4_addr; elements = { %s }; }", strings.Join(exact, ", "))},
		{"interval 16", "ip saddr @ranges accept", fmt.Sprintf("set ranges { type ipv4_addr; flags interval; elements = { %s }; }", strings.Join(ranges[:16], ", "))},
		{"interval 4096", "ip saddr @ranges accept", fmt.Sprintf("set ranges { type ipv4_addr; flags interval; elements = { %s }; }", strings.Join(ranges, ", "))},
		{"route", "fib saddr type local accept", ""},
		{bare6, "", ""},
		{"route IPv6", "fib saddr type local accept", ""},
		{"jump", "jump elsewhere", "chain elsewhere { }"},
		{"counter", "counter name counted", "counter counted { }"},
		{"limit", "limit rate 1/second accept", ""},
		{"bucket", "update @sources { ip saddr limit rate 1/second } accept", "set sources { type ipv4_addr; flags dynamic; size 65536; }"},
		{"mark", "meta mark set 0", ""},
		{"rewrite", "ip saddr set 192.0.2.1", ""},
		{"state", "ct state new continue", ""},
		{"tracked", "ct state new continue; add @connections { ip saddr ct count over 100000 } accept", "set connections { type ipv4_addr; flags dynamic; size 65536; }"},
	} {
		rules := strings.Repeat(v.rule+"; ", repeated)
		if strings.HasPrefix(v.rule, "ct ") {
			rules = v.rule + "; " // connections are counted once
		}
		if v.rule == "" {
			rules = ""
		}
		from := source
		if strings.HasSuffix(v.name, "IPv6") {
			from = source6
		}
		err := b.add(v.name, fmt.Sprintf("table inet prices {\n%s\nchain input { type filter hook input priority 0; %s }\n}\n", v.objects, rules), from)
		if err != nil {
			return err
		}
	}
	r, err := b.run(ctx, o, "rules for packets")
	if err != nil {
		return err
	}
	added := func(name string) []float64 { return times(r.Added(name, bare), repeated) }
	m.Same = r.Added(again, bare)
	m.take("packet.base-chain-ns", added("base"))
	for _, name := range []string{"compare", "name", "range", "mark", "route", "jump", "counter", "limit"} {
		m.take("packet."+name+"-ns", added(name))
	}
	m.take("packet.route-ipv6-ns", times(r.Added("route IPv6", bare6), repeated))
	// What asks an address or a port compares the family or the protocol before.
	compare := m.median("packet.compare-ns")
	for _, name := range []string{"some", "hash", "bucket", "rewrite"} {
		m.take("packet."+name+"-ns", less(added(name), compare))
	}
	m.interval(less(added("interval 16"), compare), less(added("interval 4096"), compare))
	m.take("packet.tracked-ns", r.Added("tracked", "state"))
	return nil
}

// interval makes two constants of lookups in two sizes: one grows by each doubling,
// as prices have it.
func (m *Measured) interval(small, large []float64) {
	doublings := doubledFrom(4096) - doubledFrom(16)
	var doubled, first []float64
	for i := range small {
		d := max(0, (large[i]-small[i])/doublings)
		doubled, first = append(doubled, d), append(first, max(0, small[i]-d*doubledFrom(16)))
	}
	m.take("packet.interval-doubled-ns", doubled)
	m.take("packet.interval-ns", first)
}

// more are base chains that do nothing.
func more(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, "chain more%d { type filter hook prerouting priority %d; }\n", i, -310-i)
	}
	return b.String()
}
