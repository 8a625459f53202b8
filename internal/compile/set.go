package compile

import (
	"crypto/sha256"
	"encoding/hex"

	"sluice/internal/addrset"
	"sluice/internal/policy"
	"sluice/internal/program"
	"sluice/internal/resolve"
)

func hash(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:4])
}

// addressSet makes a static set of addresses once and gives its id.
func (c *compiler) addressSet(id string, s addrset.Set, o program.Origin) string {
	if !c.sets[id] {
		c.sets[id] = true
		c.program.Sets = append(c.program.Sets, program.Set{
			ID: id, Key: []program.Field{program.Source}, Life: program.Static, Addresses: addressRanges(s), Origin: o,
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
	if s.Living {
		out.Life = program.Living
	}
	if s.Counters {
		out.Counters = true
		out.Addresses = out.Addresses[:0]
		for _, e := range s.Elements {
			for r := range addrset.Of(e).Intersect(keep).Each() {
				out.Addresses = append(out.Addresses, program.AddressRange{From: r.From, To: r.To})
			}
		}
	}
	return id
}

// endpoint gives the condition that an address and a port of a packet are one
// of a set's endpoints.
func (c *compiler) endpoint(address, port program.Field, s *resolve.Set) program.Condition {
	return program.Condition{Field: address, Set: c.endpointSet(s.Name, s.Endpoints, s.Pos), SetKey: []program.Field{address, program.Protocol, port}}
}

// endpointSet makes a set of address, protocol and port once and gives its id.
func (c *compiler) endpointSet(id string, endpoints []policy.Endpoint, pos policy.Pos) string {
	if c.sets[id] {
		return id
	}
	c.sets[id] = true
	set := program.Set{
		ID: id, Key: []program.Field{program.Destination, program.Protocol, program.Port},
		Life: program.Static, Origin: originOf(pos, id),
	}
	for _, e := range endpoints {
		set.Tuples = append(set.Tuples, program.Tuple{
			Origin: originOf(e.Pos, ""),
			Parts: []program.Value{
				{Addresses: program.AddressRange{From: e.Address.From, To: e.Address.To}},
				{Numbers: program.NumberRange{From: uint64(e.Protocol), To: uint64(e.Protocol)}},
				{Numbers: program.NumberRange{From: uint64(e.Port), To: uint64(e.Port)}},
			},
		})
	}
	c.program.Sets = append(c.program.Sets, set)
	return id
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
