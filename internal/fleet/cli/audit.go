package cli

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"sluice/internal/base/english"
	"sluice/internal/cli/command"
	"sluice/internal/fleet/api"
	"sluice/internal/fleet/store"
	"sluice/internal/fleet/wire"
)

const auditHelp = `
An entry is one line of JSON: its number, what was done, who did it, what it changed, and
the SHA-256 of the entry before. No entry can be changed, dropped, inserted or moved without
changing all later ones.`

const auditDatabase = auditHelp + `
The command reads the database; no controller need run.
`

func newAudit() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "audit",
		Short: "Show, verify and export who changed what in the fleet",
		Long: `Lists, verifies and exports the audit of a fleet: an entry for each change of what
hosts should run, of who may enrol, and of what was signed.
` + auditHelp,
		Example: "  sluice-controller audit list\n  sluice-controller audit verify\n  sluice-controller audit export > audit.jsonl",
		Args:    cobra.NoArgs,
		RunE:    help,
	}
	cmd.AddCommand(newAuditList())
	for _, c := range []*cobra.Command{newAuditVerify(), newAuditExport(), newAuditPrune()} {
		addDatabase(c)
		cmd.AddCommand(c)
	}
	return cmd
}

func newAuditList() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List the newest entries of the audit",
		Long: `Lists the newest entries of the audit, the newest last.
` + auditHelp + `

Exit status: 0 fine, 2 bad use, or no controller answers.`,
		Example: "  sluice-controller audit list --last 20\n  sluice-controller audit list --json | jq '.entries[] | select(.who == \"operator:erika\")'",
		Args:    cobra.NoArgs,
		RunE:    listAudit,
	}
	addController(cmd)
	cmd.Flags().Int64("last", 50, "list the last `N` entries; 0 for all")
	return cmd
}

// mostEntries is how many entries a controller gives at once.
const mostEntries = 1000

func listAudit(cmd *cobra.Command, _ []string) error {
	last, _ := cmd.Flags().GetInt64("last")
	if last < 0 {
		return fmt.Errorf("--last %d: give 1 or more, or 0 for all", last)
	}
	c := controllerOf(cmd)
	newest, err := c.Audit(cmd.Context(), -1, 1)
	if err != nil {
		return hinted(err)
	}
	after := int64(0)
	if last > 0 {
		after = max(0, newest.Head-last)
	}
	entries := []api.Entry{}
	for after < newest.Head {
		page, err := c.Audit(cmd.Context(), after, mostEntries)
		if f := (*wire.Failure)(nil); errors.As(err, &f) && f.Kind == "" {
			return fmt.Errorf("%w\nhint: sluice-controller audit verify", err)
		}
		if err != nil {
			return hinted(err)
		}
		if len(page.Entries) == 0 {
			break
		}
		entries = append(entries, page.Entries...)
		after = page.Entries[len(page.Entries)-1].Seq
	}
	if command.JSON(cmd) {
		return command.PrintJSON(cmd.OutOrStdout(), map[string]any{"fleet": newest.Fleet, "entries": entries})
	}
	table := tabwriter.NewWriter(cmd.OutOrStdout(), 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "seq\tat\twho\twhat\tchange")
	for _, e := range entries {
		fmt.Fprintf(table, "%d\t%s\t%s\t%s\t%s\n", e.Seq, e.At.Local().Format(time.DateTime), command.Plain(e.Who), command.Plain(e.What), command.Plain(string(e.Diff)))
	}
	return table.Flush()
}

func newAuditVerify() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "verify [FILE]...",
		Short: "Verify that no entry of the audit was changed, dropped or moved",
		Long: `Reads the whole audit and shows which entries were changed, dropped, inserted or moved.
Someone who can write to the database can rewrite all entries with matching hashes, or restore
an older copy. To detect that, pass --head: a head (SEQ:HASH) that this command printed earlier,
or that the timestamps on hosts hold. Entries that "audit prune" removed are read from the FILEs,
in their order.
` + auditDatabase + `
Exit status: 0 intact, 1 changed, 2 bad use, or the database cannot be read.`,
		Example: "  sluice-controller audit verify\n  sluice-controller audit verify --head 41:5feceb66ffc86f38d952786c6d696c79c2dbc239dd4e91b46729d73a27fb57e9",
		Args:    cobra.ArbitraryArgs,
		RunE:    onDatabase(verifyAudit),
	}
	cmd.Flags().StringArray("head", nil, "`SEQ:HASH` that was kept elsewhere; repeatable")
	return cmd
}

func verifyAudit(ctx context.Context, cmd *cobra.Command, s *store.Store, args []string) error {
	texts, _ := cmd.Flags().GetStringArray("head")
	kept := make([]store.Head, len(texts))
	for i, text := range texts {
		var err error
		if kept[i], err = store.ParseHead(text); err != nil {
			return fmt.Errorf("--head: %w", err)
		}
	}
	r, err := s.VerifyWith(ctx, exportedIn(args), kept...)
	if err != nil {
		return err
	}
	w := cmd.OutOrStdout()
	switch {
	case command.JSON(cmd):
		if err := command.PrintJSON(w, r); err != nil {
			return err
		}
	case len(r.Findings) == 0 && r.Floor.Seq > 0 && len(args) == 0:
		fmt.Fprintf(w, "the audit is intact after entry %d, which was moved to a file: %s, head %s\n", r.Floor.Seq, english.Plural(int(r.Entries), "entry"), r.Head)
	case len(r.Findings) == 0:
		fmt.Fprintf(w, "the audit is intact: %s, head %s\n", english.Plural(int(r.Entries), "entry"), r.Head)
	default:
		for _, f := range r.Findings {
			fmt.Fprintln(w, command.Plain(f.What))
		}
		if r.More > 0 {
			fmt.Fprintf(w, "and %d more\n", r.More)
		}
	}
	if len(r.Findings) > 0 {
		return command.ErrFound
	}
	return nil
}

func newAuditExport() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "export",
		Short: "Write the audit, one line of JSON for each entry",
		Long: `Writes the audit to standard output, one line of JSON for each entry, with --json too. The hash
of an entry is the SHA-256 of its line without the key "hash", so that any program can
verify it:

  sed 's/,"hash":"[0-9a-f]*"}$/}/' | tr -d '\n' | sha256sum
` + auditDatabase + `
Exit status: 0 fine, 2 bad use, or the database cannot be read.`,
		Example: "  sluice-controller audit export > audit.jsonl\n  sluice-controller audit export --after 41 >> audit.jsonl",
		Args:    cobra.NoArgs,
		RunE: onDatabase(func(ctx context.Context, cmd *cobra.Command, s *store.Store, _ []string) error {
			after, _ := cmd.Flags().GetInt64("after")
			if after < 0 {
				return fmt.Errorf("--after %d: the first entry is number 1", after)
			}
			if _, err := s.Fleet(ctx); err != nil {
				return err
			}
			buffered := bufio.NewWriter(command.Exact(cmd.OutOrStdout()))
			err := s.EachEntry(ctx, after, func(e store.Entry) error {
				line, err := json.Marshal(e)
				if err != nil { // somebody has changed it
					return fmt.Errorf("entry %d cannot be read\nhint: sluice-controller audit verify", e.Seq)
				}
				_, err = buffered.Write(append(line, '\n'))
				return err
			})
			return errors.Join(err, buffered.Flush())
		}),
	}
	cmd.Flags().Int64("after", 0, "skip the entries up to `SEQ`")
	return cmd
}
