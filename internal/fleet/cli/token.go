package cli

import (
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"sluice/internal/base/english"
	"sluice/internal/cli/command"
	"sluice/internal/fleet/api"
	"sluice/internal/fleet/trust"
)

func newToken() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "token",
		Short:   "Let hosts enrol",
		Long:    `Makes what lets hosts enrol.`,
		Example: "  sluice-controller token create --labels role=web --for 1h",
		Args:    cobra.NoArgs,
		RunE:    help,
	}
	cmd.AddCommand(newTokenCreate())
	return cmd
}

func newTokenCreate() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "create",
		Short: "Make a token, by which a host enrols",
		Long: `Makes a token and prints it, on a line of its own. "sluice agent enrol" takes it on the
host. Who has it may enrol one host, or as many as --uses says, until --for has passed; the
host gets the labels, which say which parts of the policy it runs.

The token names the fleet's root.json by its hash, from the repository and not from the
controller: the host trusts nobody else, and tells the secret to nobody else. The controller
keeps its hash alone.

Files: trust/root.json in the repository; controller.sock in the controller's directory.

Exit status: 0 fine, 2 bad use, or no controller answers.`,
		Example: `  sluice-controller token create --labels role=web,env=prod --for 1h
  sluice-controller token create --labels role=web --for 24h --uses 50`,
		Args: cobra.NoArgs,
		RunE: createToken,
	}
	addController(cmd)
	flags := cmd.Flags()
	flags.String("repository", ".", "`DIR` of fleet.yaml and trust/")
	flags.StringToString("labels", nil, "`NAME=VALUE,…` of the host")
	flags.Duration("for", time.Hour, "until `TIME` from now")
	flags.Int("uses", 1, "how many hosts may enrol by it (`N`)")
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
}

func createToken(cmd *cobra.Command, _ []string) error {
	flags := cmd.Flags()
	labels, _ := flags.GetStringToString("labels")
	uses, _ := flags.GetInt("uses")
	lasts, _ := flags.GetDuration("for")
	if err := trust.CheckLabels(labels); err != nil {
		return fmt.Errorf("--labels: %w", err)
	}
	if lasts <= 0 {
		return fmt.Errorf("--for %s: it is over already", lasts)
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
	made := madeToken{Token: t.String(), ID: hash[:12], Labels: labels, Uses: uses, Expires: time.Now().Add(lasts).UTC().Truncate(time.Second), Controllers: is.Controllers}
	if err := c.CreateToken(cmd.Context(), api.NewToken{Id: made.ID, Secret: hash, Labels: labels, Uses: uses, Expires: made.Expires}); err != nil {
		return hinted(err)
	}
	if command.JSON(cmd) {
		return command.PrintJSON(cmd.OutOrStdout(), made)
	}
	w := cmd.ErrOrStderr()
	fmt.Fprintf(w, "token %s lets %s enrol until %s; on the host:\n", made.ID, english.Plural(uses, "host"), made.Expires.Local().Format(time.DateTime))
	fmt.Fprintf(w, "  sluice agent enrol https://%s --token-file -\n", strings.Join(made.Controllers[:1], ""))
	fmt.Fprintln(cmd.OutOrStdout(), made.Token)
	return nil
}
