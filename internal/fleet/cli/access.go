package cli

import (
	"cmp"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"sluice/internal/base/selector"
	"sluice/internal/cli/command"
	"sluice/internal/fleet/api"
)

func newAccess() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "access",
		Short: "Manage who may use the controller, and for which hosts",
		Long: `Creates, lists and withdraws the access of programs and people to a controller that
"run --web" serves. A role says what they may do: a viewer reads; an operator changes what
holds for a while; an admin changes what is signed, who is enrolled, and who may do what. With a
selector a role holds for those hosts only.`,
		Example: "  sluice-controller access create monitoring --role viewer\n  sluice-controller access list",
		Args:    cobra.NoArgs,
		RunE:    help,
	}
	cmd.AddCommand(newAccessCreate(), newAccessLink(), newAccessList(), newAccessWithdraw())
	return cmd
}

func newAccessCreate() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "create NAME",
		Short: "Create a token with which a program uses the controller",
		Long: `Creates a token and prints it on a line of its own. Commands read it from --token-file or
SLUICE_TOKEN; other programs send it as "Authorization: Bearer TOKEN". The audit names its
user as token:NAME. The controller keeps only its hash.

Nobody can give more than they have: at most their own role, for their own hosts.

Exit status: 0 fine, 2 bad use, or no controller answers.`,
		Example: `  sluice-controller access create monitoring --role viewer
  sluice-controller access create ci --role admin --for 720h
  sluice-controller access create fail2ban --role operator --hosts 'role=mail and env=prod'`,
		Args: cobra.ExactArgs(1),
		RunE: createAccess,
	}
	addController(cmd)
	flags := cmd.Flags()
	flags.String("role", "", "may do what the `ROLE` viewer, operator or admin may")
	flags.String("hosts", "", "only for the hosts of `SELECTOR` (default all)")
	command.AddTime(flags, "for", 90*24*time.Hour, "until `TIME` from now, at most 366d")
	command.Must(cmd.MarkFlagRequired("role"))
	command.Must(cmd.RegisterFlagCompletionFunc("role", cobra.FixedCompletions([]string{"viewer", "operator", "admin"}, cobra.ShellCompDirectiveNoFileComp)))
	return cmd
}

func createAccess(cmd *cobra.Command, args []string) error {
	flags := cmd.Flags()
	role, _ := flags.GetString("role")
	hosts, _ := flags.GetString("hosts")
	lasts := command.TimeOf(flags, "for")
	if !slices.Contains(api.Roles, api.Role(role)) {
		return fmt.Errorf("--role %s: it is viewer, operator or admin", role)
	}
	if lasts <= 0 {
		return errors.New("--for 0: it would expire at once")
	}
	if hosts != "" {
		if _, err := selector.Parse(hosts); err != nil {
			return fmt.Errorf("--hosts: %w", err)
		}
	}
	token := api.NewSecret()
	hash, err := api.SecretHash(token)
	if err != nil {
		return err
	}
	made, err := controllerOf(cmd).CreateAccess(cmd.Context(), api.NewAccess{
		Name: args[0], Secret: hex.EncodeToString(hash[:]), Role: api.Role(role), Hosts: hosts, Expires: time.Now().Add(lasts).UTC().Truncate(time.Second),
	})
	if err != nil {
		return later(cmd, token, err)
	}
	if command.JSON(cmd) {
		return command.PrintJSON(cmd.OutOrStdout(), struct {
			Token string `json:"token"`
			*api.Access
		}{token, made})
	}
	fmt.Fprintf(cmd.ErrOrStderr(), "%s may use the controller as %s for %s until %s, with the token\n", command.Plain(made.Who), made.Role, ofHosts(made.Hosts), until(made.Expires, time.Time{}))
	fmt.Fprintln(cmd.OutOrStdout(), token)
	return nil
}

// ofHosts are the hosts of a role.
func ofHosts(hosts string) string {
	if hosts == "" {
		return "all hosts"
	}
	return "hosts of " + command.Plain(hosts)
}

