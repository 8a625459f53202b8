package cli

import (
	"github.com/spf13/cobra"

	"sluice/internal/cli/answers"
	"sluice/internal/engine"
)

func newQuery() *cobra.Command {
	var asked answers.Query
	var described string
	cmd := &cobra.Command{
		Use:   "query [FILE]",
		Short: "Say which packets a policy allows, all of them",
		Long: `Says of all packets that fit what a policy (that which runs unless FILE is
given, standard input for -) does with them: as few classes as there are, each
exact, each with the line that decides and one packet as an example, or "none".
Nothing is tried out and no packet is sent. It holds for every packet, since the
compiled rules are followed for all values of all fields at once; each example is
then asked of a second judge, which reads the policy and not what it was compiled
to.

The packets asked about are those that begin something, of every service, by
every section that the policy has, and by input and forward where the policy
has no section for them and so lets all through (forward where the host
forwards, or --to names other hosts); what the host says to itself over loopback
is left out. They are meant as they arrive. Those that nat leads to the service
or address that was asked for are shown too, as "redirected to"; so are ports
that another tool publishes, as far as the host's facts know where they lead.
The words are those of rules: --service ssh, tcp/22, "icmp
echo-request" or "[http, https]"; --from and --to a set, a zone, an address, "not
office" or a list; --in and --out a zone. --allowed and --dropped show one side
alone; what is rejected counts as dropped.

Limits let packets through unless a class says that it is over one. Addresses
that commands or limits have banned meanwhile are not of the policy, and are
left out.

Exit status: 0 fine, and with --allowed or --dropped: there are none; 1 there are
some; 2 bad use or a bad policy. So a check in CI that nobody else gets to ssh is
"sluice query --allowed --service ssh --from 'not office'".
Environment: SLUICE_STATE_DIR.
Files: /etc/sluice/policy.yaml, country data and lists in /var/lib/sluice.`,
		Example: `  sluice query policy.yaml --allowed --service ssh
  sluice query policy.yaml --allowed --service ssh --from "not office"
  sluice query policy.yaml --dropped --hook output --service [smtp, tcp/587]
  sluice query policy.yaml --from 203.0.113.7 --json`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := asked.Read(cmd); err != nil {
				return err
			}
			return runQuery(cmd, args, &asked, described)
		},
	}
	asked.Add(cmd)
	cmd.Flags().StringVar(&described, "host", "", "ask for the host described in `FACTS.json`")
	addLabels(cmd)
	return cmd
}

func runQuery(cmd *cobra.Command, args []string, asked *answers.Query, described string) error {
	h, err := doorOf(cmd)
	if err != nil {
		return err
	}
	out, err := aboutPolicy(cmd, args, described, true, func(s *engine.Subject) (*engine.Queried, error) {
		return h.Query(cmd.Context(), engine.Querying{Subject: s, Words: asked.Words, Verdicts: asked.Verdicts})
	})
	if err != nil {
		return err
	}
	return asked.Print(cmd, out)
}
