package reach

import (
	"fmt"
	"slices"

	"sluice/internal/base/bdd"
	"sluice/internal/base/packet"
	"sluice/internal/program"
)

// Difference is packets that two programs treat each in its own way.
type Difference struct {
	Way     Way
	A, B    Outcome // of the witness
	Region  Region
	Witness packet.Packet
}

// String is a difference on one line.
func (d Difference) String() string {
	return fmt.Sprintf("%s %s: %s against %s", d.Way, Describe(d.Witness), d.A, d.B)
}

// String is what happens to packets, on one line.
func (o Outcome) String() string {
	text := string(o.Verdict)
	if o.Chain != "" {
		text += " in " + o.Chain
	}
	if o.Origin.Line > 0 {
		text += fmt.Sprintf(" by %s:%d", o.Origin.File, o.Origin.Line)
	}
	if len(o.Change) > 0 {
		text += fmt.Sprintf(" %q", o.Change)
	}
	if len(o.Effects) > 0 {
		text += fmt.Sprintf(" %q", o.Effects)
	}
	return text
}

// Describe is a packet on one line.
func Describe(p packet.Packet) string {
	text := fmt.Sprintf("protocol %d %s > %s", p.Protocol, p.Source, p.Destination)
	switch {
	case p.HasPorts():
		text = fmt.Sprintf("protocol %d %s port %d > %s port %d", p.Protocol, p.Source, p.SourcePort, p.Destination, p.Port)
	case p.Protocol == packet.ICMP || p.Protocol == packet.ICMPv6:
		text += fmt.Sprintf(" type %d", p.ICMPType)
	}
	if p.Protocol == packet.TCP {
		text += fmt.Sprintf(" flags %#x", p.Flags)
	}
	if p.In != "" {
		text += " in " + p.In
	}
	if p.Out != "" {
		text += " out " + p.Out
	}
	if p.State != "" {
		text += " " + string(p.State)
	}
	return text
}

// Compare says for which packets two programs are not equal: their verdict, and
// of what passes the rewriting and tracking, and with effects what is counted,
// logged, limited and noted. None means that it is proved for every packet that
// the universe, made of both, has. What one refuses before routing and the other one
// lets be routed another way is compared there.
func (u *Universe) Compare(a, b *program.Program, effects bool) []Difference {
	var out []Difference
	for _, way := range everyWay {
		first, second := u.treated(a, way), u.treated(b, way)
		left := u.unequal(first, second, effects)
		if left != bdd.None {
			left = u.Minus(left, u.Or(u.Minus(u.early(first), u.seen(second)), u.Minus(u.early(second), u.seen(first))))
		}
		if left != bdd.None {
			out = append(out, u.differences(way, a, b, left)...)
		}
	}
	return out
}

// seen is the packets that outcomes are of.
func (u *Universe) seen(list []Outcome) Region {
	out := bdd.None
	for i := range list {
		out = u.Or(out, list[i].Region)
	}
	return out
}

// early is those of them that were refused before routing.
func (u *Universe) early(list []Outcome) Region {
	out := bdd.None
	for i := range list {
		out = u.Or(out, list[i].early)
	}
	return out
}

// key is in what outcomes are compared.
func (o *Outcome) key(effects bool) string {
	key := fmt.Sprintf("%s %q", o.Verdict, o.change)
	if effects {
		key += fmt.Sprintf(" %q", o.Effects)
	}
	return key
}

// unequal is the packets of which two lists of outcomes do not say the same. In each
// list the outcomes are disjoint.
func (u *Universe) unequal(a, b []Outcome, effects bool) Region {
	by := [2]map[string]Region{{}, {}}
	for side, list := range [][]Outcome{a, b} {
		for i := range list {
			k := list[i].key(effects)
			by[side][k] = u.Or(by[side][k], list[i].Region)
		}
	}
	out := bdd.None
	for side := range by {
		for k, r := range by[side] {
			out = u.Or(out, u.Minus(r, by[1-side][k]))
		}
	}
	return out
}

// mostDifferences is how many differences are named one by one; the last one is
// of all the rest.
const mostDifferences = 50

func (u *Universe) differences(way Way, a, b *program.Program, left Region) []Difference {
	var out []Difference
	first, second := u.Outcomes(a, way), u.Outcomes(b, way)
	nothing := Outcome{Verdict: "leaves this way"}
	for len(out) < mostDifferences && left != bdd.None {
		d := Difference{Way: way, Witness: u.Witness(way, left), A: nothing, B: nothing, Region: left}
		for _, side := range []struct {
			of []Outcome
			is *Outcome
		}{{first, &d.A}, {second, &d.B}} {
			if i := slices.IndexFunc(side.of, func(o Outcome) bool { return u.hasWitness(o.Region, way, left) }); i >= 0 {
				*side.is = side.of[i]
				d.Region = u.And(d.Region, side.of[i].Region)
			}
		}
		out = append(out, d)
		left = u.Minus(left, d.Region)
	}
	return out
}

// hasWitness says whether the witness of a region is in another one too.
func (u *Universe) hasWitness(r Region, way Way, of Region) bool {
	return u.And(r, u.witnessClass(way, of)) != bdd.None
}

// witnessClass is the packets that no program tells from the witness of a region.
func (u *Universe) witnessClass(way Way, r Region) Region {
	r = u.And(r, u.all(way))
	for _, usual := range u.usual(way) {
		if both := u.And(r, usual); both != bdd.None {
			r = both
		}
	}
	bits := u.space.Witness(r)
	out := bdd.Every
	for _, d := range u.dimensions {
		code := 0
		for i := range d.bits {
			code <<= 1
			if bits[d.first+i] {
				code |= 1
			}
		}
		out = u.And(out, d.region(u.space, one(code, d.classes)))
	}
	return out
}
