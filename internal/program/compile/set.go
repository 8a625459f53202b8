package compile

import (
	"crypto/sha256"
	"encoding/hex"
	"strconv"

	"sluice/internal/base/addrset"
	"sluice/internal/language/resolve"
	"sluice/internal/program"
)

// othersSize is how many addresses of a family another program may put into a set: it may
// do so for whoever answers it, and each takes memory of the kernel's.
const othersSize = 1 << 16

func hash(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:4])
}

// addressSet makes a static set of addresses once and gives its id.
func (c *compiler) addressSet(id string, s addrset.Set, o program.Origin) string {
	if !c.sets[id] {
		c.sets[id] = true
		c.program.Sets = append(c.program.Sets, program.Set{
			ID: id, Key: []program.Field{program.Source}, Life: program.Static, Addresses: s, Origin: o,
		})
	}
	return id
}

// named makes the set of a policy's set and gives its id, which is its name.
func (c *compiler) named(s *resolve.Set) string {
	return c.elements(s.Name, s, s.Addresses)
}

// elements makes a set of those addresses of a policy's set that are in keep.
func (c *compiler) elements(id string, s *resolve.Set, keep addrset.Set) string {
	if c.sets[id] {
		return id
	}
	c.addressSet(id, keep, originOf(s.Pos, s.Name))
	out := c.program.Set(id)
	switch {
	case s.Others:
		out.Life, out.Others, out.Size = program.Dynamic, true, othersSize
	case s.Living:
		out.Life = program.Living
	}
	if out.Expires = s.Expires; out.Expires {
		for _, e := range s.Ends {
			for r := range addrset.Of(e.Range).Intersect(keep).Each() {
				out.Ends = append(out.Ends, addrset.Ending{Range: r, Until: e.Until})
			}
		}
	}
	if s.Counters {
		out.Counters = true
		out.Addresses = addrset.Set{}
		for _, e := range s.Elements {
			for r := range addrset.Of(e).Intersect(keep).Each() {
				out.Elements = append(out.Elements, program.Element{Parts: []program.Value{{Addresses: r}}})
			}
		}
	}
	return id
}

// endpoint gives the condition that the address and the port of a packet are
// one of a set's endpoints of the side's protocol; not ok means that there is
// none. The protocol is no key of the set, since every rule asks for it anyway:
// nft turns its one byte round as if it were two in a set with ranges, which
// kernels refuse since 6.12.117.
func (c *compiler) endpoint(at side, s *resolve.Set) (program.Condition, bool) {
	id := identifier("endpoints", s.Name, strconv.Itoa(int(at.protocol)))
	set := program.Set{ID: id, Key: []program.Field{program.Destination, program.Port}, Life: program.Static, Origin: originOf(s.Pos, s.Name)}
	for _, e := range s.Endpoints {
		if e.Protocol == at.protocol {
			set.Elements = append(set.Elements, program.Element{
				Origin: originOf(e.Pos, ""),
				Parts: []program.Value{
					{Addresses: e.Address},
					{Numbers: program.NumberRange{From: uint64(e.Port), To: uint64(e.Port)}},
				},
			})
		}
	}
	if len(set.Elements) == 0 {
		return program.Condition{}, false
	}
	if !c.sets[id] {
		c.sets[id] = true
		c.program.Sets = append(c.program.Sets, set)
	}
	return program.Condition{Field: at.address, Set: id, SetKey: []program.Field{at.address, at.port}}, true
}

// dynamicSet makes a set that the kernel fills with sources once and gives its
// id. The size is in entries, the time-out in milliseconds.
func (c *compiler) dynamicSet(id string, size int, timeout uint64, o program.Origin) string {
	if !c.sets[id] {
		c.sets[id] = true
		c.program.Sets = append(c.program.Sets, program.Set{
			ID: id, Key: []program.Field{program.Source}, Life: program.Dynamic, Size: size, Timeout: timeout, Origin: o,
		})
	}
	return id
}
