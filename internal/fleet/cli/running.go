package cli

import (
	"errors"
	"fmt"
	"io/fs"

	"github.com/spf13/cobra"

	"sluice/internal/cli/command"
	"sluice/internal/fleet/api"
	"sluice/internal/fleet/wire"
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
	if errors.Is(err, fs.ErrPermission) {
		return fmt.Errorf("%w\nhint: root and the user that the controller runs as may ask it", err)
	}
	if f := (*wire.Failure)(nil); errors.As(err, &f) && f.Kind == wire.KindNotFound {
		return fmt.Errorf("%w\nhint: sluice-controller hosts lists those that are enrolled", err)
	}
	return err
}
