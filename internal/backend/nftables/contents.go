package nftables

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"sluice/internal/backend"
	"sluice/internal/system/kernel/nfset"
	"sluice/internal/system/kernel/nft"
)

// contents are elements on their way to the kernel, which go by netlink: nft
// takes twice the time for a text of them and 900 bytes of its memory for each.
type contents struct {
	table string
	edits []edit
	// fills: sets that nobody uses yet are filled, in as many transactions as
	// they take. When that fails they are deleted, and those that were filled for
	// the same change before; nil: one transaction.
	fills *fills
}

// fills are the sets that were filled ahead of a switch.
type fills struct{ sets []nfset.Set }

// drop deletes them: what is there for a change that fails is of no use, and
// memory may be what was wanting, for going back too. A set that cannot be deleted
// is left to the next load, which trusts none that no rule uses.
func (f *fills) drop(ctx context.Context, conn *nfset.Conn) {
	if conn.Drop(ctx, f.sets...) != nil {
		for _, s := range f.sets {
			_ = conn.Drop(ctx, s)
		}
	}
	f.sets = nil
}

// edit is what is to go from a set and what is to come into it. Both are sets of
// the same definition.
type edit struct {
	flush          bool // everything goes, before anything else
	remove, insert *Set
	counts         map[string]backend.Count // what counted elements begin with
}

// Take writes the elements into the sets of the calling thread's network
// namespace.
func (c *contents) Take(ctx context.Context) error {
	conn, err := nfset.Open()
	if err != nil {
		return err
	}
	err = c.send(ctx, conn)
	if c.fills != nil {
		for _, e := range c.edits {
			c.fills.sets = append(c.fills.sets, e.insert.inKernel(c.table))
		}
		if err != nil {
			c.fills.drop(context.WithoutCancel(ctx), conn)
		}
	}
	for _, changed := range []error{nfset.ErrNoElement, nfset.ErrOverlap, nfset.ErrNoSet, nfset.ErrNoChain} {
		if errors.Is(err, changed) {
			// Somebody else was at it since it was read.
			err = fmt.Errorf("%w: %w", nft.ErrChanged, err)
			break
		}
	}
	return errors.Join(disturbed(err), conn.Close())
}

func (c *contents) send(ctx context.Context, conn *nfset.Conn) error {
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	err := c.sendUntil(ctx, stop, conn)
	if cause := context.Cause(ctx); cause != nil {
		return cause
	}
	return err
}

// sendUntil calls stop for an element that cannot be written: what was not sent
// up to then is not sent at all.
func (c *contents) sendUntil(ctx context.Context, stop func(error), conn *nfset.Conn) error {
	if c.fills == nil {
		err := conn.Edit(ctx, c.changes(stop)...)
		// What is too large for the buffers that this process may have goes in
		// pieces: an element is there or not at every moment in either case.
		if !errors.Is(err, nfset.ErrTooLarge) {
			return err
		}
	}
	return conn.Fill(ctx, c.changes(stop)...)
}

func (c *contents) changes(malformed func(error)) []nfset.Change {
	out := make([]nfset.Change, len(c.edits))
	for i, e := range c.edits {
		if e.remove != nil {
			out[i].Set = e.remove.inKernel(c.table)
			out[i].Delete = e.remove.forKernel(nil, malformed)
		}
		out[i].Flush = e.flush
		if e.insert != nil {
			out[i].Set = e.insert.inKernel(c.table)
			out[i].Add = e.insert.forKernel(e.counts, malformed)
		}
	}
	return out
}

// Text is the input of nft -f that does the same.
func (c *contents) Text() string {
	var b strings.Builder
	for _, e := range c.edits {
		if e.remove != nil {
			b.WriteString(elementText("delete", place(c.table, e.remove.Name), e.remove.texts(nil)))
		}
		if e.flush {
			b.WriteString("flush set " + place(c.table, e.insert.Name) + "\n")
		}
		if e.insert != nil {
			b.WriteString(elementText("add", place(c.table, e.insert.Name), e.insert.texts(e.counts)))
		}
	}
	return b.String()
}
