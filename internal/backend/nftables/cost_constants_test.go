package nftables

import (
	"encoding/json"
	"math"
	"reflect"
	"slices"
	"strings"
	"testing"

	"sluice/internal/base/addrset"
	"sluice/internal/program"
)

// farApart is n IPv4 ranges of 16 addresses, each in a place of its own.
func farApart(n int) addrset.Set {
	var b addrset.Builder
	for i := range uint32(n) {
		b.Add4(1<<28+i<<14, 1<<28+i<<14+15)
	}
	return b.Set()
}

func chosenOf(t *testing.T, p *program.Program) *artifact {
	t.Helper()
	a, err := New().Lower(p, everything)
	if err != nil {
		t.Fatal(err)
	}
	return a.(*artifact)
}

// leaves are the names of all numbers of a JSON form.
func leaves(prefix string, v any) []string {
	object, is := v.(map[string]any)
	if !is {
		return []string{prefix}
	}
	var out []string
	for name, part := range object {
		out = append(out, leaves(strings.TrimPrefix(prefix+"."+name, "."), part)...)
	}
	return out
}

// TestConstants: each figure of a model is a constant of its name in JSON, which
// ends in its unit, and has a default within its bounds.
func TestConstants(t *testing.T) {
	var names []string
	m := DefaultCosts()
	for i, c := range Constants() {
		names = append(names, c.Name)
		if err := c.Refuse(c.Of(&m)); err != nil {
			t.Errorf("the default of %v", err)
		}
		if !strings.HasSuffix(c.Name, "-"+c.Unit) || c.What == "" || c.Least < 0 {
			t.Errorf("%+v", c)
		}
		c.Set(&m, 1000+float64(i))
	}
	text, err := json.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	var all any
	if err := json.Unmarshal(text, &all); err != nil {
		t.Fatal(err)
	}
	written := leaves("", all)
	slices.Sort(written)
	if sorted := slices.Sorted(slices.Values(names)); !slices.Equal(sorted, written) {
		t.Errorf("constants %q\nin JSON %q", sorted, written)
	}
	seen := map[float64]bool{}
	for i, c := range Constants() {
		if got := c.Of(&m); got != 1000+float64(i) || seen[got] {
			t.Errorf("%s is %g: two constants are one", c.Name, got)
		}
		seen[c.Of(&m)] = true
	}
	if n := reflect.TypeFor[CostModel]().NumField(); n != 5 {
		t.Errorf("%d parts", n)
	}
}

// TestNonsense: what cannot be meant is refused by the constant's name.
func TestNonsense(t *testing.T) {
	for _, value := range []float64{math.NaN(), math.Inf(1), math.Inf(-1), -1, 1e12} {
		for _, c := range Constants() {
			m := DefaultCosts()
			c.Set(&m, value)
			bad, err := m.Check()
			if err == nil || bad.Name != c.Name || !strings.Contains(err.Error(), c.Name) {
				t.Errorf("%s = %g: got %s, %v", c.Name, value, bad.Name, err)
			}
		}
	}
	m := DefaultCosts()
	if _, err := m.Check(); err != nil {
		t.Errorf("the defaults are refused: %v", err)
	}
	m.Lookup.Hash.Of4096 = m.Lookup.Hash.Of256 - 1
	if c, err := m.Check(); c.Name != "lookup.hash-set.of-4096-ns" || err == nil {
		t.Errorf("a curve that falls: got %s, %v", c.Name, err)
	}
}

// TestCostsChoose: a layout is chosen by the figures that the backend was given, and
// kept where it is told what was chosen before, whatever the figures say then.
func TestCostsChoose(t *testing.T) {
	p := dropping(farApart(4096))
	much := DefaultCosts()
	much.Sets.Map.Element = 1 << 20
	chosen := func(b interface{ Choices() map[string]string }) string { return b.Choices()["set served, IPv4"] }
	lowered := map[string]*artifact{}
	for name, costs := range map[string]CostModel{"little": DefaultCosts(), "much": much} {
		a, err := New(Costs(costs)).Lower(p, everything)
		if err != nil {
			t.Fatal(err)
		}
		lowered[name] = a.(*artifact)
	}
	if got := chosen(lowered["much"]); got != "one interval set" {
		t.Errorf("where a map takes all memory, %q was chosen", got)
	}
	if got := chosen(lowered["little"]); got == "one interval set" || got == "" {
		t.Errorf("where it takes little, %q was chosen", got)
	}
	if reflect.DeepEqual(lowered["little"].Cost(), lowered["much"].Cost()) || lowered["little"].Text() == lowered["much"].Text() {
		t.Error("both are the same")
	}
	for name, other := range map[string]CostModel{"little": much, "much": DefaultCosts()} {
		want := lowered[name]
		again, err := made(Table, []Option{Costs(other)}).Keeping(want.Choices()).Lower(p, everything)
		if err != nil {
			t.Fatal(err)
		}
		if got := again.(*artifact); got.Text() != want.Text() || chosen(got) != chosen(want) {
			t.Errorf("%s: kept was %q, not %q", name, chosen(got), chosen(want))
		}
	}
}

// TestLargeSetsArePricedByLayout: what a packet costs for a large set is what its
// layout costs, of the packet's own family.
func TestLargeSetsArePricedByLayout(t *testing.T) {
	p := dropping(farApart(4096))
	costs := DefaultCosts()
	prices := made(Table, []Option{Costs(costs)}).Prices(p)
	var c program.Condition
	for i := range p.Chains {
		for _, r := range p.Chains[i].Rules {
			if len(r.Match) > 0 && r.Match[0].Set == "served" {
				c = r.Match[0]
			}
		}
	}
	a := chosenOf(t, p)
	var want float64
	for _, l := range a.Layouts()[0].Candidates {
		if l.Name == a.Layouts()[0].Chosen {
			want = l.NS() + costs.Packet.Compare
		}
	}
	if got := prices.Condition(&c, 4); got != want || got == 0 {
		t.Errorf("an IPv4 packet pays %g ns, its layout %g", got, want)
	}
	if got := prices.Condition(&c, 6); got == want {
		t.Errorf("an IPv6 packet pays %g ns too", got)
	}
}
