package cli

import (
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"sluice/internal/cli/command"
	"sluice/internal/engine"
	"sluice/internal/prove/query"
)

func newDiff() *cobra.Command {
	var described string
	var markdown, brief bool
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

With --brief there is a line for each service and direction: first what is closed
for everybody, then what opens. Packets that begin no flow (replies, related ones)
are in the line of their service, or in one of all of them.

With --markdown the output is for a comment on a pull request.

Exit status: 0 nothing opens, 1 something does, 2 bad use or a bad policy.
Environment: SLUICE_STATE_DIR.
Files: country data, lists and the running policy in /var/lib/sluice.`,
		Example: `  sluice diff policy.yaml
  git show main:policy.yaml | sluice diff - policy.yaml
  sluice diff policy.yaml --brief
  sluice diff old.yaml new.yaml --markdown --host gateway.json`,
		Args: cobra.RangeArgs(1, 2),
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 1 {
				args = []string{engine.Running, args[0]}
			}
			if args[0] == engine.StandardInput && args[1] == engine.StandardInput {
				return errors.New("OLD and NEW cannot both be standard input\nhint: name a file for one of them")
			}
			if markdown && optionsOf(cmd).json {
				return errors.New("--markdown and --json exclude each other")
			}
			if markdown && brief {
				return errors.New("--markdown and --brief exclude each other\nhint: Markdown begins with what --brief says")
			}
			return runDiff(cmd, args[0], args[1], described, markdown, brief)
		},
		ValidArgsFunction: func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
			return []string{cobra.CompletionWithDesc(engine.Running, "the policy that is loaded")}, cobra.ShellCompDirectiveDefault
		},
	}
	cmd.Flags().StringVar(&described, "host", "", "compare for the host described in `FACTS.json`")
	addLabels(cmd)
	cmd.Flags().BoolVar(&brief, "brief", false, "print a line for each service and direction")
	cmd.Flags().BoolVar(&markdown, "markdown", false, "print Markdown for a pull request")
	return cmd
}

func runDiff(cmd *cobra.Command, old, next, described string, markdown, brief bool) error {
	facts, err := readFacts(cmd.Context(), described, optionsOf(cmd))
	if err != nil {
		return err
	}
	from := sourcesOf(cmd, true) // lists and country data are read once for both
	read := func(name string) (*engine.Subject, error) { return side(cmd, from, name) }
	d, err := engine.Compare(cmd.Context(), from, facts, read, old, next)
	if err != nil {
		return err
	}
	w := cmd.OutOrStdout()
	switch {
	case optionsOf(cmd).json:
		report := d.Report(old, next)
		if brief {
			report.Differences = nil
		}
		err = command.PrintJSON(w, report)
	case brief:
		printBrief(w, d)
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

// side reads one of the policies.
func side(cmd *cobra.Command, from *engine.Sources, name string) (*engine.Subject, error) {
	if name != engine.Running {
		p, err := loadPolicy(cmd, name)
		return &engine.Subject{Policy: p, Sources: from}, err
	}
	h, err := hostOf(cmd)
	if err != nil {
		return nil, err
	}
	return h.Running(from)
}

// changeStyles are the colours of what opens and of what closes.
var changeStyles = map[query.Kind]string{
	query.Opened: "1;31", query.Reached: "1;31", query.Loosened: "1;31", query.Closed: "1;32", query.Tightened: "1;32",
}

func printBrief(w io.Writer, d *query.Diff) {
	if len(d.Changes)+len(d.Settings) == 0 {
		fmt.Fprintln(w, noDifference)
		return
	}
	for _, l := range d.Brief() {
		fmt.Fprintln(w, command.Paint(w, changeStyles[l.Kind], l.String()))
	}
	for _, s := range d.Settings {
		fmt.Fprintf(w, "setting: %s\n", s)
	}
}

const noDifference = "no difference: both treat every packet alike"

func printDiff(w io.Writer, d *query.Diff) {
	if len(d.Changes)+len(d.Settings) == 0 {
		fmt.Fprintln(w, noDifference)
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
