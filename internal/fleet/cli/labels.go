package cli

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"sluice/internal/base/english"
	"sluice/internal/base/selector"
	"sluice/internal/cli/command"
	"sluice/internal/fleet/classes"
	"sluice/internal/fleet/inventory"
	"sluice/internal/fleet/trust"
	"sluice/internal/language/policy"
)

func newSignLabels() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "labels HOST NAME=VALUE...",
		Short: "Sign an order that gives a host other labels",
		Long: `Signs that a host has these labels from now on, replacing all that it had. This takes a policy
key, since labels select parts. "publish labels" sends the order to the host, which takes
it for 90 days, and only if it is newer than the last one it took. To go back, sign the earlier
labels again.

First the command shows which parts the labels select and, where there is an inventory, what the
change opens and closes on all hosts, as "diff" does: sets by hosts change with it. If "check"
then finds an error, nothing is signed. The inventory itself is not changed.
` + passphraseHelp + `

Exit status: 0 signed; 1 signed, but signatures of others are missing; 2 an error in a
policy, a wrong key, or bad use.
` + repositoryFiles + ` And trust/labels/.`,
		Example: `  sluice-controller sign labels db-1 role=db env=prod --key ~/fleet-keys/policy.age
  sluice-controller sign labels db-1 role=db env=test --dry-run`,
		Args: cobra.MinimumNArgs(1),
		RunE: signLabels,
		ValidArgsFunction: func(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
			return hostNames(cmd, args)
		},
	}
	addRepository(cmd.Flags())
	addKeys(cmd)
	cmd.Flags().Bool("dry-run", false, "show the effect, and sign nothing")
	return cmd
}

// hostNames are those of the inventory, for the first argument.
func hostNames(cmd *cobra.Command, args []string) ([]string, cobra.ShellCompDirective) {
	var names []string
	if inv, err := readInventory(cmd); err == nil && len(args) == 0 {
		for i := range inv.Hosts {
			names = append(names, inv.Hosts[i].Name)
		}
	}
	return names, cobra.ShellCompDirectiveNoFileComp
}

// labelsJSON is what "sign labels --json" prints.
type labelsJSON struct {
	trust.SignedLabels
	Parts  []string      `json:"parts"`            // that the labels select
	Before []string      `json:"before,omitempty"` // with an inventory: the parts that the host has by it
	Change *comparedJSON `json:"change,omitempty"` // with an inventory
	DryRun bool          `json:"dry-run,omitempty"`
}

// readLabels reads NAME=VALUE words.
func readLabels(words []string) (map[string]string, error) {
	out := map[string]string{}
	for _, word := range words {
		name, value, is := strings.Cut(word, "=")
		if !is {
			return nil, fmt.Errorf("%q is not a label: write NAME=VALUE, as in role=db", word)
		}
		if _, twice := out[name]; twice {
			return nil, fmt.Errorf("label %s is given twice", name)
		}
		out[name] = value
	}
	return out, trust.CheckLabels(out)
}

func signLabels(cmd *cobra.Command, args []string) error {
	ctx, stop := command.Interruptible(cmd)
	defer stop()
	host := args[0]
	if err := trust.CheckHostID(host); err != nil {
		return err
	}
	labels, err := readLabels(args[1:])
	if err != nil {
		return err
	}
	r, err := openRepository(cmd)
	if err != nil {
		return err
	}
	out := labelsJSON{SignedLabels: trust.SignedLabels{LabelOrder: trust.LabelOrder{Fleet: r.Fleet(), Host: host, Labels: labels}}}
	out.DryRun, _ = cmd.Flags().GetBool("dry-run")
	compared, err := out.foresee(ctx, cmd)
	if err != nil {
		return err
	}
	if !command.JSON(cmd) {
		if err := out.print(cmd, compared); err != nil {
			return err
		}
	}
	if !out.DryRun {
		signers, done, err := signersOf(cmd, r.Role("targets").Keys)
		defer done()
		if err != nil {
			return err
		}
		if out.SignedLabels, err = r.SignLabels(host, labels, time.Now(), signers...); err != nil {
			return err
		}
	}
	if command.JSON(cmd) {
		if err := command.PrintJSON(cmd.OutOrStdout(), out); err != nil {
			return err
		}
	}
	if out.DryRun {
		return nil
	}
	if missing := out.Needed - out.Signatures; missing > 0 {
		return command.Found(fmt.Sprintf("the labels of %s lack %s: commit trust/, and have the holder of another policy key run sluice-controller sign labels with the same labels", host, english.Plural(missing, "signature")))
	}
	fmt.Fprintf(cmd.ErrOrStderr(), "signed the labels of %s: commit trust/, and sluice-controller publish labels has the host told until %s\n", host, out.Expires.Format(time.DateOnly))
	return nil
}

