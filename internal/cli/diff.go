package cli

import (
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"sluice/internal/cli/command"
	"sluice/internal/engine"
	"sluice/internal/language/policy"
	"sluice/internal/prove/query"
	"sluice/internal/system/host"
)

// runningName stands for the policy that runs, in place of a file.
const runningName = "running"

func newDiff() *cobra.Command {
	var described string
	var markdown bool
	cmd := &cobra.Command{
		Use:   "diff [OLD] NEW",
		Short: "Say what a change of a policy opens and closes",
		Long: `Compares two policies by what they mean: which packets the new one allows that
the old one does not, and the other way round, as few classes with an example
each, the most dangerous first: what is opened before what is closed, whole
protocols and ports of management before others, more addresses before fewer.
A redirect that leads on to another machine or port opens that, too.
Behind them: what is rejected instead of dropped, limits, rewriting of addresses,
tracking, acceleration, logs, and settings of the kernel.

It holds for every packet: the compiled rules of both are followed for all values
of all fields at once, and every example is asked of a second judge, which reads
the policies and not what they were compiled to. A policy that says the same in
other words gives "no difference". Counters and comments make none.

OLD and NEW are files, "-" for standard input, or "running" for the policy that
is loaded, which OLD is where one file is given. Both are compiled for this host or, with --host, for the one that
"sluice facts --json" described. Lists are not downloaded, the copies are used.

With --markdown the output is for a comment on a pull request.

Exit status: 0 nothing opens, 1 something does, 2 bad use or a bad policy.
Environment: SLUICE_STATE_DIR.
Files: country data, lists and the running policy in /var/lib/sluice.`,
		Example: `  sluice diff policy.yaml
  git show main:policy.yaml | sluice diff - policy.yaml
  sluice diff old.yaml new.yaml --markdown --host gateway.json`,
		Args: cobra.RangeArgs(1, 2),
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 1 {
				args = []string{runningName, args[0]}
			}
			if args[0] == engine.StandardInput && args[1] == engine.StandardInput {
				return errors.New("OLD and NEW cannot both be standard input\nhint: name a file for one of them")
			}
			if markdown && optionsOf(cmd).json {
				return errors.New("--markdown and --json exclude each other")
			}
			return runDiff(cmd, args[0], args[1], described, markdown)
		},
		ValidArgsFunction: func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
			return []string{cobra.CompletionWithDesc(runningName, "the policy that is loaded")}, cobra.ShellCompDirectiveDefault
		},
	}
	cmd.Flags().StringVar(&described, "host", "", "compare for the host described in `FACTS.json`")
	cmd.Flags().BoolVar(&markdown, "markdown", false, "print Markdown for a pull request")
	return cmd
}

func runDiff(cmd *cobra.Command, old, next, described string, markdown bool) error {
	o := optionsOf(cmd)
	facts, err := readFacts(cmd.Context(), described, o)
	if err != nil {
		return err
	}
	var sides [2]query.Compiled
	sources := sourcesOf(cmd, true)
	for i, name := range []string{old, next} {
		if sides[i], err = compiledSide(cmd, facts, sources, name); err != nil {
			return err
		}
	}
	d, err := query.Compare(sides[0], sides[1], sources.Countries)
	if err != nil {
		return err
	}
	w := cmd.OutOrStdout()
	switch {
	case o.json:
		err = command.PrintJSON(w, d.Report(old, next))
	case markdown:
		_, err = io.WriteString(w, query.Markdown(d, old, next))
	default:
		printDiff(w, d)
	}
	if err == nil && d.Opens() {
		err = command.ErrFound
	}
	return err
}

// compiledSide reads one of the policies. Lists and country data are read once
// for both.
func compiledSide(cmd *cobra.Command, facts host.Facts, sources *engine.Sources, name string) (query.Compiled, error) {
	s := engine.Subject{Facts: facts, Sources: sources}
	if name == runningName {
		if err := running(cmd, &s); err != nil {
			return query.Compiled{}, err
		}
	} else {
		p, err := engine.Load(cmd.InOrStdin(), name)
		if err != nil {
			return query.Compiled{}, err
		}
		s.Policy = p
	}
	return s.Meaning(cmd.Context())
}

// running reads the policy that is loaded, from where it is kept. Its files are looked
// for where it was applied.
func running(cmd *cobra.Command, s *engine.Subject) error {
	h, err := hostOf(cmd)
	if err != nil {
		return err
	}
	g, texts, err := h.RunningPolicy()
	if err != nil {
		return err
	}
	s.Runs = g
	if s.Policy, err = policy.LoadTexts(g.Policy, texts); err != nil {
		return fmt.Errorf("read the policy of generation %d: %w", g.Number, err)
	}
	s.Policy.Dir = g.Dir
	return nil
}

// changeStyles are the colours of what opens and of what closes.
var changeStyles = map[query.Kind]string{
	query.Opened: "1;31", query.Reached: "1;31", query.Loosened: "1;31", query.Closed: "1;32", query.Tightened: "1;32",
}

func printDiff(w io.Writer, d *query.Diff) {
	if len(d.Changes)+len(d.Settings) == 0 {
		fmt.Fprintln(w, "no difference: both treat every packet alike")
		return
	}
	rows := d.Rows()
	for i := range rows {
		c := &rows[i]
		style := changeStyles[c.Kind]
		if style == "" {
			style = "1"
		}
		fmt.Fprintf(w, "%s: %s on %s %s, for example %s%s\n", command.Paint(w, style, c.Kind.Words()), command.Paint(w, "1", c.What()), c.Hook, c.Place(), c.Example.Short(c.Hook), c.Rest())
		fmt.Fprintf(w, "    %s\n    %s\n", command.Paint(w, "2", "old: "+c.Old.String()), command.Paint(w, "2", "new: "+c.New.String()))
	}
	for _, s := range d.Settings {
		fmt.Fprintf(w, "%s: %s\n", command.Paint(w, "1", "setting"), s)
	}
	fmt.Fprintf(w, "\n%s\n", strings.TrimSpace(d.Summary()))
}
