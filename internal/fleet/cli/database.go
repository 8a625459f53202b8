package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"path/filepath"

	"github.com/spf13/cobra"

	"sluice/internal/fleet/store"
)

// defaultDir is where a controller keeps what it keeps.
const defaultDir = "/var/lib/sluice-controller"

// addDatabase adds the flags that say where a controller's database is.
func addDatabase(cmd *cobra.Command) {
	flags := cmd.PersistentFlags()
	flags.String("dir", defaultDir, "`DIR` of the controller")
	flags.String("database", "", "`DATABASE` of the controller, sqlite:PATH or postgres://USER@HOST/NAME (default fleet.db in its directory)")
}

// databaseOf is the database that a command line names.
func databaseOf(cmd *cobra.Command) string {
	dir, _ := cmd.Flags().GetString("dir")
	named, _ := cmd.Flags().GetString("database")
	return cmp.Or(named, "sqlite:"+filepath.Join(dir, "fleet.db"))
}

// onDatabase runs a command beside the controller, on its database.
func onDatabase(run func(ctx context.Context, cmd *cobra.Command, s *store.Store, args []string) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) (err error) {
		s, err := store.OpenExisting(cmd.Context(), databaseOf(cmd))
		if errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("%w\nhint: --dir names the controller's directory, --database another database", err)
		}
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, s.Close()) }()
		err = databaseHint(run(cmd.Context(), cmd, s, args))
		if errors.Is(err, store.ErrNotFound) {
			return fmt.Errorf("%s holds no fleet", databaseOf(cmd))
		}
		return err
	}
}

// databaseHint says what to do about a fleet that was moved.
func databaseHint(err error) error {
	switch {
	case errors.Is(err, store.ErrMoved):
		return fmt.Errorf("%w\nhint: --database names it", err)
	case errors.Is(err, store.ErrComing):
		return fmt.Errorf("%w\nhint: run the same sluice-controller migrate again; until then the old database can be used", err)
	}
	return err
}

// shownDatabase is what to call a database: without its password.
func shownDatabase(database string) string {
	u, err := url.Parse(database)
	if err != nil {
		return "the database"
	}
	query := u.Query()
	query.Del("password")
	u.RawQuery = query.Encode()
	return u.Redacted()
}
