package nftables

import (
	"context"
	"fmt"

	"sluice/internal/backend"
	"sluice/internal/program"
)

// Name is how the backend is asked for.
const Name = "nftables"

// Table is the table of the default owner.
const Table = "sluice"

type nftables struct {
	table   string
	costs   *CostModel
	choices map[string]string // layouts that were chosen before

	calibration func(stateDir string) (*CostModel, backend.Figures) // may be nil
}

// Option is what New is told beside what it takes for granted.
type Option func(*nftables)

// Costs gives the backend the figures that its costs, prices and choices of layouts
// are made of; DefaultCosts where it is given none. They have to pass Check.
func Costs(m CostModel) Option { return func(n *nftables) { n.costs = &m } }

// Calibration gives the backend what reads the figures that were measured on this host:
// nil where there are none. They have to pass Check.
func Calibration(read func(stateDir string) (*CostModel, backend.Figures)) Option {
	return func(n *nftables) { n.calibration = read }
}

// New gives the backend.
func New(options ...Option) backend.Backend { return made(Table, options) }

// Of gives the backend for the table of another owner, which Lower has from the
// program: what Read reads and a removal removes.
func Of(owner string, options ...Option) backend.Backend { return made(name(owner), options) }

func made(table string, options []Option) nftables {
	costs := DefaultCosts()
	n := nftables{table: table, costs: &costs}
	for _, o := range options {
		o(&n)
	}
	return n
}

// Keeping is the backend with choices that were made before: where they name one of
// the candidates, no other is looked at.
func (n nftables) Keeping(choices map[string]string) backend.Backend {
	n.choices = choices
	return n
}

// Calibrated is the backend by the figures that were measured on this host.
func (n nftables) Calibrated(stateDir string) (by backend.Backend, f backend.Figures) {
	if n.calibration != nil {
		var measured *CostModel
		if measured, f = n.calibration(stateDir); measured != nil {
			n.costs = measured
		}
	}
	f.Sum = fmt.Sprintf("%x", n.costs.sum())
	return n, f
}

// Passes are all; where elements cannot be counted, they keep to that.
func (nftables) Passes(can backend.Capabilities) backend.Passes {
	return backend.Passes{NoElementCounters: can[backend.SetElementCounters] == backend.No}
}

func (n nftables) choice() layoutChoice {
	return layoutChoice{from: layoutFrom, choose: choose, choices: n.choices}
}

func (nftables) Name() string { return Name }

// Lower makes the artifact of a program.
func (n nftables) Lower(p *program.Program, can backend.Capabilities) (backend.Artifact, error) {
	l, err := n.lower(p, can)
	if err != nil {
		return nil, err
	}
	return &artifact{Format: artifactFormat, Tree: l.tree, Plan: l.notes, costs: n.costs, layouts: l.layouts}, nil
}

// Decode reads what Encode wrote.
func (n nftables) Decode(data []byte) (backend.Artifact, error) {
	a, err := decode(data)
	if err != nil {
		return nil, err
	}
	a.costs = n.costs
	return a, nil
}

// Read reads the table of the calling thread's network namespace.
func (n nftables) Read(ctx context.Context, contents bool) (backend.State, error) {
	s, err := read(ctx, n.table, contents)
	if err != nil {
		return nil, fmt.Errorf("read table inet %s: %w", n.table, err)
	}
	return s, nil
}

// Steps says how to come from have to want.
func (n nftables) Steps(want backend.Artifact, have backend.State) ([]backend.Step, error) {
	h, err := stateOf(have)
	if err != nil {
		return nil, err
	}
	w, err := artifactOf(want)
	if err != nil {
		return nil, err
	}
	if w == nil {
		return removal(n.table, h), nil
	}
	return steps(w.tree(), h, w.passing, w.older), nil
}

// Compare says by meaning where have differs from want.
func (nftables) Compare(want backend.Artifact, have backend.State) ([]backend.Difference, error) {
	h, err := stateOf(have)
	if err != nil {
		return nil, err
	}
	w, err := artifactOf(want)
	if err != nil {
		return nil, err
	}
	if w == nil {
		w = &artifact{Tree: &Tree{}}
	}
	return compare(w.Tree.asking(w.asked).comparing(&h.Tree), h, w.older), nil
}

func artifactOf(a backend.Artifact) (*artifact, error) {
	if a == nil {
		return nil, nil
	}
	own, is := a.(*artifact)
	if !is {
		return nil, fmt.Errorf("backend %s was given an artifact of %s", Name, a.Backend())
	}
	return own, nil
}

func stateOf(s backend.State) (*State, error) {
	if s == nil {
		return &State{}, nil
	}
	own, is := s.(*State)
	if !is {
		return nil, fmt.Errorf("backend %s was given a state of another backend (%T)", Name, s)
	}
	return own, nil
}
