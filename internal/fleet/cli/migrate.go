package cli

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"sluice/internal/base/english"
	"sluice/internal/cli/command"
	"sluice/internal/fleet/store"
)

func newMigrate() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "migrate",
		Short: "Move a fleet to another database, even during a roll-out",
		Long: `Moves a fleet from SQLite to PostgreSQL, back, or to another of the same kind. Names, keys,
numbers and revisions stay, so hosts and roll-outs go on where they were; the keys of the
controller stay in its directory. The database to move to must be empty.

All rows are read back and compared, and the audit there is verified. From then on the old
database refuses all use: a controller that runs on it ends, and must be restarted with
--database. Run the same command again to finish a migration that was killed; until then one of
the two databases can be used, never both.

Exit status: 0 moved; 1 moved, but the audit was changed; 2 nothing was moved, or run it again.`,
		Example: "  sluice-controller migrate --from sqlite:/var/lib/sluice-controller/fleet.db --to postgres://sluice@db.example.net/fleet\n  sluice-controller run --database postgres://sluice@db.example.net/fleet",
		Args:    cobra.NoArgs,
		RunE:    migrate,
	}
	cmd.Flags().String("from", "", "move it from `DATABASE`, sqlite:PATH or postgres://USER@HOST/NAME")
	cmd.Flags().String("to", "", "move it to the empty `DATABASE`")
	command.Must(errors.Join(cmd.MarkFlagRequired("from"), cmd.MarkFlagRequired("to")))
	return cmd
}

func migrate(cmd *cobra.Command, _ []string) (err error) {
	ctx, stop := command.Interruptible(cmd)
	defer stop()
	var named [2]string
	var stores [2]*store.Store
	for i, flag := range []string{"from", "to"} {
		database, _ := cmd.Flags().GetString(flag)
		if path, is := strings.CutPrefix(database, "sqlite:"); is && path != "" {
			if path, err = filepath.Abs(path); err != nil {
				return err
			}
			database = "sqlite:" + path
		}
		named[i] = shownDatabase(database)
		open := store.OpenExisting
		if flag == "to" {
			open = store.Open
		}
		if stores[i], err = open(ctx, database); err != nil {
			return fmt.Errorf("--%s: %w", flag, err)
		}
		defer func() { err = errors.Join(err, stores[i].Close(), ownedByFolder(database)) }()
	}
	from, to := stores[0], stores[1]
	out, err := from.MoveTo(ctx, to, operatorHere(), named[0], named[1])
	switch {
	case errors.Is(err, store.ErrNotEmpty):
		return fmt.Errorf("--to: %w\nhint: a fleet is moved into a database that holds nothing", err)
	case errors.Is(err, store.ErrNotFound), errors.Is(err, store.ErrMoved), errors.Is(err, store.ErrComing):
		return fmt.Errorf("--from: %w", err)
	case err != nil:
		return err
	}
	report, err := to.Verify(ctx, out.Fleet.Head)
	if err != nil {
		return err
	}
	w := cmd.OutOrStdout()
	if command.JSON(cmd) {
		err = command.PrintJSON(w, struct {
			store.Copied

			From     string          `json:"from"`
			To       string          `json:"to"`
			Findings []store.Finding `json:"findings"` // of the audit
		}{out, named[0], named[1], report.Findings})
	} else {
		fmt.Fprintf(w, "moved the fleet %s at revision %d, %s, to %s\n", out.Fleet.Name, out.Fleet.Revision, english.Plural(int(out.Rows["host"]), "host"), named[1])
		fmt.Fprintln(w, "start its controllers with --database; the ones on the database before end")
	}
	return errors.Join(err, auditWarned(cmd, report))
}

// auditWarned says on standard error that an audit is not what it was.
func auditWarned(cmd *cobra.Command, report store.Report) error {
	if len(report.Findings) == 0 {
		return nil
	}
	w := cmd.ErrOrStderr()
	fmt.Fprintf(w, "%s %s\nhint: sluice-controller audit verify says more\n", command.Paint(w, "33", "warning:"), report.Findings[0].What)
	return command.ErrFound
}

// ownedByFolder gives the file of an SQLite database to the owner of its folder, where root has
// made it.
func ownedByFolder(database string) error {
	path, is := strings.CutPrefix(database, "sqlite:")
	if !is {
		return nil
	}
	err := handOver(filepath.Dir(path), path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}
