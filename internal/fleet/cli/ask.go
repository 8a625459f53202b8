package cli

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"sluice"
	"sluice/internal/cli/answers"
	"sluice/internal/cli/command"
	"sluice/internal/engine"
	"sluice/internal/language/policy"
	"sluice/internal/language/source"
	"sluice/internal/prove/explain"
)

func newAsk() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "ask",
		Short: "Ask about packets, on a host of the fleet",
		Long: `Shows what the policy in a repository does with packets on one host of the inventory, as
"sluice explain" and "sluice query" do on that host. Nothing is sent and no host is contacted:
what is known of a host is its facts in the inventory.`,
		Example: `  sluice-controller ask web-1 explain --src 203.0.113.9 --dport https
  sluice-controller ask db-1 query --allowed --service postgresql`,
		Args: cobra.NoArgs,
		RunE: help,
		ValidArgsFunction: func(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
			return hostNames(cmd, args)
		},
	}
	addRepository(cmd.PersistentFlags())
	cmd.AddCommand(newAskHost())
	return cmd
}

// anyHost is the command that stands for each host in the help.
const anyHost = "HOST"

func newAskHost() *cobra.Command {
	cmd := &cobra.Command{
		Use:   anyHost,
		Short: "Ask about packets on HOST of the inventory",
		Long:  `HOST is the name of a host of the inventory; what is asked follows it.`,
		Example: `  sluice-controller ask web-1 explain --src 203.0.113.9 --dport https
  sluice-controller ask db-1 query --allowed --service postgresql`,
		Args: cobra.NoArgs,
		RunE: help,
	}
	cmd.AddCommand(newAskExplain(), newAskQuery())
	return cmd
}

// nameHost gives the command that stands for each host the name of the one that a command
// line asks, so that it is found by that.
func nameHost(root *cobra.Command, args []string) {
	completes := len(args) > 1 && strings.HasPrefix(args[0], cobra.ShellCompRequestCmd)
	if completes {
		args = args[1 : len(args)-1] // the last word is the one to complete
	}
	ask, rest, err := root.Find(args)
	if err != nil || ask.Name() != "ask" {
		return
	}
	about := ask.Commands()[0]
	about.Hidden = completes
	ask.InitDefaultHelpFlag()
	flags := pflag.NewFlagSet("", pflag.ContinueOnError)
	flags.SetInterspersed(false)
	flags.Usage = func() {}
	flags.AddFlagSet(ask.Flags())
	flags.AddFlagSet(ask.PersistentFlags())
	flags.AddFlagSet(ask.InheritedFlags())
	if flags.Parse(rest) == nil && flags.NArg() > 0 && flags.Arg(0) == strings.TrimSpace(flags.Arg(0)) {
		about.Use = flags.Arg(0)
	}
}

func newAskExplain() *cobra.Command {
	var asked explain.Question
	var everyRule bool
	cmd := &cobra.Command{
		Use:   "explain",
		Short: "Show what a host's policy does with one packet, and why",
		Long: `Shows what the policy of a host of the inventory does with one packet, and the part and
the line that decide. "sluice explain --help" has the flags, and the defaults of those that
you leave out. Lists are not downloaded; the copies are used.

Exit status: 0 the packet is allowed, 1 it is dropped or rejected, or whether it is
depends on what is not known, 2 bad use, a bad policy, or a bug in Sluice.
` + repositoryFiles,
		Example: `  sluice-controller ask web-1 explain --src 203.0.113.9 --dport https
  sluice-controller ask db-1 explain --src 203.0.113.5 --dport postgresql --json`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			s, err := askedHost(cmd)
			if err != nil {
				return err
			}
			h, err := engine.NewHost(s.Sources.State, "", sluice.Version())
			if err != nil {
				return err
			}
			e, err := h.Explain(cmd.Context(), engine.Explaining{Subject: s, Question: asked, Words: explain.Words{Fields: answers.PacketFlags}, Elsewhere: true})
			if err != nil {
				return err
			}
			w := cmd.OutOrStdout()
			if !command.JSON(cmd) {
				answers.Explained(w, e, everyRule)
			} else if err := command.PrintJSON(w, e); err != nil {
				return err
			}
			switch {
			case e.Program.Differs():
				return &explain.DiffersError{Says: e.Program.Says}
			case e.Verdict != policy.Allow:
				return command.ErrFound
			}
			return nil
		},
	}
	answers.AddPacket(cmd, &asked, &everyRule)
	return cmd
}

func newAskQuery() *cobra.Command {
	var asked answers.Query
	cmd := &cobra.Command{
		Use:   "query",
		Short: "Show all packets that a host's policy allows",
		Long: `Shows what the policy of a host of the inventory does with all packets that the flags
describe, as "sluice query" does. Lists are not downloaded; the copies are used.

Exit status: 0 fine, and with --allowed or --dropped: there are none; 1 there are
some; 2 bad use or a bad policy.
` + repositoryFiles,
		Example: `  sluice-controller ask db-1 query --allowed --service postgresql
  sluice-controller ask web-1 query --from "not office" --json`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := asked.Read(cmd); err != nil {
				return err
			}
			s, err := askedHost(cmd)
			if err != nil {
				return err
			}
			out, err := s.Query(cmd.Context(), asked.Words, asked.Verdicts)
			if err != nil {
				return err
			}
			return asked.Print(cmd, out)
		},
	}
	asked.Add(cmd)
	return cmd
}

// askedHost is the policy of the host that a command is below of.
func askedHost(cmd *cobra.Command) (*engine.Subject, error) {
	name := cmd.Parent().Name()
	f, err := readFleet(cmd)
	if err != nil {
		return nil, err
	}
	h := f.Inventory.Host(name)
	if h == nil {
		var names []string
		for i := range f.Inventory.Hosts {
			names = append(names, f.Inventory.Hosts[i].Name)
		}
		return nil, fmt.Errorf("%s has no host %q%s", f.Inventory.File, name, source.DidYouMean(name, names))
	}
	return f.Subject(h)
}
