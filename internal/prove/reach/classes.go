package reach

import (
	"slices"
	"strings"

	"sluice/internal/base/addrset"
	"sluice/internal/base/bdd"
	"sluice/internal/base/packet"
	"sluice/internal/program"
)

// Class is packets that are told by the values of their fields alone.
type Class struct {
	Way Way
	// Fields in a fixed order; a field that is not among them may be anything.
	Fields []FieldValues
	// Witness is one packet of the class, as it arrives.
	Witness packet.Packet
	Region  Region
}

// FieldValues is what a field may be: one of the values.
type FieldValues struct {
	// Field is one of the program's, or "gate:LIMIT" (a limit lets the packet
	// through), "table:SET FIELDS" (a set that the kernel fills has them), "filled:SET FIELDS" (one that another program fills), "own:ZONE"
	// (the destination is one of the host's own addresses there),
	// "status:NAME", "opaque:TEXT", "extension:…" and "mark:…": Names then is
	// "yes" or "no".
	Field     program.Field
	Numbers   []program.NumberRange // ascending, as few as can be
	Names     []string              // of interfaces: names and wildcards
	Other     bool                  // and every name that is none of Without
	Without   []string
	Addresses addrset.Set
}

// Values gives what a class has in a field; false where it may be anything.
func (c *Class) Values(f program.Field) (FieldValues, bool) {
	for _, v := range c.Fields {
		if v.Field == f {
			return v, true
		}
	}
	return FieldValues{}, false
}

// Classes gives the packets of a region as few classes, which have no packet in
// common and are together the region. It is one of the way's.
func (u *Universe) Classes(way Way, r Region) []Class {
	all := u.all(way)
	r = u.And(r, all)
	if r == bdd.None {
		return nil
	}
	products := u.split(u.space.Restrict(u.independent(r, all), all), all)
	var out []Class
	for _, p := range u.join(products) {
		region := u.And(p.region(u), all)
		if region == bdd.None {
			continue
		}
		u.plain(p, region, all)
		c := Class{Way: way, Region: region, Witness: u.Witness(way, region)}
		for i, in := range p {
			if in != nil {
				c.Fields = append(c.Fields, u.dimensions[i].values(in))
			}
		}
		out = append(out, c)
	}
	return out
}

// independent gives a region that is the same within all, and asks no field of
// which it does not depend there. What says the most to a reader is kept.
func (u *Universe) independent(r, all Region) Region {
	out := r
	for _, d := range slices.Backward(u.dimensions) {
		if some := u.space.Exists(out, d.first, d.bits); u.And(some, all) == r {
			out = some
		}
	}
	return out
}

// plain leaves out of a product what its other fields say already: values that no
// packet of the region has, and fields of which it has all that can be.
func (u *Universe) plain(p product, region, all Region) {
	for i := range slices.Backward(p) {
		if p[i] == nil {
			continue
		}
		d := u.dimensions[i]
		p[i] = nil
		has, can := u.project(region, d), u.project(u.And(p.region(u), all), d)
		if !slices.Equal(has, can) {
			p[i] = has
		}
	}
}

// project gives the classes of a dimension that packets of a region have.
func (u *Universe) project(r Region, d *dimension) []bool {
	out := make([]bool, d.classes)
	type place struct {
		r    Region
		bit  int
		code int
	}
	seen := map[place]bool{}
	var down func(r Region, bit, code int)
	down = func(r Region, bit, code int) {
		if r == bdd.None || code >= d.classes || seen[place{r, bit, code}] {
			return
		}
		seen[place{r, bit, code}] = true
		switch level := u.space.Level(r); {
		case level < d.first:
			low, high := u.space.Branches(r)
			down(low, 0, 0)
			down(high, 0, 0)
		case bit < d.bits && level == d.first+bit:
			low, high := u.space.Branches(r)
			down(low, bit+1, code)
			down(high, bit+1, code+1<<(d.bits-bit-1))
		case bit < d.bits:
			down(r, bit+1, code)
			down(r, bit+1, code+1<<(d.bits-bit-1))
		default:
			out[code] = true
		}
	}
	down(r, 0, 0)
	return out
}

// product is the classes of each dimension; nil is all.
type product [][]bool

