package measure

import (
	"fmt"
	"time"

	"sluice/internal/lab/stats"
)

// Subject is one way to have rules, in a lab of its own.
type Subject struct {
	Name string
	// Load brings the rules into the lab; nil: there are none.
	Load func(*Lab) error
	// Open lets everything survive, as no rules do.
	Open bool
	// Under is the one case that it is measured under; "" is every one.
	Under string
	// Optional is left out where it cannot be loaded.
	Optional bool

	Lab  *Lab          // by Enter
	Took time.Duration // to load
}

// Enter gives every subject a lab, which build makes, with its rules, and tells left of
// those that are left out.
func Enter(subjects []Subject, build func(label string) (*Lab, error), left func(name string, why error)) (there []Subject, err error) {
	for i, s := range subjects {
		if s.Lab, err = build(fmt.Sprintf("subject%d", i)); err != nil {
			return nil, err
		}
		begin := time.Now()
		if s.Load != nil {
			err = s.Load(s.Lab)
		}
		s.Took = time.Since(begin)
		switch {
		case err == nil:
			there = append(there, s)
		case s.Optional:
			left(s.Name, err)
		default:
			return nil, fmt.Errorf("load %s: %w", s.Name, err)
		}
	}
	return there, nil
}

// Case is a traffic, and which of its flows the rules of subjects let survive.
type Case struct {
	Name     string
	Traffic  Traffic
	Survives func(flow int) bool
}

// Of names the cell of a subject under a case.
func Of(subject, name string) string { return subject + "; " + name }

// Beside makes a cell of every subject that has its lab under every case, those of one case behind each
// other. What they send, done frees.
func Beside(subjects []Subject, cases []Case) (cells []Cell, done func(), err error) {
	var sources []*Source
	done = func() {
		for _, s := range sources {
			s.Close()
		}
	}
	for _, c := range cases {
		source, err := Load(c.Traffic)
		if err != nil {
			return nil, done, err
		}
		sources = append(sources, source)
		for _, s := range subjects {
			if s.Under != "" && s.Under != c.Name {
				continue
			}
			cell := Cell{Name: Of(s.Name, c.Name), Lab: s.Lab, Source: source, Survives: c.Survives}
			if s.Open {
				cell.Survives = All
			}
			cells = append(cells, cell)
		}
	}
	return cells, done, nil
}

// AddedMean is what a packet of a subject cost more than one of the bare subject, the
// mean over some cases.
func (r *Result) AddedMean(subject, bare string, cases ...string) stats.Series {
	each := make([]stats.Series, len(cases))
	for i, c := range cases {
		each[i] = r.Added(Of(subject, c), Of(bare, c))
	}
	return stats.Mean(each...)
}
