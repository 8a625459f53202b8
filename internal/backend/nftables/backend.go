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
	table  string
	memory Memory
}

// New gives the backend.
func New() backend.Backend { return nftables{table: Table} }

// Of gives the backend for the table of another owner, which Lower has from the
// program: what Read reads and a removal removes.
func Of(owner string) backend.Backend { return nftables{table: name(owner)} }

func (nftables) Name() string { return Name }

// Lower makes the artifact of a program.
func (n nftables) Lower(p *program.Program, can backend.Capabilities) (backend.Artifact, error) {
	before := n.remembered(p, can)
	if a := before.recall(); a != nil {
		return a, nil
	}
	l, err := lowerRemembering(p, can, n.memory)
	if err != nil {
		return nil, err
	}
	a := &artifact{Format: artifactFormat, Tree: l.tree, Plan: l.notes, layouts: l.layouts}
	before.remember(a)
	return a, nil
}

// Decode reads what Encode wrote.
func (nftables) Decode(data []byte) (backend.Artifact, error) {
	a, err := decode(data)
	if err != nil {
		return nil, err
	}
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
	return steps(w.tree(), h), nil
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
	return compare(w.tree(), h), nil
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
