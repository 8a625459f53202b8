package reach

import (
	"slices"
	"strings"

	"sluice/internal/base/bdd"
	"sluice/internal/program"
)

// Among is what classes are told from.
type Among struct {
	// All is the packets that are spoken of, and what a reader may take to be
	// meant too: a class says only what tells its packets from the rest of these.
	All Region
	// More is packets that a class may have too, where it then takes fewer words.
	More Region
}

// ClassesAmong gives the packets of a region as few classes. Where More holds
// others, classes may have packets in common; together they hold the region, and
// nothing of All that is not in More. The region of a class is of all of its
// packets that are spoken of.
func (u *Universe) ClassesAmong(way Way, r Region, among Among) []Class {
	all, more := among.All, u.Or(r, among.More)
	all = u.And(all, u.all(way))
	r, more = u.And(r, all), u.And(more, all)
	if r == bdd.None {
		return nil
	}
	var kept []product
	for left := r; left != bdd.None; {
		products := u.join(u.split(u.space.Restrict(left, all), all))
		for _, p := range products {
			u.widen(p, more, all)
		}
		few := len(products) <= fewProducts
		if few { // one after the other, each of what the simplest ones have left
			products = []product{slices.MinFunc(products, func(a, b product) int { return a.asks() - b.asks() })}
		}
		for _, p := range u.join(products) {
			region := u.And(p.region(u), all)
			if u.And(region, left) == bdd.None {
				continue
			}
			left = u.Minus(left, region)
			if way == In {
				u.narrow(p, u.by[program.Destination], region)
			}
			kept = append(kept, p)
		}
	}
	var out []Class
	for _, p := range u.join(kept) {
		region := u.And(p.region(u), all)
		c := Class{Way: way, Region: region, Witness: u.Witness(way, u.And(region, r))}
		for i, in := range p {
			if in != nil {
				c.Fields = append(c.Fields, u.dimensions[i].values(in))
			}
		}
		out = append(out, c)
	}
	return out
}

// fewProducts is up to how many classes are made one by one, which takes the
// square of their number.
const fewProducts = 48

// asks is how many fields a product says something of.
func (p product) asks() (n int) {
	for _, in := range p {
		if in != nil {
			n++
		}
	}
	return n
}

// widen leaves away what a product says of its fields, one after the other, as
// long as it gets nothing by that but of more.
func (u *Universe) widen(p product, more, all Region) {
	others := u.Minus(all, more)
	for i := range slices.Backward(p) {
		if p[i] == nil || u.dimensions[i].field == program.Protocol && u.ofProtocol(p) {
			continue
		}
		was := p[i]
		p[i] = nil
		if u.And(p.region(u), others) != bdd.None {
			p[i] = was
		}
	}
}

// narrow says of a field no more than what packets of a region have: what comes in
// is for the host's few addresses, and all others are not worth a word.
func (u *Universe) narrow(p product, d *dimension, region Region) {
	if i := slices.Index(u.dimensions, d); p[i] != nil {
		p[i] = u.project(region, d)
	}
}

// ofProtocol says whether a product asks for what only some protocols have.
func (u *Universe) ofProtocol(p product) bool {
	for _, f := range []program.Field{
		program.Port, program.SourcePort, program.TCPFlags,
		program.ICMPType, program.ICMPCode, program.ICMPv6Type, program.ICMPv6Code,
	} {
		if i := slices.IndexFunc(u.dimensions, func(d *dimension) bool { return d.field == f }); i >= 0 && p[i] != nil {
			return true
		}
	}
	return false
}

// Unbanned is the packets of a region that are in no set that the kernel or a
// command fills.
func (u *Universe) Unbanned(r Region) Region {
	for _, d := range u.dimensions {
		if strings.HasPrefix(string(d.field), "table:") {
			r = u.Minus(r, u.flag(d.field))
		}
	}
	return r
}

// Whatever is the packets of a region and those that differ from one of it only in
// which limits let them through, and which sets that the kernel fills hold them.
func (u *Universe) Whatever(r Region) Region {
	for _, d := range u.dimensions {
		if strings.HasPrefix(string(d.field), "gate:") || strings.HasPrefix(string(d.field), "table:") {
			yes := u.flag(d.field)
			r = u.Or(u.space.Restrict(r, yes), u.space.Restrict(r, u.space.Not(yes)))
		}
	}
	return r
}