func newAccessLink() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "link USER",
		Short: "Create a link with which a person logs in once",
		Long: `Creates a link with which a person logs in once, in a browser or by "sluice-controller login",
and prints it. The audit names the person as user:USER. Without --role they may do what "access"
in fleet.yaml grants to user:USER. Whoever uses the link first is logged in.

Exit status: 0 fine, 2 bad use, or no controller answers.`,
		Example: `  sluice-controller access link erika@example.net
  sluice-controller access link max --role viewer --hosts env=test`,
		Args: cobra.ExactArgs(1),
		RunE: createLink,
	}
	addController(cmd)
	flags := cmd.Flags()
	flags.String("role", "", "may do what the `ROLE` viewer, operator or admin may (default what fleet.yaml says)")
	flags.String("hosts", "", "only for the hosts of `SELECTOR` (default all)")
	command.AddTime(flags, "for", 15*time.Minute, "until `TIME` from now, at most 24h")
	command.Must(cmd.RegisterFlagCompletionFunc("role", cobra.FixedCompletions([]string{"viewer", "operator", "admin"}, cobra.ShellCompDirectiveNoFileComp)))
	return cmd
}

func createLink(cmd *cobra.Command, args []string) error {
	flags := cmd.Flags()
	role, _ := flags.GetString("role")
	hosts, _ := flags.GetString("hosts")
	lasts := command.TimeOf(flags, "for")
	if lasts <= 0 {
		return errors.New("--for 0: it would expire at once")
	}
	c := controllerOf(cmd)
	is, err := c.Status(cmd.Context())
	if err != nil {
		return hinted(err)
	}
	if is.Web == "" {
		return errors.New("the controller serves no web address\nhint: sluice-controller run --web :8443")
	}
	link := api.NewSecret()
	hash, err := api.SecretHash(link)
	if err != nil {
		return err
	}
	made, err := c.CreateLink(cmd.Context(), api.NewLink{User: args[0], Secret: hex.EncodeToString(hash[:]), Role: api.Role(role), Hosts: hosts, Expires: time.Now().Add(lasts).UTC().Truncate(time.Second)})
	at := is.Web + "/login?link=" + link
	if err != nil {
		return later(cmd, at, err)
	}
	if command.JSON(cmd) {
		return command.PrintJSON(cmd.OutOrStdout(), struct {
			Link string `json:"link"`
			*api.Access
		}{at, made})
	}
	fmt.Fprintf(cmd.ErrOrStderr(), "%s can log in once until %s, in a browser or with sluice-controller login:\n", command.Plain(made.Who), until(made.Expires, time.Time{}))
	fmt.Fprintln(cmd.OutOrStdout(), at)
	return nil
}

func newAccessList() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List who may use the controller",
		Long: `Lists the tokens of programs, the sessions of people and the login links that are valid or
were valid in the last month, newest first, and when each was last used (recorded once an hour).
The secrets are not kept anywhere. For a person without a role here, "access" in fleet.yaml
says what they may do.

Exit status: 0 fine, 2 bad use, or no controller answers.`,
		Example: "  sluice-controller access list\n  sluice-controller access list --json",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			all, err := controllerOf(cmd).Accesses(cmd.Context())
			if err != nil {
				return hinted(err)
			}
			if command.JSON(cmd) {
				return command.PrintJSON(cmd.OutOrStdout(), all)
			}
			table := tabwriter.NewWriter(cmd.OutOrStdout(), 0, 0, 2, ' ', 0)
			fmt.Fprintln(table, "id\tkind\twho\trole\tuntil\tused\tby\thosts")
			for _, a := range all.Access {
				used := "never"
				if !a.Used.IsZero() {
					used = a.Used.Local().Format(time.DateTime)
				}
				fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n", command.Plain(a.Id), command.Plain(string(a.Kind)), command.Plain(a.Who), command.Plain(cmp.Or(string(a.Role), "fleet.yaml")), until(a.Expires, a.Withdrawn), used, command.Plain(a.By), command.Plain(cmp.Or(a.Hosts, "all")))
			}
			return table.Flush()
		},
	}
	addController(cmd)
	return cmd
}

func newAccessWithdraw() *cobra.Command {
	return newWithdraw("End the access of a program or a person, at once",
		`Withdraws a token, a session or a link, at once.`, "sluice-controller access withdraw 0e8a3c51d9b2", "access list", (*api.Client).WithdrawAccess)
}
