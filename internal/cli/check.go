package cli

import (
	"fmt"

	"github.com/spf13/cobra"

	"sluice/internal/base/english"
	"sluice/internal/cli/command"
	"sluice/internal/engine"
	"sluice/internal/prove/check"
)

func newCheck() *cobra.Command {
	var described string
	var textOnly, offline bool
	cmd := &cobra.Command{
		Use:   "check [FILE]",
		Short: "Check a policy for errors and rules that cannot work",
		Long: `Checks a policy (/etc/sluice/policy.yaml unless you give FILE, standard input for -) and
changes nothing. First it checks the text, with all that it includes: every error of every
file, with file, line, column, the line itself and a suggestion. If there is none, it checks
what the policy means on this host: rules that can never match and the rules that hide them,
empty sets, bypasses that break connections, missing rules for replies, bans of who is logged
in, expectations that fail (this host's own in /etc/sluice/guard.yaml too), and more.

--host checks the policy for the host that "sluice facts --json" described. --text reads the
text alone, for no host, without set files, lists and country data. --offline downloads no
list.

--labels takes the policy of a fleet as FILE and checks what a host with these labels gets;
host=NAME is its name. The fleet's sets by hosts and guests are then empty.

Exit status: 0 no findings, or remarks only; 1 warnings; 2 errors or bad use.
Environment: SLUICE_STATE_DIR.
Files: /etc/sluice/policy.yaml, /etc/sluice/guard.yaml, country data and lists in /var/lib/sluice.`,
		Example: `  sluice check
  sluice check --text vms/web.yaml
  sluice check policy.yaml --host gateway.json --json
  sluice check --labels role=db fleet.yaml`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			o := optionsOf(cmd)
			file := command.PolicyArgument(args)
			findings, err := findAll(cmd, file, described, textOnly, offline)
			if err != nil {
				return err
			}
			return reportFindings(cmd, o, file, findings)
		},
	}
	cmd.Flags().StringVar(&described, "host", "", "check for the host described in `FACTS.json`")
	cmd.Flags().BoolVar(&textOnly, "text", false, "check only the text, for no host")
	cmd.Flags().BoolVar(&offline, "offline", false, "use the copies of lists, download none")
	addLabels(cmd)
	cmd.MarkFlagsMutuallyExclusive("host", "text")
	return cmd
}

// findAll returns what is wrong with a policy; the error is for what keeps it
// from being looked at.
func findAll(cmd *cobra.Command, file, described string, textOnly, offline bool) ([]check.Finding, error) {
	p, err := loadPolicy(cmd, file)
	if err == nil && textOnly {
		return engine.OldWords(p, nil), nil
	}
	if err != nil {
		findings, err := engine.Findings(err)
		withRemedies(findings)
		return findings, err
	}
	facts, err := readFacts(cmd.Context(), described, optionsOf(cmd))
	if err != nil {
		return nil, err
	}
	s := engine.Subject{Policy: p, Facts: facts, Sources: sourcesOf(cmd, offline)}
	if described == "" {
		if s.Guard, err = engine.ReadGuard(engine.GuardFile(optionsOf(cmd).netns)); err != nil {
			return engine.Findings(err)
		}
	}
	findings, err := s.Check(cmd.Context())
	withRemedies(findings)
	return findings, err
}

// shownFindings is how many findings are printed as text.
const shownFindings = 200

func reportFindings(cmd *cobra.Command, o options, file string, findings []check.Finding) error {
	count := map[check.Severity]int{}
	for _, f := range findings {
		count[f.Severity]++
	}
	out := cmd.OutOrStdout()
	if o.json {
		if findings == nil {
			findings = []check.Finding{}
		}
		if err := command.PrintJSON(out, engine.Checked{File: file, Findings: findings}); err != nil {
			return err
		}
	} else {
		for i, f := range findings {
			if i == shownFindings {
				fmt.Fprintf(out, "and %d more\n", len(findings)-i)
				break
			}
			fmt.Fprintln(out, f)
		}
	}
	switch {
	case count[check.Error] > 0:
		return fmt.Errorf("%s has %s", fileName(file), english.Plural(count[check.Error], "error"))
	case count[check.Warning] > 0:
		return command.Found(fmt.Sprintf("%s has %s", fileName(file), english.Plural(count[check.Warning], "warning")))
	case !o.json:
		fmt.Fprintf(cmd.ErrOrStderr(), "%s is fine\n", fileName(file))
	}
	return nil
}

// fileName is how messages speak of an argument.
func fileName(file string) string {
	if file == engine.StandardInput {
		return "standard input"
	}
	return file
}
