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
// not be read, it is the file that would be applied, and that is told.
func subject(cmd *cobra.Command, from *engine.Sources, args []string, described string) (*engine.Subject, error) {
	load := func() (*engine.Subject, error) {
		p, err := engine.Load(cmd.InOrStdin(), command.PolicyArgument(args))
		return &engine.Subject{Policy: p, Sources: from}, err
	}
	if len(args) > 0 || described != "" {
		return load()
	}
	h, err := hostOf(cmd)
	if err != nil {
		return nil, err
	}
	s, err := h.Running(from)
	var closed *apply.ClosedRunsError
	switch {
	case errors.As(err, &closed):
		return nil, fmt.Errorf("%w\n  hint: name a FILE to ask about that one", err)
	case errors.Is(err, apply.ErrNoPolicy), errors.Is(err, fs.ErrPermission):
		why := "no policy runs"
		if errors.Is(err, fs.ErrPermission) {
			why = "only root may read the policy that runs"
		}
		w := cmd.ErrOrStderr()
		fmt.Fprintf(w, "%s %s, so this is about %s\n", command.Paint(w, "33", "note:"), why, command.DefaultPolicy)
		return load()
	}
	return s, err
}
