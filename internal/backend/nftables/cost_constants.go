package nftables

import (
	"fmt"
	"math"
)

// Constant is one figure of a [CostModel].
type Constant struct {
	Name string // its way through the JSON form: "packet.compare-ns"
	Unit string // "ns" or "bytes"
	What string // for a reader
	// What is out of these bounds is taken for nonsense: no kernel of the last ten
	// years, on no machine, is near to them.
	Least, Most float64
	at          func(*CostModel) *float64
}

// Of is the constant's value in a model.
func (c Constant) Of(m *CostModel) float64 { return *c.at(m) }

// Set gives the constant a value. Check says whether it may have it.
func (c Constant) Set(m *CostModel, value float64) { *c.at(m) = value }

// Refuse says why a value cannot be meant; nil where it can.
func (c Constant) Refuse(value float64) error {
	if math.IsNaN(value) || value < c.Least || value > c.Most {
		return fmt.Errorf("%s is %g %s, and has to be from %g to %g", c.Name, value, c.Unit, c.Least, c.Most)
	}
	return nil
}

// Constants are all figures of a model, in the order of its JSON form.
func Constants() []Constant { return append([]Constant(nil), constants...) }

// Bounds of the units.
const (
	mostNS     = 100_000.0 // of a packet
	leastNS    = 0.1
	mostLoad   = 1e9 // ns
	mostBytes  = 1 << 20
	leastBytes = 8
)

