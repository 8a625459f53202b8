package nftables

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"sluice/internal/backend"
	"sluice/internal/program"
	"sluice/internal/system/kernel/nfset"
)

// Known reads no rules. Without them four things are not known: what the kernel has let
// go by itself with a device, what of the host rules name by now, what a transition has
// left, and what counters have counted that are to count elsewhere.
func (n nftables) Known(ctx context.Context, holds, want backend.Artifact) (backend.State, error) {
	h, err := artifactOf(holds)
	if err != nil || h == nil {
		return nil, err
	}
	w, err := artifactOf(want)
	if err != nil || w == nil {
		return nil, err
	}
	t := *h.tree()
	named := func(k *Set) bool { return k.Compared }
	if len(t.Flowtables) > 0 || slices.ContainsFunc(t.Sets, named) || slices.ContainsFunc(t.Chains, func(c *Chain) bool { return c.Base != nil && len(c.Base.Devices) > 0 }) || t.counterMoves(w.Tree) {
		return nil, nil
	}
	if there, err := n.transition(ctx); there || err != nil {
		return nil, err
	}
	s := &State{Present: true, Families: t.families(), Tree: t}
	s.Tree.Sets = make([]*Set, len(t.Sets))
	for i, k := range t.Sets {
		s.Tree.Sets[i] = &Set{
			Name: k.Name, Life: k.Life, Types: k.Types, Interval: k.Interval, Counted: k.Counted, Verdicts: k.Verdicts, Size: k.Size, Timeout: k.Timeout, Expires: k.Expires, Others: k.Others,
			Elements: Elements{Unknown: k.Life != program.Dynamic},
		}
	}
	if err := s.readContents(ctx, edited); err != nil {
		return nil, fmt.Errorf("read table inet %s: %w", n.table, err)
	}
	return s, nil
}

// transition says whether anything of one is left: its rules ask its set.
func (n nftables) transition(ctx context.Context) (bool, error) {
	conn, err := nfset.Open()
	if err != nil {
		return false, err
	}
	err = conn.Dump(ctx, nfset.Set{Table: n.table, Name: graceSet}, func() {}, func(nfset.Element) error { return nil })
	err = errors.Join(err, conn.Close())
	if errors.Is(err, nfset.ErrNoSet) {
		return false, nil
	}
	return true, err
}

// counterMoves says whether something that an object of this tree counts is counted by
// another object, or by an element, of the next.
func (t *Tree) counterMoves(next *Tree) bool {
	gone := map[string]bool{}
	for _, c := range t.Counters {
		if !slices.ContainsFunc(next.Counters, func(n Counter) bool { return n.Name == c.Name }) {
			gone[c.ID] = true
		}
	}
	if len(gone) == 0 {
		return false
	}
	for _, k := range next.Sets {
		for _, counter := range k.Elements.Counters {
			if gone[counter] {
				return true
			}
		}
	}
	return slices.ContainsFunc(next.Counters, func(c Counter) bool { return gone[c.ID] })
}

var _ backend.Knower = nftables{}
