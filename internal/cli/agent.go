package cli

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"sluice/internal/agent"
	"sluice/internal/agent/alert"
	"sluice/internal/agent/api"
	"sluice/internal/agent/config"
	"sluice/internal/cli/command"
	"sluice/internal/engine"
	"sluice/internal/engine/apply"
)

func newAgent() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "agent",
		Short: "Run the agent: follow the host, serve the commands, join a fleet",
		Long: `Runs until it is stopped. It follows the host: when default routes, addresses, name servers
or interfaces change, it updates the rules, as "sluice sync --follow" does, which it replaces.
It downloads the lists of the running policy when they are due, and country data where its
file names a publisher. It keeps what policies with "log: netlink" drop and log, in 64 MiB
unless its file sets another size.

It listens on a Unix socket. The commands that change the firewall or read its state (apply,
plan, confirm, rollback, remove, restore, refresh, sync, status, metrics, history, bans, ban,
unban, allows, allow, disallow, set, conntrack, geo update, geo undo, log, and verify, explain
and query of what runs) use the socket where an agent listens for the same state and network
namespace, and work without one elsewhere. Output and exit status are the same either way.
GET /metrics returns the text format of Prometheus.

On a host of a fleet ("sluice agent enrol") it keeps a connection to a controller, and
applies the policy that the fleet signs for the host, on trial until its probes succeed.

By default root may change the firewall through the socket, and group sluice may read it;
/etc/sluice/agent.yaml can change that ("sluice agent check"). A socket and a state have one
agent; a second one refuses to start. If the agent is killed, rules, bans and confirmations
stay as they are, and the next one carries on.

sluice-agent.service runs it. Its interface is internal/agent/api/openapi.yaml.
` + filesHelp + `

Exit status: 0 stopped, 2 it could not start, or failed.`,
		Example: "  sluice agent\n  sluice agent --netns customer7 --socket /run/sluice/customer7.sock",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if os.Geteuid() != 0 {
				return fmt.Errorf("start the agent: %w", fs.ErrPermission)
			}
			collectSoon()
			ctx, stop := command.Interruptible(cmd)
			defer stop()
			site, err := siteOf(cmd, optionsOf(cmd).netns)
			if err != nil {
				return err
			}
			socket, _ := cmd.Flags().GetString("socket")
			file, _ := cmd.Flags().GetString("config")
			asked, _, err := agentFile(file, cmd.Flags().Changed("config"))
			if err != nil {
				return err
			}
			for _, e := range asked.OldWords {
				warn(cmd.ErrOrStderr(), e.Pos.String()+": "+e.Message)
			}
			// Whom this host does not know may nothing.
			reads, unknown := asked.Numbers(ctx, asked.MayRead)
			changes, more := asked.Numbers(ctx, asked.MayChange)
			for _, e := range append(unknown, more...) {
				warn(cmd.ErrOrStderr(), e.Error())
			}
			alerts := alert.New(asked.Command, asked.Webhook)
			alerts.Print, alerts.Failed = site.Host.Note, func(err error) { warn(cmd.ErrOrStderr(), err.Error()) }
			site.Restores, site.Alerts, site.LogSize, site.Published = asked.Restores, alerts, asked.LogSize, asked.Metrics.IsValid()
			a := &agent.Agent{
				Site: site, Socket: socket, MayRead: reads, MayChange: changes, Questions: asked.Questions,
				Metrics: asked.Metrics, Lists: asked.Lists, Publishers: asked.Publishers, Every: asked.Every,
				Named: func(name string) (*agent.Site, error) {
					s, err := siteOf(cmd, name)
					if err == nil {
						s.Restores, s.Alerts, s.LogSize, s.Published = site.Restores, site.Alerts, site.LogSize, site.Published
					}
					return s, err
				},
			}
			if optionsOf(cmd).netns == "" {
				a.Namespaces = asked.Namespaces
			}
			return a.Run(ctx)
		},
	}
	cmd.Flags().String("config", config.Default, "read the configuration from `FILE`")
	cmd.AddCommand(newAgentCheck(), newAgentEnrol(), newAgentLeave(), newAgentAttach())
	cmd.Flags().String("socket", api.Socket, "listen on the socket `FILE`")
	return cmd
}

// siteOf is what the agent has to know of a network namespace, "" being that of the caller.
func siteOf(cmd *cobra.Command, netns string) (*agent.Site, error) {
	h, err := hostIn(cmd, netns)
	if err == nil {
		h.State, err = filepath.Abs(h.State)
	}
	if err != nil {
		return nil, err
	}
	h.By = apply.Author{} // what it does for nobody, nobody does
	h.Progress = nil
	out := &agent.Site{
		Host: h, Here: command.HereIn(cmd, netns), Command: h.Watcher[:len(h.Watcher)-1],
		Told: func(out *apply.Synced) { printSynced(cmd, out) },
	}
	if netns != optionsOf(cmd).netns { // one of several
		in := func(tell func(string)) func(string) { return func(text string) { tell(netns + ": " + text) } }
		h.Note, h.Warn, h.Shout = in(h.Note), in(h.Warn), in(h.Shout)
		out.Told = func(out *apply.Synced) { printSyncedIn(cmd, netns, out) }
	}
	return out, nil
}

// agentFile reads the agent's file. Unless somebody named the file, there need be none: the agent
// then runs with its defaults.
func agentFile(file string, named bool) (c *config.Config, absent bool, err error) {
	c, err = config.Load(file)
	if errors.Is(err, fs.ErrNotExist) && !named {
		c, err = config.Parse(file, []byte("version: 1"))
		return c, true, err
	}
	return c, false, err
}

func newAgentCheck() *cobra.Command {
	return &cobra.Command{
		Use:   "check [FILE]",
		Short: "Check the agent's file",
		Long: `Checks the agent's file (/etc/sluice/agent.yaml unless FILE is given), with file, line,
column, the line itself and a suggestion. Users and groups that this host does not have are
errors here; the agent itself only warns about them, and grants them nothing. If
/etc/sluice/agent.yaml does not exist, the agent runs with its defaults.

Exit status: 0 fine, or the agent runs with its defaults; 1 words that are to be renamed; 2 errors
or bad use.`,
		Example: "  sluice agent check",
		Args:    cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			file := config.Default
			if len(args) > 0 {
				file = args[0]
			}
			c, absent, err := agentFile(file, len(args) > 0)
			if err != nil {
				return err
			}
			_, unknown := c.Numbers(cmd.Context(), c.MayRead)
			_, more := c.Numbers(cmd.Context(), c.MayChange)
			if unknown = append(unknown, more...); len(unknown) > 0 {
				return unknown
			}
			if len(c.OldWords) > 0 {
				return reportFindings(cmd, optionsOf(cmd), file, engine.Warnings(c.OldWords))
			}
			if optionsOf(cmd).json {
				return command.PrintJSON(cmd.OutOrStdout(), struct {
					File   string `json:"file"`
					Absent bool   `json:"absent,omitempty"` // the agent runs with its defaults
				}{file, absent})
			}
			fmt.Fprintf(cmd.ErrOrStderr(), choice(absent, "%s does not exist: the agent runs with its defaults\n", "%s is fine\n"), file)
			return nil
		},
	}
}
