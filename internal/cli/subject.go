package cli

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"sluice/internal/cli/command"
	"sluice/internal/engine/apply"
	"sluice/internal/language/policy"
)

// subject reads the policy that a question is about: FILE where it is named, or
// that of a described host, and else the policy that runs. Where none runs, or it may
// not be read, it is the file that would be applied, and that is told. It returns
// the name of the policy.
func (p *pipeline) subject(cmd *cobra.Command, args []string, described string) (name string, err error) {
	if len(args) > 0 || described != "" {
		p.policy, err = loadPolicy(cmd.InOrStdin(), command.PolicyArgument(args))
		return command.PolicyArgument(args), err
	}
	err = p.running(cmd)
	var closed *apply.ClosedRunsError
	switch {
	case errors.As(err, &closed):
		return "", fmt.Errorf("%w\n  hint: name a FILE to ask about that one", err)
	case err == nil:
		return p.runs.Policy, nil
	case errors.Is(err, apply.ErrNoPolicy), errors.Is(err, fs.ErrPermission):
		why := "no policy runs"
		if errors.Is(err, fs.ErrPermission) {
			why = "only root may read the policy that runs"
		}
		if p.warn != nil {
			fmt.Fprintf(p.warn, "%s %s, so this is about %s\n", command.Paint(p.warn, "33", "note:"), why, command.DefaultPolicy)
		}
		p.policy, err = loadPolicy(cmd.InOrStdin(), command.DefaultPolicy)
		return command.DefaultPolicy, err
	}
	return "", err
}

// tellChanged says that what the running policy takes from the host is no more what
// it was, so that what runs may be another thing than what is answered.
func (p *pipeline) tellChanged() {
	if p.runs == nil || p.warn == nil {
		return
	}
	names, _, known := p.runs.ChangedInputs(p.resolved.Inputs)
	if known && len(names) > 0 {
		warn(p.warn, fmt.Sprintf("since generation %d was loaded, there is another %s: this answers with what is there now", p.runs.Number, strings.Join(names, ", ")))
	}
}

// edited names the files of a generation's policy that are no more what was loaded:
// the policy, what it includes, its set files. An error says why they cannot be read.
func edited(g *apply.Generation) (names []string, err error) {
	if g == nil || g.Closed || g.Policy == "" || g.Policy == stdinName || len(g.Files) == 0 {
		return nil, nil
	}
	in := func(name string) string {
		if filepath.IsAbs(name) {
			return name
		}
		return filepath.Join(g.Dir, name)
	}
	p, err := policy.Load(in(g.Policy))
	if err != nil {
		return nil, err
	}
	now, err := apply.ReadSources(p.Files())
	if err != nil {
		return nil, err
	}
	sums := map[string]string{}
	for _, s := range now {
		sums[s.Name] = s.SHA256
	}
	for _, f := range g.Files {
		if sums[in(f.Name)] != f.SHA256 {
			names = append(names, in(f.Name))
		}
		delete(sums, in(f.Name))
	}
	for name := range sums {
		names = append(names, name)
	}
	slices.Sort(names)
	return slices.Compact(names), nil
}

// findEdited notes in a status which files are no more what runs.
func findEdited(s *apply.Status) {
	names, err := edited(s.Generation)
	s.Edited = names
	if err != nil {
		s.EditedUnread = err.Error()
	}
	if errors.Is(err, os.ErrNotExist) {
		s.EditedUnread = s.Generation.Policy + ", of which this was made, is gone"
	}
}
