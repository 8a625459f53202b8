package cli

import (
	"bufio"
	"fmt"
	"net"
	"os"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"sluice"
	"sluice/internal/agent/api"
	"sluice/internal/cli/command"
	"sluice/internal/fleet/local"
)

func newLocal() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "local",
		Short: "Show one host in a browser, by its agent",
		Long: `Serves a page about this host on the loopback, on a free port, and prints its address, which
opens the page once; on a terminal, Enter prints another. It needs no controller and no fleet,
only a running "sluice agent". The page may do what the agent lets the user of this command do:
see the host, query it, and with the right to change it, ban, let in and apply a policy on
trial. It runs until it is stopped.

For another host's page, forward its agent's socket with ssh:

  ssh -nNT -L /tmp/web-1.sock:/run/sluice/agent.sock web-1.example.net &
  sluice-controller local --socket /tmp/web-1.sock

Exit status: 0 it was stopped, 2 it could not start.`,
		Example: `  sluice-controller local
  sluice-controller local --netns web`,
		Args: cobra.NoArgs,
		RunE: runLocal,
	}
	cmd.Flags().String("socket", api.Socket, "the agent's `SOCKET`")
	cmd.Flags().String("netns", "", "show the network namespace `NAME` that the agent serves")
	cmd.Flags().Uint16("port", 0, "serve at `PORT` of 127.0.0.1 (default one that is free)")
	return cmd
}

func runLocal(cmd *cobra.Command, _ []string) error {
	ctx, stop := command.Interruptible(cmd)
	defer stop()
	socket, _ := cmd.Flags().GetString("socket")
	namespace, _ := cmd.Flags().GetString("netns")
	port, _ := cmd.Flags().GetUint16("port")
	if namespace == "" {
		namespace = "-"
	}
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp4", fmt.Sprintf("127.0.0.1:%d", port))
	if err != nil {
		return err
	}
	defer l.Close()
	s := local.New(l, local.Options{Socket: socket, Namespace: namespace, Version: sluice.Version()})
	if err := s.Check(ctx); err != nil {
		return err
	}
	out := cmd.OutOrStdout()
	tell := func() error {
		if command.JSON(cmd) {
			return command.PrintJSON(out, map[string]string{"address": s.Address()})
		}
		_, err := fmt.Fprintln(out, s.Address())
		return err
	}
	if err := tell(); err != nil {
		return err
	}
	if in, is := cmd.InOrStdin().(*os.File); is && term.IsTerminal(int(in.Fd())) {
		go func() {
			for lines := bufio.NewScanner(in); lines.Scan(); {
				_ = tell()
			}
		}()
	}
	return s.Serve(ctx, l)
}
