package cli

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"sluice/internal/engine/apply"
)

func newRestore() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "restore",
		Short: "Load the last confirmed policy, at boot or after its rules were removed",
		Long: `Loads the last confirmed policy as it was stored; it needs neither the policy's files nor country
data nor a network. At boot a systemd unit runs it before the network comes up. It also repairs
rules that another tool flushed or changed.

What the policy takes from the host, such as the interfaces of default routes, is as the host is
now; without a default route the last known ones are used. Interfaces that do not exist yet are
left out of flowtables and of ingress hooks, with a note; "sluice sync" adds both when they
appear.

If the policy cannot be loaded, or a damaged state no longer shows which one was confirmed, the
host is closed: only ssh, replies and what the network needs to work are allowed. If the kernel
still has that policy's rules as loaded, they are left alone; the message says what is damaged,
and that the next boot closes the host. Nothing is loaded if no policy was ever confirmed, or it
was removed. A full or read-only disk does not keep a policy from being loaded.
` + filesHelp + `

Exit status: 0 loaded, or no policy was ever confirmed; 1 the host is closed, the policy cannot
be read, the kernel holds something else than was loaded, or the host has something new, such as
a bridge, that the loaded rules do not cover and "sluice sync" cannot add; 2 bad use, or nothing
could be done.`,
		Example: "  sluice restore",
		Args:    cobra.NoArgs,
		RunE: onHost(func(ctx context.Context, cmd *cobra.Command, h door, _ []string) error {
			out, err := h.Restore(ctx, apply.Restoring{SSHPorts: apply.SSHPorts()})
			if err != nil {
				return err
			}
			if out.Generation == 0 && !optionsOf(cmd).json {
				fmt.Fprintln(cmd.OutOrStdout(), "nothing to restore")
				return nil
			}
			if err := printApplied(ctx, cmd, h, out, false); err != nil || len(out.Fixed) == 0 {
				return err
			}
			return foundFixed(out.Fixed, out.Generation)
		}),
	}
	addMessage(cmd)
	addWait(cmd)
	return cmd
}
