package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/coreos/go-systemd/v22/daemon"
	"github.com/spf13/cobra"

	"sluice/internal/cli/command"
	"sluice/internal/engine/apply"
)

func newSync() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "sync",
		Short: "Bring in what the host is now: default routes and addresses",
		Long: `A policy speaks of what the host decides: the interfaces that default routes leave
by ("default-route"), and the addresses that it has itself, which a redirect in a zone
is on. Exempt from bans by limits are its routers, its name servers and who is logged
in over ssh. All of that is in sets of their own in the kernel, and sync edits them in
place when the host has changed. Rules compare the interface of the default routes
while they leave by one; sync replaces those, each where it stands. What else stands
in the rules themselves, such as the interfaces of a flowtable, it does not edit: it
names what changed, as sluice status does. Sync changes nothing where nothing changed. Rules are
loaded anew only where they wait for an interface (of a flowtable) that is there by
now, where somebody took the confirmed policy's away, or where they let in other
exceptions by command than hold, for which the running policy is compiled. Rules that
run stay, whatever cannot be read.

With --follow it stays, listens for changes of links, addresses, default routes and
name servers (resolv.conf), and does so at the first sign of one; of many that follow closely it then takes the sum. It is
what sluice-sync.service runs.

Default routes are those of the main table, IPv4 and IPv6, whatever their metric,
each of several next hops among them. Other tables, as of policy routing or a VRF,
do not count: name their interfaces beside it, as in [default-route, wan2].

Without a default route the interfaces that were known last stay, since a side
without interfaces would open what is refused by it; sluice status says so.
` + filesHelp + `

Exit status: 0 the sets hold what the host is; 1 something that waits could not be
brought in, or has to be applied anew, or nothing ran and the host is closed; 2 bad use,
or it could not be done.`,
		Example: "  sluice sync\n  sluice sync --json | jq .moves\n  sluice sync --follow --netns customer7",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			if given(cmd, "follow") {
				return follow(cmd)
			}
			return onHost(runSync)(cmd, args)
		},
	}
	cmd.Flags().Bool("follow", false, "stay, and do so whenever the host changes")
	addWait(cmd)
	return cmd
}

// follow brings in what the host is until it is stopped.
func follow(cmd *cobra.Command) error {
	collectSoon()
	ctx, stop := command.Interruptible(cmd)
	defer stop()
	h, err := hostOf(cmd)
	if err != nil {
		return err
	}
	release, err := h.FollowBeside()
	var taken *apply.TakenError
	switch {
	case errors.As(err, &taken):
		return err
	case err != nil:
		h.Note(h.Words(err)) // a disk that is read-only keeps nobody from following
	default:
		defer release()
	}
	h.Ready = func() error {
		_, err := daemon.SdNotify(false, daemon.SdNotifyReady)
		return err
	}
	return h.Follow(ctx, func(out *apply.Synced) { printSynced(cmd, out) })
}

func runSync(ctx context.Context, cmd *cobra.Command, h door, _ []string) error {
	out, err := h.Sync(ctx)
	if err == nil {
		if err := reportSynced(cmd, out); err != nil || len(out.Fixed) == 0 {
			return err
		}
		return foundFixed(out.Fixed, out.Generation)
	}
	if out != nil && len(out.Moves) > 0 {
		printSynced(cmd, out)
	}
	return err
}

func foundFixed(fixed []string, generation int) error {
	return command.Found(fmt.Sprintf("%s since generation %d was made, which is in the rules themselves\nhint: apply the policy again", strings.Join(fixed, "; "), generation))
}

func reportSynced(cmd *cobra.Command, out *apply.Synced) error {
	w := cmd.OutOrStdout()
	if optionsOf(cmd).json {
		return command.PrintJSON(w, out)
	}
	printSynced(cmd, out)
	switch {
	case out.Nothing:
		fmt.Fprintln(w, "no policy runs: there is nothing to bring in")
	case len(out.Moves) == 0 && len(out.Lost) == 0 && out.Loaded == 0:
		fmt.Fprintln(w, "nothing changed")
	}
	return nil
}

func printSynced(cmd *cobra.Command, out *apply.Synced) { printSyncedIn(cmd, "", out) }

// printSyncedIn prints that of one namespace of several, "" being that of the command.
func printSyncedIn(cmd *cobra.Command, netns string, out *apply.Synced) {
	w := cmd.OutOrStdout()
	if optionsOf(cmd).json {
		line, err := json.Marshal(struct {
			Namespace string `json:"namespace,omitempty"`
			*apply.Synced
		}{netns, out})
		if err == nil {
			fmt.Fprintf(w, "%s\n", line)
		}
		return
	}
	if netns != "" {
		netns += ": "
	}
	for _, m := range out.Moves {
		fmt.Fprintf(w, "%s%s\n", netns, m)
	}
	if len(out.Lost) > 0 {
		fmt.Fprintf(w, "%s%s\n", netns, apply.NoDefaultRoute(out.Lost))
	}
	if out.Loaded != 0 {
		fmt.Fprintf(w, "%sgeneration %d is loaded anew\n", netns, out.Loaded)
	}
}
