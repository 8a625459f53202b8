package nftables

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"sluice/internal/backend"
	"sluice/internal/system/kernel/nft"
)

// The mark is the name of an empty chain in a table of its own, which no hook
// calls: nft lists names in every version, and the table can be rebuilt in
// the transaction that switches the rules without a packet seeing it.
const (
	markTable     = "sluice_generation"
	confirmedMark = "confirmed" // beside it: see Confirm
)

// markText is the part of a transaction that sets the mark, or takes it away.
func markText(mark string) string {
	table := "inet " + markTable
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

// Take sets the mark.
func (m markAlone) Take(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if m == "" {
		return Script(m.Text()).Take(ctx)
	}
	return nft.ReplaceTable(markTable, string(m))
}

// Text is the input of nft -f that does the same.
func (m markAlone) Text() string { return markText(string(m)) }

// Marked puts the mark into the last transaction that switches; where none
// does, into one of its own, before what is edited and swept.
func (nftables) Marked(steps []backend.Step, mark string) []backend.Step {
	marked := slices.Clone(steps)
	for i, step := range slices.Backward(marked) {
		if script, is := step.Transaction.(Script); is && step.Purpose == backend.Switch {
			marked[i].Transaction = Script(strings.TrimRight(string(script), "\n") + "\n" + markText(mark))
			return marked
		}
	}
	own := backend.Step{Purpose: backend.Switch, Name: "mark", Transaction: markAlone(mark)}
	at := len(marked)
	for at > 0 && (marked[at-1].Purpose == backend.Sweep || marked[at-1].Purpose == backend.Edit) {
		at--
	}
	return slices.Insert(marked, at, own)
}

// Mark reads the mark.
func (nftables) Mark(context.Context) (mark string, confirmed bool, err error) {
	chains, err := nft.Chains(markTable)
	if err != nil {
		return "", false, fmt.Errorf("read the mark of the running policy: %w", err)
	}
	if i := slices.IndexFunc(chains, func(name string) bool { return strings.HasPrefix(name, backend.MarkPrefix) }); i >= 0 {
		mark = chains[i]
	}
	return mark, slices.Contains(chains, confirmedMark), nil
}

// Confirm notes beside the mark that what it is of is confirmed.
func (nftables) Confirm(ctx context.Context) error {
	return Script(fmt.Sprintf("add chain inet %s %s\n", markTable, confirmedMark)).Take(ctx)
}
