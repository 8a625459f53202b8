package cli

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"sluice/internal/base/english"
	"sluice/internal/base/selector"
	"sluice/internal/cli/command"
	"sluice/internal/fleet/api"
	"sluice/internal/fleet/trust"
	"sluice/internal/fleet/wire"
)

func newToken() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "token",
		Short:   "Let hosts enrol",
		Long:    `Creates, lists and withdraws the tokens with which hosts enrol.`,
		Example: "  sluice-controller token create --labels role=web --for 1h",
		Args:    cobra.NoArgs,
		RunE:    help,
	}
	cmd.AddCommand(newTokenCreate(), newTokenList(), newTokenWithdraw())
	return cmd
}

func newTokenCreate() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "create",
		Short: "Create a token with which a host enrols",
		Long: `Creates a token and prints it on a line of its own. "sluice agent enrol" takes it on the host.
Whoever has it may enrol one host, or as many as --uses says, until --for has passed. The host
gets the labels, which select the parts of the policy that it runs. With --approve each host
then waits until an admin lets it in: "requests" lists those that wait, with the hash of the key
that each shows on its own screen, and "approve ID" lets one in.

The token names the fleet's root.json by its hash, from the repository and not from the
controller: the host trusts nobody else, and sends the secret to nobody else. The controller
keeps only the hash of the secret.

Files: trust/root.json in the repository; controller.sock in the controller's directory.

Exit status: 0 fine, 2 bad use, or no controller answers.`,
		Example: `  sluice-controller token create --labels role=web,env=prod --for 1h
  sluice-controller token create --labels role=web --for 24h --uses 50 --approve`,
		Args: cobra.NoArgs,
		RunE: createToken,
	}
	addController(cmd)
	flags := cmd.Flags()
	flags.String("repository", ".", "`DIR` of fleet.yaml and trust/")
	flags.StringToString("labels", nil, "`NAME=VALUE,…` of the host")
	command.AddTime(flags, "for", time.Hour, "until `TIME` from now")
	flags.Int("uses", 1, "let `N` hosts enrol with it")
	flags.Bool("approve", false, "let no host in before an admin approves it")
	return cmd
}

// madeToken is what is printed of a token.
type madeToken struct {
	Token       string            `json:"token"`
	ID          string            `json:"id"`
	Labels      map[string]string `json:"labels,omitempty"`
	Uses        int               `json:"uses"`
	Expires     time.Time         `json:"expires"`
	Controllers []string          `json:"controllers"`
	Approve     bool              `json:"approve,omitempty"`
}

func createToken(cmd *cobra.Command, _ []string) error {
	flags := cmd.Flags()
	labels, _ := flags.GetStringToString("labels")
	uses, _ := flags.GetInt("uses")
	lasts := command.TimeOf(flags, "for")
	approve, _ := flags.GetBool("approve")
	if err := trust.CheckLabels(labels); err != nil {
		return fmt.Errorf("--labels: %w", err)
	}
	if lasts <= 0 {
		return errors.New("--for 0: it would expire at once")
	}
	r, err := openRepository(cmd)
	if err != nil {
		return err
	}
	c := controllerOf(cmd)
	is, err := c.Status(cmd.Context())
	if err != nil {
		return hinted(err)
	}
	if is.Fleet != r.Fleet() {
		return fmt.Errorf("the repository is of the fleet %s, and the controller of %s", r.Fleet(), is.Fleet)
	}
	t, err := trust.NewToken(r.Root(), is.Controllers, labels)
	if err != nil {
		return err
	}
	hash := trust.SecretHash(t.Secret)
	made := madeToken{Token: t.String(), ID: hash[:12], Labels: labels, Uses: uses, Expires: time.Now().Add(lasts).UTC().Truncate(time.Second), Controllers: is.Controllers, Approve: approve}
	if err := c.CreateToken(cmd.Context(), api.NewToken{Id: made.ID, Secret: hash, Labels: labels, Uses: uses, Expires: made.Expires, Approve: approve}); err != nil {
		return later(cmd, made.Token, err)
	}
	if command.JSON(cmd) {
		return command.PrintJSON(cmd.OutOrStdout(), made)
	}
	w := cmd.ErrOrStderr()
	fmt.Fprintf(w, "token %s lets %s enrol until %s; on the host:\n", made.ID, english.Plural(uses, "host"), made.Expires.Local().Format(time.DateTime))
	fmt.Fprintf(w, "  sluice agent enrol https://%s --token-file -\n", strings.Join(made.Controllers[:1], ""))
	fmt.Fprint(w, reachedByName(made.Controllers[:1]))
	fmt.Fprintln(cmd.OutOrStdout(), made.Token)
	return nil
}