var constants = func() []Constant {
	var out []Constant
	add := func(name, unit, what string, least, most float64, at func(*CostModel) *float64) {
		out = append(out, Constant{name, unit, what, least, most, at})
	}
	bytes := func(name, what string, at func(*CostModel) *float64) {
		add("memory."+name, "bytes", what, leastBytes, mostBytes, at)
	}
	bytes("rule-bytes", "a rule with its comment", func(m *CostModel) *float64 { return &m.Memory.Rule })
	bytes("chain-bytes", "a chain without rules", func(m *CostModel) *float64 { return &m.Memory.Chain })
	bytes("set-bytes", "a set without elements", func(m *CostModel) *float64 { return &m.Memory.Set })
	bytes("object-bytes", "a named counter or limit", func(m *CostModel) *float64 { return &m.Memory.Object })
	bytes("element-counter-bytes", "what counting adds to an element", func(m *CostModel) *float64 { return &m.Memory.ElementCounter })
	bytes("element-comment-bytes", "what the name of a rule's counter adds to an element", func(m *CostModel) *float64 { return &m.Memory.ElementComment })
	bytes("dynamic-element-bytes", "a source in the table of a limit", func(m *CostModel) *float64 { return &m.Memory.DynamicElement })

	load := func(name, what string, least float64, at func(*CostModel) *float64) {
		add("load."+name, "ns", what, least, mostLoad, at)
	}
	load("base-ns", "loading a policy without rules", 1000, func(m *CostModel) *float64 { return &m.Load.Base })
	load("rule-ns", "loading a rule", 10, func(m *CostModel) *float64 { return &m.Load.Rule })
	load("chain-ns", "loading a chain", 10, func(m *CostModel) *float64 { return &m.Load.Chain })
	load("set-ns", "loading a set without elements", 10, func(m *CostModel) *float64 { return &m.Load.Set })
	load("bitmap-pair-ns", "comparing two elements of a bitmap while it is filled", 0, func(m *CostModel) *float64 { return &m.Load.BitmapPair })
	load("interval-doubled-ipv4-ns", "an element more for each doubling of a large interval set, IPv4", 0, func(m *CostModel) *float64 { return &m.Load.Longer4 })
	load("interval-doubled-ipv6-ns", "the same, IPv6", 0, func(m *CostModel) *float64 { return &m.Load.Longer6 })

	for _, k := range []struct {
		name, what string
		at         func(*CostModel) *SetCosts
	}{
		{"hash", "a hash set", func(m *CostModel) *SetCosts { return &m.Sets.Hash }},
		{"verdict-map", "a verdict map", func(m *CostModel) *SetCosts { return &m.Sets.Map }},
		{"bitmap-1-byte", "a bitmap of 1 byte", func(m *CostModel) *SetCosts { return &m.Sets.Bitmap }},
		{"bitmap-2-bytes", "a bitmap of 2 bytes", func(m *CostModel) *SetCosts { return &m.Sets.WideBitmap }},
		{"interval", "an interval set", func(m *CostModel) *SetCosts { return &m.Sets.Interval }},
		{"concatenation", "a concatenated interval set", func(m *CostModel) *SetCosts { return &m.Sets.Concatenation }},
	} {
		add("sets."+k.name+".empty-bytes", "bytes", k.what+" without elements, beyond any set", 0, mostBytes, func(m *CostModel) *float64 { return &k.at(m).Empty })
		add("sets."+k.name+".element-bytes", "bytes", "an element of "+k.what, leastBytes, mostBytes, func(m *CostModel) *float64 { return &k.at(m).Element })
		add("sets."+k.name+".element-ns", "ns", "loading an element of "+k.what, 10, mostLoad, func(m *CostModel) *float64 { return &k.at(m).Load })
	}

	ns := func(name, what string, at func(*CostModel) *float64) {
		add(name, "ns", what, leastNS, mostNS, at)
	}
	ns("lookup.question-ns", "a rule that asks for a part of an address", func(m *CostModel) *float64 { return &m.Lookup.Question })
	ns("lookup.enter-ns", "going into another chain by a verdict map", func(m *CostModel) *float64 { return &m.Lookup.Enter })
	ns("lookup.bitmap-ns", "a lookup in a bitmap", func(m *CostModel) *float64 { return &m.Lookup.Bitmap })
	for _, c := range []struct {
		name, what string
		at         func(*CostModel) *Curve
	}{
		{"interval-set", "an interval set", func(m *CostModel) *Curve { return &m.Lookup.Interval }},
		{"hash-set", "a hash set", func(m *CostModel) *Curve { return &m.Lookup.Hash }},
	} {
		for i, at := range []func(*Curve) *float64{
			func(c *Curve) *float64 { return &c.Of16 }, func(c *Curve) *float64 { return &c.Of256 }, func(c *Curve) *float64 { return &c.Of4096 },
			func(c *Curve) *float64 { return &c.Of16384 }, func(c *Curve) *float64 { return &c.Of65536 },
		} {
			ns(fmt.Sprintf("lookup.%s.of-%.0f-ns", c.name, curveSizes[i]), fmt.Sprintf("a lookup in %s of %.0f, all asked for by turns", c.what, curveSizes[i]),
				func(m *CostModel) *float64 { return at(c.at(m)) })
		}
	}

	ns("packet.base-chain-ns", "entering a base chain", func(m *CostModel) *float64 { return &m.Packet.Base })
	ns("packet.compare-ns", "comparing a field with a number", func(m *CostModel) *float64 { return &m.Packet.Compare })
	ns("packet.name-ns", "comparing the name of an interface", func(m *CostModel) *float64 { return &m.Packet.Name })
	ns("packet.range-ns", "comparing a field with a range", func(m *CostModel) *float64 { return &m.Packet.Range })
	ns("packet.some-ns", "comparing a field with some values", func(m *CostModel) *float64 { return &m.Packet.Some })
	ns("packet.hash-ns", "a lookup in a hash set", func(m *CostModel) *float64 { return &m.Packet.Hash })
	ns("packet.interval-ns", "a lookup in the smallest interval set", func(m *CostModel) *float64 { return &m.Packet.Interval })
	ns("packet.interval-doubled-ns", "and for each time that its size doubles", func(m *CostModel) *float64 { return &m.Packet.Halve })
	ns("packet.route-ns", "asking the routing table, IPv4", func(m *CostModel) *float64 { return &m.Packet.Route })
	ns("packet.route-ipv6-ns", "asking the routing table, IPv6", func(m *CostModel) *float64 { return &m.Packet.Route6 })
	ns("packet.jump-ns", "going into another chain and back", func(m *CostModel) *float64 { return &m.Packet.Jump })
	ns("packet.counter-ns", "counting", func(m *CostModel) *float64 { return &m.Packet.Counter })
	ns("packet.limit-ns", "asking a limit", func(m *CostModel) *float64 { return &m.Packet.Limit })
	ns("packet.bucket-ns", "asking the limit of a source", func(m *CostModel) *float64 { return &m.Packet.Bucket })
	ns("packet.tracked-ns", "counting the connections of a source", func(m *CostModel) *float64 { return &m.Packet.Tracked })
	ns("packet.mark-ns", "setting a mark", func(m *CostModel) *float64 { return &m.Packet.Mark })
	ns("packet.rewrite-ns", "rewriting a field", func(m *CostModel) *float64 { return &m.Packet.Rewrite })
	return out
}()

// Check says what of a model is nonsense: a value out of bounds, or a lookup that
// costs less in a larger set. The constant is the one to look at.
func (m *CostModel) Check() (Constant, error) {
	for _, c := range constants {
		if err := c.Refuse(c.Of(m)); err != nil {
			return c, err
		}
	}
	for _, of := range []struct {
		name  string
		curve *Curve
	}{{"interval-set", &m.Lookup.Interval}, {"hash-set", &m.Lookup.Hash}} {
		ns := of.curve.points()
		for i := 1; i < len(ns); i++ {
			if ns[i] < ns[i-1] {
				name := func(i int) string { return fmt.Sprintf("lookup.%s.of-%.0f-ns", of.name, curveSizes[i]) }
				c, _ := ConstantNamed(name(i))
				return c, fmt.Errorf("%s is %g ns, less than %s (%g ns)", c.Name, ns[i], name(i-1), ns[i-1])
			}
		}
	}
	return Constant{}, nil
}

// ConstantNamed is the constant of a name; false where there is none.
func ConstantNamed(name string) (Constant, bool) {
	for _, c := range constants {
		if c.Name == name {
			return c, true
		}
	}
	return Constant{}, false
}
