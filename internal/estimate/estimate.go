package estimate

import (
	"sluice/internal/backend"
	"sluice/internal/program"
	"sluice/internal/reach"
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
	ns := 0.0
	reach.Measure(p, c.packet, c.way, &reach.Meter{
		Base:  func(h program.Hook) { ns += prices.Base(h) },
		Rule:  func(r *program.Rule) { ns += prices.Rule(r) },
		Order: prices.Order,
		Asked: func(c *program.Condition) { ns += prices.Condition(c) },
		Done:  func(a program.Action) { ns += prices.Action(a) },
	})
	return ns
}
