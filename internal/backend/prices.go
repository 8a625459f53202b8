package backend

import "sluice/internal/program"

// Pricer is a backend that knows what a packet pays.
type Pricer interface {
	// Prices gives what the parts of a program cost a packet, before it is
	// lowered.
	Prices(p *program.Program) Prices
}

// Prices is what a packet pays for what it meets, in ns of processor time.
type Prices interface {
	Base(h program.Hook) float64            // to enter a base chain
	Rule(r *program.Rule) float64           // to be asked a rule at all
	Order(r *program.Rule) []int            // in which order a rule's conditions are asked
	Condition(c *program.Condition) float64 // to be asked one
	Action(a program.Action) float64        // to have it carried out
}
