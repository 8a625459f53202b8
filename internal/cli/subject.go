package cli

import (
	"errors"
	"fmt"
	"io/fs"

	"github.com/spf13/cobra"

	"sluice/internal/cli/command"
	"sluice/internal/engine"
	"sluice/internal/engine/apply"
)

// subject reads the policy that a question is about: FILE where it is named, or
// that of a described host, and else the policy that runs. Where none runs, or it may
// not be read, it is the file that would be applied, and that is told. It returns
// the name of the policy.
func subject(cmd *cobra.Command, s *engine.Subject, args []string, described string) (name string, err error) {
	if len(args) > 0 || described != "" {
		s.Policy, err = engine.Load(cmd.InOrStdin(), command.PolicyArgument(args))
		return command.PolicyArgument(args), err
	}
	err = running(cmd, s)
	var closed *apply.ClosedRunsError
	switch {
	case errors.As(err, &closed):
		return "", fmt.Errorf("%w\n  hint: name a FILE to ask about that one", err)
	case err == nil:
		return s.Runs.Policy, nil
	case errors.Is(err, apply.ErrNoPolicy), errors.Is(err, fs.ErrPermission):
		why := "no policy runs"
		if errors.Is(err, fs.ErrPermission) {
			why = "only root may read the policy that runs"
		}
		w := cmd.ErrOrStderr()
		fmt.Fprintf(w, "%s %s, so this is about %s\n", command.Paint(w, "33", "note:"), why, command.DefaultPolicy)
		s.Policy, err = engine.Load(cmd.InOrStdin(), command.DefaultPolicy)
		return command.DefaultPolicy, err
	}
	return "", err
}
