package expect

import (
	"sluice/internal/base/packet"
	"sluice/internal/prove/query"
	"sluice/internal/prove/reach"
)

// witness is a packet of a region, of those that the host is most likely to see.
func (j *judge) witness(way packet.Way, region reach.Region) packet.Packet {
	return query.Natural(j.universe, region, j.universe.Witness(way, region), way, j.Facts)
}