// foresee finds what the labels will do: which parts they select, and with an inventory what
// changes for whom. The error is of what may not be signed.
func (l *labelsJSON) foresee(ctx context.Context, cmd *cobra.Command) (*classes.Comparison, error) {
	p, err := policy.Reading{Parts: true}.ReadFleet(filepath.Join(repository(cmd), classes.FleetFile))
	if err != nil {
		return nil, err
	}
	next := inventory.Host{Name: l.Host, Labels: l.Labels}
	if l.Parts = partsOf(p, repository(cmd), &next); len(l.Parts) == 0 {
		return nil, fmt.Errorf("no part applies to %s with these labels, which would be unprotected\nhint: write a part that selects it, or one without hosts, which applies to every host", l.Host)
	}
	inv, err := readInventory(cmd)
	switch _, missing := os.Stat(filepath.Join(repository(cmd), classes.InventoryFile)); {
	case errors.Is(missing, fs.ErrNotExist) && !cmd.Flags().Changed("inventory"):
		return nil, nil
	case err != nil:
		return nil, err
	}
	is := inv.Host(l.Host)
	if is == nil {
		return nil, fmt.Errorf("%s has no host %q\nhint: write a line for it, so that the effect of its labels can be shown", inv.File, l.Host)
	}
	l.Before = partsOf(p, repository(cmd), is)
	changed := &inventory.Inventory{File: inv.File, Hosts: slices.Clone(inv.Hosts)}
	changed.Host(l.Host).Labels = l.Labels
	from, err := sources(cmd)
	if err != nil {
		return nil, err
	}
	before, err := classed(ctx, repository(cmd), inv, from)
	if err != nil {
		return nil, err
	}
	after, err := classed(ctx, repository(cmd), changed, from)
	if err != nil {
		return nil, fmt.Errorf("with these labels: %w", err)
	}
	if _, wrong, err := after.errors(ctx, cmd); err != nil || wrong != nil {
		return nil, fmt.Errorf("with these labels: %w", errors.Join(err, wrong))
	}
	compared, err := after.Compare(ctx, after.classes, before.Fleet, before.classes, counting(cmd, "compare", len(after.classes)))
	if err == nil {
		l.Change = comparedOf("the inventory", compared)
	}
	return compared, err
}

// partsOf are the parts of a host, beside fleet.yaml.
func partsOf(p *policy.Policy, dir string, h *inventory.Host) []string {
	out := []string{}
	for _, part := range p.Fleet.Parts {
		if h.Selected(part.Selector) {
			name, err := filepath.Rel(dir, part.File)
			if err != nil {
				name = part.File
			}
			out = append(out, name)
		}
	}
	return out
}