func (p product) region(u *Universe) Region {
	out := bdd.Every
	for i := range slices.Backward(p) {
		if p[i] != nil {
			out = u.And(out, u.dimensions[i].region(u.space, p[i]))
		}
	}
	return out
}

// split gives the products of a region that have a packet.
func (u *Universe) split(r, all Region) []product {
	var out []product
	now := make(product, len(u.dimensions))
	var down func(r, left Region, at int)
	down = func(r, left Region, at int) {
		if r == bdd.None || left == bdd.None {
			return
		}
		for at < len(u.dimensions) && u.space.Level(r) >= u.dimensions[at].first+u.dimensions[at].bits {
			at++
		}
		if at == len(u.dimensions) {
			out = append(out, slices.Clone(now))
			return
		}
		d := u.dimensions[at]
		for _, g := range u.parts(r, d) {
			now[at] = g.in
			down(g.rest, u.And(left, d.region(u.space, g.in)), at+1)
		}
		now[at] = nil
	}
	down(r, all, 0)
	return out
}

// part is the classes of one dimension behind which the same remains.
type part struct {
	rest Region
	in   []bool
}

func (u *Universe) parts(r Region, d *dimension) []part {
	var out []part
	at := map[Region]int{}
	var down func(r Region, bit, code int)
	down = func(r Region, bit, code int) {
		if code >= d.classes {
			return
		}
		if level := u.space.Level(r); bit < d.bits && level == d.first+bit {
			low, high := u.space.Branches(r)
			down(low, bit+1, code)
			down(high, bit+1, code+1<<(d.bits-bit-1))
			return
		} else if bit < d.bits && level < d.first+d.bits {
			down(r, bit+1, code)
			down(r, bit+1, code+1<<(d.bits-bit-1))
			return
		}
		if r == bdd.None {
			return
		}
		i, known := at[r]
		if !known {
			i = len(out)
			at[r] = i
			out = append(out, part{r, make([]bool, d.classes)})
		}
		for c := code; c < min(code+1<<(d.bits-bit), d.classes); c++ {
			out[i].in[c] = true
		}
	}
	down(r, 0, 0)
	return out
}

// join makes one of two products that differ in one dimension alone, as long as
// there are such.
func (u *Universe) join(list []product) []product {
	for joined := true; joined; {
		joined = false
		for at := range u.dimensions {
			seen := map[string]int{}
			var next []product
			for _, p := range list {
				key := p.but(at)
				if i, known := seen[key]; known {
					next[i] = slices.Clone(next[i])
					next[i][at] = either(next[i][at], p[at])
					joined = true
					continue
				}
				seen[key] = len(next)
				next = append(next, p)
			}
			list = next
		}
	}
	return list
}

// but is a product without one of its dimensions.
func (p product) but(at int) string {
	var b strings.Builder
	for i, in := range p {
		if i != at && in != nil {
			b.WriteString(string(rune('A'+i)) + pack(in))
		}
		b.WriteByte('|')
	}
	return b.String()
}

func either(a, b []bool) []bool {
	if a == nil || b == nil {
		return nil
	}
	out := slices.Clone(a)
	for i, is := range b {
		out[i] = out[i] || is
	}
	if !slices.Contains(out, false) {
		return nil
	}
	return out
}

// values is classes for a reader.
func (d *dimension) values(in []bool) FieldValues {
	out := FieldValues{Field: d.field}
	switch d.kind {
	case addresses:
		out.Addresses = d.blocks.set(in)
	case flag:
		out.Names = []string{"no"}
		if in[1] {
			out.Names = []string{"yes"}
		}
	case numeric:
		for c, is := range in {
			if !is {
				continue
			}
			if n := len(out.Numbers); n > 0 && out.Numbers[n-1].To+1 == d.starts[c] {
				out.Numbers[n-1].To = d.end(c)
				continue
			}
			out.Numbers = append(out.Numbers, program.NumberRange{From: d.starts[c], To: d.end(c)})
		}
	default:
		for c, is := range in {
			switch {
			case d.names[c] == "":
				out.Other = is
			case is:
				out.Names = append(out.Names, d.names[c])
			default:
				out.Without = append(out.Without, d.names[c])
			}
		}
		if !out.Other {
			out.Without = nil
		}
	}
	return out
}
