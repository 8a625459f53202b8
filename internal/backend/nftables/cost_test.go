package nftables

import (
	"testing"

	"sluice/internal/base/addrset"
	"sluice/internal/program"
)

// TestCost: what costs more says so.
func TestCost(t *testing.T) {
	var growth uint64
	cost := func(sets ...program.Set) (bytes, ns uint64, elements int) {
		c := construct{}
		for _, s := range sets {
			c.match = append(c.match, setOn(program.Source, s.ID))
		}
		p := c.program()
		p.Sets = append(p.Sets, sets...)
		got := mustLower(t, p).Cost()
		growth = got.Growth
		return got.Memory, got.LoadTime, got.Elements
	}
	source := []program.Field{program.Source}
	hosts := program.Set{ID: "few", Key: source, Life: program.Static, Addresses: addrset.MustParse(many(100)...)}
	wide := program.Set{ID: "wide-ones", Key: source, Life: program.Static, Addresses: addrset.MustParse(append(many(100), "198.51.100.0/24")...)}
	counted := wide
	counted.ID, counted.Counters = "counted-ones", true
	table := program.Set{ID: "table", Key: source, Life: program.Dynamic, Size: 65536}

	none, _, zero := cost()
	small, smallTime, n := cost(hosts)
	interval, intervalTime, _ := cost(wide)
	withCounters, _, _ := cost(counted)
	if growth != 0 {
		t.Errorf("sets of fixed size took %d bytes more", growth)
	}
	dynamic, _, held := cost(table)
	if zero != 0 || n != 100 || held != 0 {
		t.Errorf("elements: %d, %d, %d", zero, n, held)
	}
	if none >= small || small >= interval || interval >= withCounters || smallTime >= intervalTime {
		t.Errorf("bytes %d %d %d %d, time %d %d", none, small, interval, withCounters, smallTime, intervalTime)
	}
	if dynamic >= small || growth < 65536*uint64(defaults.Memory.DynamicElement) {
		t.Errorf("a table that may fill up costs %d bytes, and %d when it is full", dynamic, growth)
	}
}
