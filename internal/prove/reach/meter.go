package reach

import (
	"sluice/internal/base/packet"
	"sluice/internal/program"
)

// Meter hears what a packet meets on its way through a program, as a backend
// would ask it. Each member is needed.
type Meter struct {
	Base func(h program.Hook) // a base chain is entered
	// Rule is a rule that is asked, of which Order says in which order.
	Rule  func(r *program.Rule)
	Order func(r *program.Rule) []int // places of the conditions
	Asked func(c *program.Condition)
	Done  func(a program.Action) // it was carried out
}

// Measure judges one packet and tells the meter of its way. What is unknown is
// taken to hold. It ends where the packet was asked by 4,194,304 rules.
func Measure(p *program.Program, pkt packet.Packet, way Way, m *Meter) Result {
	e := &evaluation{program: p, packet: pkt, way: way, meter: m, left: maxAsked}
	return e.run()
}

// metered asks the conditions of a rule in the meter's order.
func (e *evaluation) metered(r *program.Rule) bool {
	e.meter.Rule(r)
	for _, i := range e.meter.Order(r) {
		c := &r.Match[i]
		e.meter.Asked(c)
		switch e.condition(c) {
		case packet.No:
			return false
		case packet.Unknown:
			if c.Not {
				return false
			}
		}
	}
	return true
}
