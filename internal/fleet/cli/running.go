package cli

import (
	"errors"
	"fmt"
	"io/fs"

	"github.com/spf13/cobra"

	"sluice/internal/cli/command"
	"sluice/internal/fleet/api"
	"sluice/internal/fleet/trust"
)

// addController adds the flag of commands that ask a controller which runs.
func addController(cmd *cobra.Command) {
	cmd.Flags().String("dir", defaultDir, "`DIR` of the controller")
	command.Must(cmd.MarkFlagDirname("dir"))
}

func controllerOf(cmd *cobra.Command) *api.Client {
	dir, _ := cmd.Flags().GetString("dir")
	return api.NewClient(dir)
}

// hinted says what to do about an error of a controller that was asked.
func hinted(err error) error {
	if errors.Is(err, api.ErrNotRunning) {
		return fmt.Errorf("%w\nhint: sluice-controller run starts one; --dir names its directory", err)
	}
	return err
}

// openRepository opens the trust of the repository that --repository names.
func openRepository(cmd *cobra.Command) (*trust.Repository, error) {
	dir, _ := cmd.Flags().GetString("repository")
	r, err := trust.OpenRepository(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%w\nhint: --repository names the folder of fleet.yaml; sluice-controller init makes its trust", err)
	}
	return r, err
}
