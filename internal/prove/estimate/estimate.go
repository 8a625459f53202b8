package estimate

import (
	"sluice/internal/backend"
	"sluice/internal/base/packet"
	"sluice/internal/program"
	"sluice/internal/prove/reach"
)

// Classes is what packets pay by the names of their classes, in ns, in the order
// in which the mix has them.
func Classes(prices backend.Prices, p *program.Program, mix []Class) []Cost {
	var out []Cost
	at := map[string]int{}
	for i := range mix {
		c := &mix[i]
		n, known := at[c.Name]
		if !known {
			n = len(out)
			at[c.Name] = n
			out = append(out, Cost{Class: c.Name})
		}
		out[n].Share += c.Share
		out[n].NS += c.Share * one(prices, p, c)
	}
	for i := range out {
		if out[i].Share > 0 {
			out[i].NS /= out[i].Share
		}
	}
	return out
}

// Cost is what the packets of one class pay.
type Cost struct {
	Class string  `json:"class"`
	Share float64 `json:"share"` // of all packets, up to 1
	NS    float64 `json:"ns"`
}

func one(prices backend.Prices, p *program.Program, c *Class) float64 {
	return Packet(prices, p, c.packet, c.way)
}

// Packet is what one packet pays for the rules that it meets, in ns.
func Packet(prices backend.Prices, p *program.Program, pkt packet.Packet, way reach.Way) float64 {
	ns, family := 0.0, 4
	if pkt.Source.Is6() {
		family = 6
	}
	reach.Measure(p, pkt, way, &reach.Meter{
		Base:  func(h program.Hook) { ns += prices.Base(h) },
		Rule:  func(r *program.Rule) { ns += prices.Rule(r) },
		Order: prices.Order,
		Asked: func(c *program.Condition) { ns += prices.Condition(c, family) },
		Done:  func(a program.Action) { ns += prices.Action(a) },
	})
	return ns
}

// Mean is what a packet of the mix pays.
func Mean(costs []Cost) float64 {
	mean := 0.0
	for _, c := range costs {
		mean += c.Share * c.NS
	}
	return mean
}
