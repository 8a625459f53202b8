package measure

import "sluice/internal/lab/stats"

// Subject is one way to have rules, in a lab of its own.
type Subject struct {
	Name string
	Lab  *Lab
	// Open lets everything survive, as no rules do.
	Open bool
	// Under is the one case that it is measured under; "" is every one.
	Under string
}

// Case is a traffic, and which of its flows the rules of subjects let survive.
type Case struct {
	Name     string
	Traffic  Traffic
	Survives func(flow int) bool
}

// Of names the cell of a subject under a case.
func Of(subject, name string) string { return subject + "; " + name }

// Beside makes a cell of every subject under every case, those of one case behind each
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
