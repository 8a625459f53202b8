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
		Short: "Load the last confirmed policy: at boot, or after somebody took it away",
		Long: `Loads the last confirmed policy as it was stored: neither the policy's files nor
country data nor a network are needed. At boot a systemd unit runs it before the
network comes up. It also fixes rules that another tool flushed or changed.

What the policy takes from the host, such as the interfaces that default routes leave
by, is as the host is now; without a default route the last known ones are taken.
Interfaces that do not exist yet are left out of flowtables and of what is asked at
ingress, with a note. "sluice sync" brings both in when they come.

When the policy cannot be loaded, or a damaged state does not say any more which
one was confirmed, the host is closed: nothing comes in but ssh, replies, and
what the network cannot work without. Rules that surely are those of that policy, as they
were loaded, are left alone all the same: the message then says what is damaged, and
that the next boot closes the host. Nothing is loaded only where no policy was
ever confirmed, or it was removed. A disk that is full or read-only keeps no policy
from being loaded.
` + filesHelp + `

Exit status: 0 loaded, or no policy was ever confirmed; 1 the host is closed, the
policy cannot be read, the kernel holds something else than was loaded, or the host
has got what the loaded rules do not know and "sluice sync" cannot bring in, such as
a bridge; 2 bad use, or nothing could be done.`,
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
