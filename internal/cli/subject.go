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
		p, err := loadPolicy(cmd, command.PolicyArgument(args))
		return &engine.Subject{Policy: p, Sources: from}, err
	}
	if len(args) > 0 || described != "" || forLabels(cmd) {
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
		return nil, &engine.ClosedAskedError{ClosedRunsError: closed}
	case noneToRead(cmd, err):
		return load()
	}
	return s, err
}

// noneToRead says that no policy that runs can be asked about, and tells that the file is
// which would be applied.
func noneToRead(cmd *cobra.Command, err error) bool {
	var why string
	switch {
	case errors.Is(err, fs.ErrPermission):
		why = "only root may read the policy that runs"
	case errors.Is(err, apply.ErrNoPolicy):
		why = "no policy runs"
	default:
		return false
	}
	note(cmd, fmt.Sprintf("%s: this is about %s", why, command.DefaultPolicy))
	return true
}

// aboutPolicy asks about FILE where it is named, or that of a described host, and else about
// the policy that runs, for which the subject is nil; where none runs, or it may not be
// read, about the file that would be applied.
func aboutPolicy[T any](cmd *cobra.Command, args []string, described string, offline bool, ask func(*engine.Subject) (T, error)) (T, error) {
	if len(args) == 0 && described == "" && !forLabels(cmd) {
		out, err := ask(nil)
		if !noneToRead(cmd, err) {
			return out, err
		}
	}
	var none T
	facts, err := readFacts(cmd.Context(), described, optionsOf(cmd))
	if err != nil {
		return none, err
	}
	p, err := loadPolicy(cmd, command.PolicyArgument(args))
	if err != nil {
		return none, err
	}
	return ask(&engine.Subject{Policy: p, Sources: sourcesOf(cmd, offline), Facts: facts})
}
