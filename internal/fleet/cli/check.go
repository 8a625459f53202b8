package cli

import (
	"fmt"
	"slices"

	"github.com/spf13/cobra"

	"sluice/internal/base/english"
	"sluice/internal/cli/command"
	"sluice/internal/engine"
	"sluice/internal/fleet/classes"
	"sluice/internal/prove/check"
)

func newCheck() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "check",
		Short: "Find what is wrong with the policy of a fleet, for all hosts",
		Long: `Checks the policy of every host of the inventory, and changes nothing. First the text
of fleet.yaml and all parts, then what they mean together for each class of hosts:
everything that "sluice check" looks for, whether it compiles, and whether what the
parts expect holds for all packets.

A class is a group of hosts with the same parts, whose facts differ in nothing that the policy
can distinguish: what holds for one of them holds for all. Addresses of a host count by the
sets, zones and networks that they are in. A class is named by the number of its hosts and
the labels that they have in common.

A host that no part selects is an error; a part that selects no host is a warning.

Exit status: 0 fine, or notes only; 1 warnings; 2 errors, or bad use.
` + repositoryFiles,
		Example: `  sluice-controller check
  sluice-controller check --repository /srv/fleet --json`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return runCheck(cmd) },
	}
	addRepository(cmd.Flags())
	addOffline(cmd)
	return cmd
}

// checkedJSON is what "check --json" prints.
type checkedJSON struct {
	Fleet    string          `json:"fleet,omitempty"`
	Hosts    int             `json:"hosts"`
	Classes  []classJSON     `json:"classes"`
	Findings []classes.Found `json:"findings"`
}

// classJSON is a class with its hosts.
type classJSON struct {
	*classes.Class
	Hosts        []string `json:"hosts"`
	Expectations int      `json:"expectations"`
}

func runCheck(cmd *cobra.Command) error {
	ctx, stop := command.Interruptible(cmd)
	defer stop()
	out := checkedJSON{Classes: []classJSON{}, Findings: []classes.Found{}}
	r, err := classify(ctx, cmd)
	if err != nil {
		wrong, err := engine.Findings(err)
		if err != nil {
			return err
		}
		for _, f := range wrong {
			out.Findings = append(out.Findings, classes.Found{Finding: f})
		}
		return reportCheck(cmd, &out)
	}
	found, err := r.Check(ctx, r.classes, counting(cmd, "check", len(r.classes)))
	if err != nil {
		return err
	}
	out.Fleet, out.Hosts = r.Policy.Fleet.Name, len(r.Inventory.Hosts)
	out.Findings = append(out.Findings, classes.Join(slices.Concat(r.found, found))...)
	for _, c := range r.classes {
		j := classJSON{Class: c, Expectations: len(c.Policy.Expect)}
		for _, h := range c.Hosts {
			j.Hosts = append(j.Hosts, h.Name)
		}
		out.Classes = append(out.Classes, j)
	}
	return reportCheck(cmd, &out)
}

// shownFindings is how many findings are printed as text.
const shownFindings = 200

func reportCheck(cmd *cobra.Command, out *checkedJSON) error {
	count := map[check.Severity]int{}
	bad := map[*classes.Class]bool{}
	for i := range out.Findings {
		f := &out.Findings[i]
		one := []check.Finding{f.Finding}
		withRemedies(one)
		f.Finding = one[0]
		count[f.Severity]++
		for _, c := range f.Classes {
			bad[c] = bad[c] || f.Severity == check.Error
		}
	}
	w := cmd.OutOrStdout()
	if command.JSON(cmd) {
		if err := command.PrintJSON(w, out); err != nil {
			return err
		}
	} else {
		for i := range out.Findings {
			if i == shownFindings {
				fmt.Fprintf(w, "and %d more\n", len(out.Findings)-i)
				break
			}
			fmt.Fprintln(w, out.Findings[i].Finding)
			if whose := out.Findings[i].For(); whose != "" {
				fmt.Fprintln(w, command.Paint(w, "2", "for "+whose))
			}
		}
		for _, c := range out.Classes {
			said := command.Paint(w, "32", "ok") + "     "
			if bad[c.Class] {
				said = command.Paint(w, "31", "FAILED") + " "
			}
			fmt.Fprintf(w, "%s %s: %s", said, c.Name, english.Plural(len(c.Parts), "part"))
			if c.Expectations > 0 && !bad[c.Class] {
				fmt.Fprintf(w, ", %s", proved(c.Expectations))
			}
			fmt.Fprintln(w)
		}
	}
	switch {
	case count[check.Error] > 0:
		return fmt.Errorf("the fleet has %s", english.Plural(count[check.Error], "error"))
	case count[check.Warning] > 0:
		return command.Found("the fleet has " + english.Plural(count[check.Warning], "warning"))
	case !command.JSON(cmd):
		fmt.Fprintf(cmd.ErrOrStderr(), "fleet %s is fine: %s in %s\n", out.Fleet, english.Plural(out.Hosts, "host"), english.Plural(len(out.Classes), "class"))
	}
	return nil
}

func proved(n int) string {
	if n == 1 {
		return "1 expectation holds"
	}
	return fmt.Sprintf("%d expectations hold", n)
}
