package measure

import "sluice/internal/lab/stats"

// Result is what Compare measured: of every cell one figure a round.
type Result struct {
	Cells []string // in the order that they were given in
	ns    map[string][]float64
}

// NS is what a packet of the cell cost, nanoseconds, stack included.
func (r *Result) NS(cell string) stats.Series {
	ns, ok := r.ns[cell]
	if !ok {
		panic("no cell is called " + cell)
	}
	return ns
}

// Added is what a packet of the cell cost more than one of the bare cell, in
// nanoseconds.
func (r *Result) Added(cell, bare string) stats.Series {
	return r.NS(cell).Minus(r.NS(bare))
}

// Rounds is how many rounds were measured whole.
func (r *Result) Rounds() int {
	if len(r.Cells) == 0 {
		return 0
	}
	return len(r.ns[r.Cells[0]])
}

// cut leaves the first rounds.
func (r *Result) cut(rounds int) {
	for name, ns := range r.ns {
		r.ns[name] = ns[:min(rounds, len(ns))]
	}
}
