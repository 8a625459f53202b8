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
		Short: "Show all packets that a policy allows",
		Long: `Shows what a policy (the running one unless you give FILE, standard input for -) does with all
packets of a kind: as few classes as possible, each exact, each with the line that decides and
an example packet, or "none". Nothing is tried out and no packet is sent. It holds for every
packet, since the compiled rules are evaluated for all values of all fields at once; each example
is also checked by a second evaluator that reads the policy instead of the compiled rules.

The packets are those that begin a flow, for every service, in every section that the policy
has, and in input and forward if it has none and so allows everything (forward if the host
forwards, or --to names other hosts); traffic of the host to itself over loopback is left out.
Addresses are those on arrival. Packets that NAT leads to the service or address are shown too,
as "redirected to", and so are ports that another tool publishes, as far as the host's facts
show where they lead. Words are those of rules: --service ssh, tcp/22, "icmp echo-request" or
"[http, https]"; --from and --to a set, a zone, an address, "not office" or a list; --in and
--out a zone. --allowed and --dropped show one side only; rejected counts as dropped.

Limits let packets pass unless a class says that it is over one. Bans by commands and by limits
are not part of the policy: the answer leaves them out, and a note names those of an address,
prefix or range in --from or --to that hold on this host now.

Exit status: 0 fine, with --allowed or --dropped: there are none; 1 there are some; 2 bad use or
a bad policy. In CI, this fails if anybody else can reach ssh:
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
	cmd.Flags().StringVar(&described, "host", "", "query for the host described in `FACTS.json`")
	addLabels(cmd)
	return cmd
}

func runQuery(cmd *cobra.Command, args []string, asked *answers.Query, described string) error {
	h, err := doorOf(cmd)
	if err != nil {
		return err
	}
	out, err := aboutPolicy(cmd, args, described, true, func(s *engine.Subject) (*engine.Queried, error) {
		return h.Query(cmd.Context(), engine.Querying{Subject: s, Words: asked.Words, Verdicts: asked.Verdicts, Elsewhere: described != ""})
	})
	if err != nil {
		return err
	}
	return asked.Print(cmd, out)
}
