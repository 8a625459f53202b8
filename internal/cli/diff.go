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
		Use:   "diff [OLD] [NEW]",
		Short: "Show what a change of a policy opens and closes",
		Long: `Compares two policies by their meaning: which packets the new one allows that the old one
does not, and the reverse, as few classes with an example each, the most dangerous first:
what opens before what closes, whole protocols and management ports before others, more
addresses before fewer. A redirect to another machine or port counts as opening that. Then
come packets rejected instead of dropped, limits, address rewriting, tracking, acceleration,
logs, and kernel settings.

It holds for every packet: the compiled rules of both are evaluated for all values of all
fields at once, and every example is checked by a second evaluator that reads the policies
instead of the compiled rules. Two policies that mean the same give "no difference", whatever
their text. Counters and comments do not count.

OLD and NEW are files, "-" for standard input, or "running" for the policy that is loaded,
which is OLD if you give one file. Without arguments the running policy is compared with
/etc/sluice/policy.yaml. Both are compiled for this host or, with --host, for the
one that "sluice facts --json" described. Lists are not downloaded; their copies are used.

--brief prints a line for each service and direction: first what closes for everybody, then
what opens. Packets that begin no flow (replies, related ones) are in the line of their
service, or in one for all services.

--markdown prints a comment for a pull request.

Exit status: 0 nothing opens, 1 something opens, 2 bad use or a bad policy.
Environment: SLUICE_STATE_DIR.
Files: country data, lists and the running policy in /var/lib/sluice.`,
		Example: `  sluice diff
  sluice diff policy.yaml
  git show main:policy.yaml | sluice diff - policy.yaml
  sluice diff policy.yaml --brief
  sluice diff old.yaml new.yaml --markdown --host gateway.json`,
		Args: cobra.MaximumNArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) < 2 {
				args = []string{engine.Running, command.PolicyArgument(args)}
			}
			if args[0] == engine.StandardInput && args[1] == engine.StandardInput {
				return errors.New("OLD and NEW cannot both be standard input\nhint: give a file for one of them")
			}
			if markdown && optionsOf(cmd).json {
				return errors.New("--markdown and --json exclude each other")
			}
			if markdown && brief {
				return errors.New("--markdown and --brief exclude each other\nhint: --markdown includes the summary of --brief")
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

const noDifference = "no difference: both treat every packet the same"

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
