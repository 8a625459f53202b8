package cli

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"sluice/internal/base/english"
	"sluice/internal/base/regular"
	"sluice/internal/cli/command"
	"sluice/internal/fleet/archive"
	"sluice/internal/fleet/store"
)

func newAuditPrune() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "prune FILE",
		Short: "Move the oldest entries of the audit to a file",
		Long: `Writes the entries up to --upto to FILE, as "audit export" does, reads FILE back, and then
removes them from the database. A new entry records this and names the last one removed, so
the audit can still be verified: from there on by itself, and from its beginning with all such
files (audit verify FILE...).
` + auditDatabase + `
Exit status: 0 fine, 2 nothing was removed.`,
		Example: "  sluice-controller audit prune --upto 100000 audit-2026.jsonl\n  sluice-controller audit verify audit-2026.jsonl",
		Args:    cobra.ExactArgs(1),
		RunE:    onDatabase(pruneAudit),
	}
	cmd.Flags().Int64("upto", 0, "remove the entries up to `SEQ`")
	command.Must(cmd.MarkFlagRequired("upto"))
	return cmd
}

func pruneAudit(ctx context.Context, cmd *cobra.Command, s *store.Store, args []string) error {
	upto, _ := cmd.Flags().GetInt64("upto")
	f, err := s.Fleet(ctx)
	if err != nil {
		return err
	}
	if upto <= f.Floor.Seq || upto > f.Head.Seq {
		return fmt.Errorf("--upto %d: the audit has entries %d to %d", upto, f.Floor.Seq+1, f.Head.Seq)
	}
	last := store.Head{}
	_, err = writeWhole(ctx, args[0], nil, func(w io.Writer) error {
		buffered := bufio.NewWriter(w)
		err := s.EachEntry(ctx, f.Floor.Seq, func(e store.Entry) error {
			if e.Seq > upto {
				return nil
			}
			last = store.Head{Seq: e.Seq, Hash: e.Hash}
			line, err := json.Marshal(e)
			if err != nil {
				return fmt.Errorf("entry %d cannot be read\nhint: sluice-controller audit verify", e.Seq)
			}
			_, err = buffered.Write(append(line, '\n'))
			return err
		})
		return errors.Join(err, buffered.Flush())
	}, func(r io.Reader) error {
		read := store.Head{}
		err := eachLine(r, func(e store.Entry) error {
			read = store.Head{Seq: e.Seq, Hash: e.Hash}
			return nil
		})
		if err == nil && (read != last || last.Seq != upto) {
			err = archive.ErrDamaged
		}
		return err
	})
	if err != nil {
		return err
	}
	removed, err := s.PruneAudit(ctx, operatorHere(), last)
	if err != nil {
		return err
	}
	if command.JSON(cmd) {
		return command.PrintJSON(cmd.OutOrStdout(), map[string]any{"file": args[0], "removed": removed, "upto": last})
	}
	fmt.Fprintf(cmd.OutOrStdout(), "%s: %s, removed from the database; the last is %s\n", args[0], english.Plural(int(removed), "entry"), last)
	return nil
}

// mostEntry is how many bytes a line of an exported audit may have.
const mostEntry = 64 << 20

// eachLine gives the entries of an exported audit to f.
func eachLine(r io.Reader, f func(store.Entry) error) error {
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, mostEntry)
	n := 0
	for lines.Scan() {
		n++
		var e store.Entry
		if err := json.Unmarshal(lines.Bytes(), &e); err != nil {
			return fmt.Errorf("line %d is not an entry of an audit: %w", n, err)
		}
		if err := f(e); err != nil {
			return err
		}
	}
	return lines.Err()
}

// exportedIn reads files of an audit, one after the other; nil where there are none.
func exportedIn(names []string) func(func(store.Entry) error) error {
	if len(names) == 0 {
		return nil
	}
	return func(f func(store.Entry) error) error {
		for _, name := range names {
			file, err := regular.Open(name)
			if err != nil {
				return err
			}
			err = eachLine(file, f)
			if err := errors.Join(err, file.Close()); err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
		}
		return nil
	}
}
