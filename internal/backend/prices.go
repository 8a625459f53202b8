package backend

import (
	"time"

	"sluice/internal/program"
)

// Pricer is a backend that knows what a packet costs.
type Pricer interface {
	// Prices gives what the parts of a program cost a packet, before it is
	// lowered.
	Prices(p *program.Program) Prices
}

// Prices is what a packet costs for what it meets, in ns of processor time.
type Prices interface {
	Base(h program.Hook) float64  // to enter a base chain
	Rule(r *program.Rule) float64 // to be asked a rule at all
	Order(r *program.Rule) []int  // in which order a rule's conditions are asked
	// Condition is what it pays to be asked one, as a packet of IPv4 or IPv6 (4, 6).
	Condition(c *program.Condition, family int) float64
	Action(a program.Action) float64 // to have it carried out
}

// Calibrated is a backend whose costs, prices and choices are made of figures that can be
// measured on a host.
type Calibrated interface {
	Backend
	// Calibrated is the backend by the figures of this host that a state directory
	// keeps, or by its own ones.
	Calibrated(stateDir string) (Backend, Figures)
}

// Figures is what costs, prices and choices are made of.
type Figures struct {
	Measured time.Time // zero: they are the backend's own
	Warnings []string  // why what was measured should not be trusted
	Unused   error     // why what was measured is not used
	Sum      string    // tells them from others
}

// Chooser is a backend that chooses, by what it costs on this host, among ways that
// mean the same.
type Chooser interface {
	// Keeping is the backend that chooses what was chosen before, as Choices of an
	// artifact says it.
	Keeping(choices map[string]string) Backend
}

// Chosen is an artifact with choices of its backend in it.
type Chosen interface {
	// Choices is what was chosen, by what it was chosen for; both for a reader.
	Choices() map[string]string
}
