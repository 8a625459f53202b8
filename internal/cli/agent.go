package cli

import (
	"path/filepath"

	"github.com/spf13/cobra"

	"sluice/internal/agent"
	"sluice/internal/agent/api"
	"sluice/internal/cli/command"
	"sluice/internal/engine/apply"
)

func newAgent() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "agent",
		Short: "Stay, follow the host, and do the work of the commands",
		Long: `Stays until it is stopped. It brings in what the host becomes (default routes,
addresses, name servers, interfaces), as "sluice sync --follow" does, whose place it
takes, and answers on a Unix socket. The commands status, verify,
history, bans, ban, unban, confirm, rollback and sync use the socket where an agent
listens for the same state and network namespace, and do their work themselves where none
does: what they print and end with is the same.

Root may change the firewall by the socket; group sluice may read it. There is
one agent for a socket and for a state; a second one refuses. It needs none of its files
to go on: where it is killed, rules, bans and confirmations stay as they are, and the next
one begins where it ended.

sluice-agent.service runs it. Its interface is internal/agent/api/openapi.yaml.
` + filesHelp + `

Exit status: 0 it was stopped, 2 it could not start, or had to end.`,
		Example: "  sluice agent\n  sluice agent --netns customer7 --socket /run/sluice/customer7.sock",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx, stop := command.Interruptible(cmd)
			defer stop()
			h, err := hostOf(cmd)
			if err != nil {
				return err
			}
			if h.State, err = filepath.Abs(h.State); err != nil {
				return err
			}
			h.By = apply.Author{} // what it does for nobody, nobody does
			h.Progress = nil
			socket, _ := cmd.Flags().GetString("socket")
			a := &agent.Agent{
				Host: h, Here: command.HereArguments(cmd), Socket: socket, Command: h.Watcher[:len(h.Watcher)-1],
				Told: func(out *apply.Synced) { printSynced(cmd, out) },
			}
			return a.Run(ctx)
		},
	}
	cmd.Flags().String("socket", api.Socket, "listen on the socket `FILE`")
	return cmd
}
