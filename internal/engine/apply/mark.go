package apply

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"strings"

	"sluice/internal/backend"
	"sluice/internal/system/kernel/nft"
)

// The mark is the name of an empty chain in a table of its own, which no hook
// calls: nft lists names in every version, and the table can be made anew in
// the transaction that switches the rules without a packet seeing it.
const (
	markTable  = "sluice_generation"
	markFamily = "inet"
	markPrefix = "generation_"
	keptMark   = "confirmed" // beside it: see keepInKernel
)

// newMark is unlike every other one, so that a state directory that was lost
// and begun again does not take an old policy for its own.
func newMark(generation int) string {
	var random [6]byte
	_, _ = rand.Read(random[:]) // never fails, says its documentation
	return fmt.Sprintf("%s%d_%s", markPrefix, generation, hex.EncodeToString(random[:]))
}

// markText is the part of a transaction that sets the mark, or takes it away.
func markText(mark string) string {
	table := markFamily + " " + markTable
	var b strings.Builder
	// Adding first makes deleting work where the table was not there.
	fmt.Fprintf(&b, "add table %s\ndelete table %s\n", table, table)
	if mark != "" {
		fmt.Fprintf(&b, "add table %s\nadd chain %s %s\n", table, table, mark)
	}
	return b.String()
}

// markAlone is the mark in a transaction of its own, for which nft need not be run.
type markAlone string

// Send sets the mark.
func (m markAlone) Send(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if m == "" {
		return nft.Run(ctx, m.Text())
	}
	return nft.ReplaceTable(markTable, string(m))
}

// Text is the same as input of nft -f.
func (m markAlone) Text() string { return markText(string(m)) }

// withMark puts the mark into the last transaction that switches; where none
// does, into one of its own, before what is swept.
func withMark(steps []backend.Step, mark string) []backend.Step {
	marked := append([]backend.Step(nil), steps...)
	for i := len(marked) - 1; i >= 0; i-- {
		if marked[i].Purpose == backend.Switch {
			marked[i].Text = strings.TrimRight(marked[i].Text, "\n") + "\n" + markText(mark)
			return marked
		}
	}
	own := backend.Step{Purpose: backend.Switch, Name: "mark", Contents: markAlone(mark)}
	at := len(marked)
	for at > 0 && (marked[at-1].Purpose == backend.Sweep || marked[at-1].Purpose == backend.Edit) {
		at--
	}
	return append(marked[:at], append([]backend.Step{own}, marked[at:]...)...)
}

// markAgain puts the mark back where somebody deleted it and the rules of the
// running generation are all there; else it is "". Without it, a change that
// fails would take the rules for none.
func (s *session) markAgain(ctx context.Context) (string, error) {
	if s.cur.Running == 0 {
		return "", nil
	}
	g, err := s.generation(s.cur.Running)
	if err != nil {
		return "", nil //nolint:nilerr // what it was cannot be told, so it is not put back
	}
	want, err := s.held(g)
	if err != nil {
		return "", nil //nolint:nilerr // the same
	}
	have, err := s.Backend.Read(ctx, true)
	if err != nil {
		return "", fmt.Errorf("read what the kernel holds: %w", err)
	}
	if have.Empty() {
		return "", nil
	}
	differences, err := s.compare(ctx, want, have)
	if err != nil || len(differences) > 0 {
		return "", err
	}
	return g.Mark, s.Kernel.Run(ctx, markText(g.Mark))
}