// reachedByName is a hint where hosts are to reach a controller by a name without a domain, such as
// the machine's own, which "run" takes where nobody gave another: few hosts know it.
func reachedByName(controllers []string) string {
	for _, c := range controllers {
		name, _, err := net.SplitHostPort(c)
		if _, is := netip.ParseAddr(name); err == nil && is != nil && !strings.Contains(name, ".") {
			return fmt.Sprintf("hint: if the host cannot resolve %s, enrol with the controller's address; sluice-controller run --reached-by HOST:PORT sets what is printed here\n", command.PlainName(name))
		}
	}
	return ""
}

func newTokenList() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List the tokens with which hosts enrol",
		Long: `Lists the tokens with which hosts enrol, newest first: their labels, how many hosts have
enrolled with each, how many may, and how long. The secrets are not kept anywhere.

Exit status: 0 fine, 2 bad use, or no controller answers.`,
		Example: "  sluice-controller token list\n  sluice-controller token list --json",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			all, err := controllerOf(cmd).Tokens(cmd.Context())
			if err != nil {
				return hinted(err)
			}
			if command.JSON(cmd) {
				return command.PrintJSON(cmd.OutOrStdout(), all)
			}
			table := tabwriter.NewWriter(cmd.OutOrStdout(), 0, 0, 2, ' ', 0)
			fmt.Fprintln(table, "id\tused\tuntil\tby\tlets in\tlabels")
			for _, t := range all.Tokens {
				how := "at once"
				if t.Approve {
					how = "approved"
				}
				fmt.Fprintf(table, "%s\t%d of %d\t%s\t%s\t%s\t%s\n", command.Plain(t.Id), t.Used, t.Uses, until(t.Expires, t.Withdrawn), command.Plain(t.By), how, command.Plain(selector.LabelText(t.Labels)))
			}
			return table.Flush()
		},
	}
	addController(cmd)
	return cmd
}

// until says when something ends, or ended.
func until(expires, withdrawn time.Time) string {
	if !withdrawn.IsZero() {
		return "withdrawn " + withdrawn.Local().Format(time.DateTime)
	}
	return expires.Local().Format(time.DateTime)
}

func newTokenWithdraw() *cobra.Command {
	return newWithdraw("Withdraw a token with which hosts enrol",
		`Withdraws a token: no more hosts can enrol with it. Hosts that have enrolled with it stay;
"revoke" ends their access.`, "sluice-controller token withdraw 5feceb66ffc8", "token list", (*api.Client).WithdrawToken)
}

// newWithdraw makes the command that ends what has an id.
func newWithdraw(short, long, example, listed string, withdraw func(*api.Client, context.Context, string) error) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "withdraw ID",
		Short: short,
		Long: long + `

Exit status: 0 withdrawn, 2 bad use, no such ID, or no controller answers.`,
		Example: "  " + example,
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			err := withdraw(controllerOf(cmd), cmd.Context(), args[0])
			if f := (*wire.Failure)(nil); errors.As(err, &f) && f.Kind == wire.KindNotFound {
				return fmt.Errorf("%w\nhint: sluice-controller %s lists the valid ones", err, listed)
			}
			if err != nil {
				return hinted(err)
			}
			if command.JSON(cmd) {
				return command.PrintJSON(cmd.OutOrStdout(), map[string]string{"withdrawn": args[0]})
			}
			fmt.Fprintf(cmd.OutOrStdout(), "%s is withdrawn\n", args[0])
			return nil
		},
	}
	addController(cmd)
	return cmd
}
