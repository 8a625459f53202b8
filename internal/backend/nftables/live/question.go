package live

import (
	"fmt"
	"slices"

	"sluice/internal/backend/trace"
	"sluice/internal/base/packet"
	"sluice/internal/system/kernel/replica"
)

func refuse(hint, format string, args ...any) error {
	return fmt.Errorf("%s: %w\nhint: %s", fmt.Sprintf(format, args...), trace.ErrQuestion, hint)
}

// check refuses what the copy cannot answer.
func check(q *trace.Question, c *replica.Copy) error {
	p := &q.Packet
	if !p.Source.IsValid() || !p.Destination.IsValid() {
		return refuse(fmt.Sprintf("give %s and %s", q.Name("source"), q.Name("destination")), "a packet without both addresses")
	}
	if p.Source.Unmap().Is4() != p.Destination.Unmap().Is4() {
		return refuse("give two of IPv4 or two of IPv6", "a packet from %s to %s", p.Source, p.Destination)
	}
	device := p.In
	if q.Way == packet.Out {
		device = p.Out
	}
	if device == "" {
		return nil
	}
	l, there := c.Link(device)
	if !there {
		return refuse(q.Name("facts")+" shows the interfaces", "there is no interface %q", device)
	}
	if !l.Up {
		return refuse("set it up, or use another interface", "interface %s is down, so nothing passes it", device)
	}
	for _, master := range c.Links {
		if master.Index == l.Master && slices.Contains([]string{"bridge", "bond", "team"}, master.Kind) {
			return refuse("use that interface", "%s belongs to %s, which is the interface that the rules see", device, master.Name)
		}
	}
	return nil
}
