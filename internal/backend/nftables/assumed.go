package nftables

import (
	"bytes"
	"context"
	"errors"

	"sluice/internal/backend"
	"sluice/internal/program"
	"sluice/internal/system/kernel/nfset"
)

// Edits compares the trees and what is in each set as they are written, and reads
// of the old artifact no more than the sets that differ.
func (nftables) Edits(want backend.Artifact, from, to [][]byte) ([]backend.Step, bool) {
	w, err := artifactOf(want)
	if err != nil || w == nil || len(from) != len(to) || len(to) != 1+2*len(w.Tree.Sets) || !bytes.Equal(from[0], to[0]) {
		return nil, false
	}
	s := &stepper{want: w.Tree}
	for i, k := range w.Tree.Sets {
		addresses, texts := from[1+2*i], from[2+2*i]
		if !bytes.Equal(texts, to[2+2*i]) {
			return nil, false
		}
		if bytes.Equal(addresses, to[1+2*i]) {
			continue
		}
		if k.Follow != nil || k.Life != program.Living || k.Counted || len(addresses) == 0 {
			return nil, false
		}
		old := *k
		old.Elements = Elements{Ends: k.Elements.Ends} // of both: the trees are the same
		if old.Elements.Addresses.UnmarshalBinary(addresses[1:]) != nil {
			return nil, false
		}
		s.edit(backend.Edit, "set "+k.Name, k, &old)
	}
	return s.steps, true
}

// Touches is how many elements are written or deleted; few is false where Holds
// cannot tell what happened to them, or would have to begin from what was counted.
func (c *contents) Touches() (n int, few bool) {
	for _, e := range c.edits {
		for _, k := range []*Set{e.remove, e.insert} {
			switch {
			case k == nil:
			case e.flush || c.fills != nil || k.Life != program.Living || k.Counted || k.Interval || k.Verdicts || len(k.Types) != 1 || len(k.Elements.Ends) > 0:
				return 0, false
			default:
				n += k.Len()
			}
		}
	}
	return n, true
}

// Holds reads the touched elements alone, and says whether the kernel has those
// that were written and not those that were deleted.
func (c *contents) Holds(ctx context.Context) (bool, error) {
	conn, err := nfset.Open()
	if err != nil {
		return false, err
	}
	defer conn.Close()
	holds := true
	check := func(k *Set, want bool) error {
		if k == nil {
			return nil
		}
		var malformed error
		for e := range k.forKernel(nil, func(err error) { malformed = err }) {
			_, there, err := conn.Lookup(ctx, k.inKernel(c.table), e.Key)
			if err != nil {
				return err
			}
			holds = holds && there == want
		}
		return malformed
	}
	for _, e := range c.edits {
		if err := errors.Join(check(e.remove, false), check(e.insert, true)); err != nil {
			return false, err
		}
	}
	return holds, nil
}

var (
	_ backend.Editor  = nftables{}
	_ backend.Checked = (*contents)(nil)
)