func (l *labelsJSON) print(cmd *cobra.Command, compared *classes.Comparison) error {
	w := cmd.OutOrStdout()
	fmt.Fprintln(w, command.Paint(w, "1", fmt.Sprintf("%s of %s: %s", l.Host, l.Fleet, selector.LabelText(l.Labels))))
	for _, part := range l.Parts {
		sign, colour := " ", "2"
		if compared != nil && !slices.Contains(l.Before, part) {
			sign, colour = "+", "32"
		}
		fmt.Fprintln(w, command.Paint(w, colour, "  "+sign+" "+part))
	}
	for _, part := range l.Before {
		if !slices.Contains(l.Parts, part) {
			fmt.Fprintln(w, command.Paint(w, "31", "  - "+part))
		}
	}
	if compared == nil {
		return nil
	}
	return printCompared(cmd, "", compared, false)
}

func newPublishLabels() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "labels [HOST...]",
		Short: "Send hosts the labels that were signed for them",
		Long: `Sends the newest orders in trust/labels/ to the controller, or only those of the hosts named.
Each host gets its order at once, or when it connects. The controller takes no order that the
host would refuse, nor one that is older than what it has. A host applies the parts that its
labels now select like a bundle: on trial, until its probes have confirmed it. "hosts" shows
which hosts have not taken their labels yet, "audit list" which they had before.

Files: trust/labels/ in the repository; controller.sock in the controller's directory.

Exit status: 0 fine; 1 an order was refused; 2 bad use, or no controller answers.`,
		Example: "  sluice-controller publish labels\n  sluice-controller publish labels db-1 && sluice-controller hosts host=db-1",
		RunE:    publishLabels,
	}
	addController(cmd)
	cmd.Flags().String("repository", ".", "`DIR` of fleet.yaml and trust/")
	return cmd
}

// toldJSON is what came of the order of a host.
type toldJSON struct {
	Host    string            `json:"host"`
	Labels  map[string]string `json:"labels,omitempty"`
	Before  map[string]string `json:"before,omitempty"`
	Changed bool              `json:"changed"`
	Error   string            `json:"error,omitempty"`
}

func publishLabels(cmd *cobra.Command, hosts []string) error {
	ctx, stop := command.Interruptible(cmd)
	defer stop()
	r, err := openRepository(cmd)
	if err != nil {
		return err
	}
	orders, err := r.LabelOrders()
	if err != nil {
		return err
	}
	if len(hosts) == 0 {
		hosts = slices.Sorted(maps.Keys(orders))
	}
	for _, host := range hosts {
		if orders[host] == nil {
			return fmt.Errorf("no labels are signed for %q\nhint: sluice-controller sign labels %s NAME=VALUE... signs them", host, command.ShellWord(host))
		}
	}
	c := controllerOf(cmd)
	if _, err := c.Status(ctx); err != nil {
		return hinted(err)
	}
	told, refused := []toldJSON{}, 0
	for _, host := range hosts {
		is := toldJSON{Host: host}
		made, err := c.SetLabels(ctx, host, orders[host])
		if err != nil {
			refused++
			is.Error = err.Error()
		} else {
			is.Labels, is.Before, is.Changed = made.Labels, made.Before, made.Changed
		}
		told = append(told, is)
	}
	w := cmd.OutOrStdout()
	if command.JSON(cmd) {
		if err := command.PrintJSON(w, told); err != nil {
			return err
		}
	} else {
		for _, is := range told {
			switch {
			case is.Error != "":
				fmt.Fprintf(w, "%s: %s: %s\n", is.Host, command.Paint(w, "31", "refused"), is.Error)
			case !is.Changed:
				fmt.Fprintf(w, "%s: %s, as the controller knows\n", is.Host, selector.LabelText(is.Labels))
			default:
				fmt.Fprintf(w, "%s: %s, and before %s\n", is.Host, selector.LabelText(is.Labels), selector.LabelText(is.Before))
			}
		}
	}
	switch {
	case refused > 0:
		return command.ErrFound
	case len(told) == 0 && !command.JSON(cmd):
		fmt.Fprintln(cmd.ErrOrStderr(), "no labels are signed\nhint: sluice-controller sign labels HOST NAME=VALUE... signs them")
	}
	return nil
}
