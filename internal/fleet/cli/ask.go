package cli

import (
	"fmt"

	"github.com/spf13/cobra"

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
		Long: `Asks what the policy in a repository does with packets on one host of the inventory,
as "sluice explain" and "sluice query" do on that host. Nothing is sent, and no host
is asked: what is known of it is what its facts in the inventory say.`,
		Example: `  sluice-controller ask explain web-1 --src 203.0.113.9 --dport https
  sluice-controller ask query db-1 --allowed --service postgresql`,
	}
	cmd.AddCommand(newAskExplain(), newAskQuery())
	return cmd
}

func newAskExplain() *cobra.Command {
	var asked explain.Question
	var everyRule bool
	cmd := &cobra.Command{
		Use:   "explain HOST",
		Short: "Say what a host's policy does with one packet, and why",
		Long: `Says what the policy of a host of the inventory does with one packet, with the part
and the line that decides. "sluice explain" has the words, and how what is not said of
the packet is found. Lists are not downloaded, the copies are used.

Exit status: 0 the packet is allowed, 1 it is dropped or rejected, or whether it is
depends on what is not known, 2 bad use, a bad policy, or a bug in Sluice.
` + repositoryFiles,
		Example: `  sluice-controller ask explain web-1 --src 203.0.113.9 --dport https
  sluice-controller ask explain db-1 --src 203.0.113.5 --dport postgresql --json`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			s, err := askedHost(cmd, args[0])
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
	addRepository(cmd)
	answers.AddPacket(cmd, &asked, &everyRule)
	return cmd
}

func newAskQuery() *cobra.Command {
	var asked answers.Query
	cmd := &cobra.Command{
		Use:   "query HOST",
		Short: "Say which packets a host's policy allows, all of them",
		Long: `Says of all packets that fit what the policy of a host of the inventory does with
them, as "sluice query" does, which has the words. Lists are not downloaded, the
copies are used.

Exit status: 0 fine, and with --allowed or --dropped: there are none; 1 there are
some; 2 bad use or a bad policy.
` + repositoryFiles,
		Example: `  sluice-controller ask query db-1 --allowed --service postgresql
  sluice-controller ask query web-1 --from "not office" --json`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := asked.Read(cmd); err != nil {
				return err
			}
			s, err := askedHost(cmd, args[0])
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
	addRepository(cmd)
	asked.Add(cmd)
	return cmd
}

// askedHost is the policy of a host of the inventory.
func askedHost(cmd *cobra.Command, name string) (*engine.Subject, error) {
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
