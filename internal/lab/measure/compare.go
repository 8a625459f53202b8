package measure

import (
	"context"
	"fmt"
	"iter"
	"time"
)

// Cell is one variant under one traffic.
type Cell struct {
	Name   string
	Lab    *Lab
	Source *Source
	// Survives says what the rules decide of a flow, by its place in the traffic.
	Survives func(flow int) bool

	before  []int   // before[i]: how many of the flows below i survive
	packets int     // of one timed injection
	ns      float64 // of a packet, when it was checked; 0: it was not
}

// All lets every flow survive.
func All(int) bool { return true }

// None lets no flow survive.
func None(int) bool { return false }

// Plan says how long to measure.
type Plan struct {
	Rounds  int
	Packets int // of one timed injection, in which one cell is measured once
	// Longest is about how long an injection may last: slower cells get fewer
	// packets. 0 is 40 ms.
	Longest time.Duration
	// Exactly has every injection send Packets, so that two runs do the same.
	Exactly bool
	// For goes on with rounds until so much time is over, whatever Rounds says; 0 is
	// not used. At least three rounds are measured.
	For time.Duration
	// Begin is called before every round, when it is not nil.
	Begin func(round int)
}

// warmUp is the part of an injection that goes before the clock, so that another
// variant's rules leave the processor's caches.
const warmUp = 4

// trial is how many packets say what one costs, roughly.
const trial = 1024

// Turns are the places of n things in the order of a round: every other round goes
// backwards, so that none always follows the same one.
func Turns(round, n int) iter.Seq[int] {
	return func(yield func(int) bool) {
		for i := range n {
			if round%2 != 0 {
				i = n - 1 - i
			}
			if !yield(i) {
				return
			}
		}
	}
}

// Compare measures cells in turn, round after round. Each cell has a name of its own. When
// the context ends, the error comes with the whole rounds until then.
func Compare(ctx context.Context, plan Plan, cells []Cell) (*Result, error) {
	r := &Result{ns: map[string][]float64{}}
	for i := range cells {
		c := &cells[i]
		if _, double := r.ns[c.Name]; double {
			return nil, fmt.Errorf("two cells are called %s", c.Name)
		}
		r.ns[c.Name] = nil
		r.Cells = append(r.Cells, c.Name)
		c.count()
		if err := c.calibrate(ctx, plan); err != nil {
			return nil, err
		}
	}
	begun := time.Now()
	for round := 0; plan.goesOn(round, begun); round++ {
		if plan.Begin != nil {
			plan.Begin(round)
		}
		for i := range Turns(round, len(cells)) {
			if err := cells[i].once(ctx, r); err != nil {
				if ctx.Err() == nil {
					return nil, err
				}
				r.cut(round)
				return r, err
			}
		}
	}
	return r, nil
}

// fewest rounds say what a measurement for a time says at the least.
const fewest = 3

func (p *Plan) goesOn(round int, begun time.Time) bool {
	if p.For > 0 {
		return round < fewest || time.Since(begun) < p.For
	}
	return round < p.Rounds
}

// count prepares to say how many flows survive.
func (c *Cell) count() {
	if c.before != nil {
		return
	}
	c.before = make([]int, c.Source.flows+1)
	for i := range c.Source.flows {
		c.before[i+1] = c.before[i]
		if c.Survives(i) {
			c.before[i+1]++
		}
	}
}

// Check sends every flow once at the least. A *VerdictError says that the rules treat
// some otherwise than is expected.
func (c *Cell) Check(ctx context.Context) error {
	c.count()
	run, err := c.inject(ctx, c.Source.flows)
	c.ns = run.NsPerPacket()
	return err
}

// VerdictError says that not as many packets survived as should have.
type VerdictError struct {
	Cell                   string
	Sent, Survived, Should int
}

// Error names the cell.
func (e *VerdictError) Error() string { return "measure " + e.Cell + ": " + e.Brief() }

// Brief is the error without the cell.
func (e *VerdictError) Brief() string {
	return fmt.Sprintf("%d of %d packets survived where %d should", e.Survived, e.Sent, e.Should)
}

// calibrate finds how many packets go into the time of an injection.
func (c *Cell) calibrate(ctx context.Context, plan Plan) error {
	if plan.Exactly {
		c.packets = plan.Packets
		return nil
	}
	longest := plan.Longest
	if longest == 0 {
		longest = 40 * time.Millisecond
	}
	if c.ns == 0 {
		run, err := c.inject(ctx, min(trial, plan.Packets))
		if err != nil {
			return err
		}
		c.ns = run.NsPerPacket()
	}
	c.packets = max(batch, min(plan.Packets, int(float64(longest.Nanoseconds())/c.ns)))
	return nil
}

func (c *Cell) once(ctx context.Context, r *Result) error {
	if _, err := c.inject(ctx, c.packets/warmUp); err != nil {
		return err
	}
	run, err := c.inject(ctx, c.packets)
	if err != nil {
		return err
	}
	r.ns[c.Name] = append(r.ns[c.Name], run.NsPerPacket())
	return nil
}

// inject sends packets and checks what happened to them.
func (c *Cell) inject(ctx context.Context, packets int) (Run, error) {
	run, err := c.Lab.Inject(ctx, c.Source, packets)
	if err != nil {
		return run, fmt.Errorf("measure %s: %w", c.Name, err)
	}
	if want := c.expected(run); run.Survived != want {
		return run, &VerdictError{c.Name, run.Packets, run.Survived, want}
	}
	return run, nil
}

// expected is how many packets of a run survive when every flow gets its verdict.
func (c *Cell) expected(run Run) int {
	flows := len(c.before) - 1
	whole, rest := run.Packets/flows, run.Packets%flows
	n := whole * c.before[flows]
	if end := run.First + rest; end <= flows {
		n += c.before[end] - c.before[run.First]
	} else {
		n += c.before[flows] - c.before[run.First] + c.before[end-flows]
	}
	return n
}
