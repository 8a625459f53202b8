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
		Short: "Update the loaded rules with the host's default routes and addresses",
		Long: `Some of a policy depends on the host: the interfaces of default routes ("default-route"), and the
host's own addresses, which a redirect in a zone applies to. Exempt from bans by limits are the
host's routers, its name servers and who is logged in over ssh. All of these are sets of their
own in the kernel, and sync updates them in place when the host has changed. Where rules compare
the interface of a single default route, sync replaces those rules in place. What else is in the
rules themselves, such as the interfaces of a flowtable, it does not change: it reports what is
different, as sluice status does.

Sync loads rules again only if they wait for an interface (of a flowtable) that exists by now, if
somebody removed the confirmed policy's rules, or if they contain other exceptions by command
than are in force. Otherwise it changes nothing that has not changed on the host; if something
cannot be read, the rules stay.

With --follow it keeps running, listens for changes of links, addresses, default routes and name
servers (resolv.conf), and updates at the first one; after many changes in a row it updates once.
sluice-sync.service runs it like that.

Default routes are those of the main table, IPv4 and IPv6, of any metric, with each of several
next hops. Other tables, for policy routing or a VRF, do not count: add their interfaces, as in
[default-route, wan2].

Without a default route the last known interfaces stay, since a zone without interfaces would
open what it refuses; sluice status shows that.
` + filesHelp + `

Exit status: 0 the rules are up to date; 1 something could not be updated, or the policy has to be
applied again, or nothing ran and the host is closed; 2 bad use, or it failed.`,
		Example: "  sluice sync\n  sluice sync --json | jq .moves\n  sluice sync --follow --netns customer7",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			if given(cmd, "follow") {
				return follow(cmd)
			}
			return onHost(runSync)(cmd, args)
		},
	}
	cmd.Flags().Bool("follow", false, "keep running, and update whenever the host changes")
	addWait(cmd)
	return cmd
}

// follow applies what the host is until it is stopped.
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
	return command.Found(fmt.Sprintf("%s since generation %d was made, and the rules depend on it\nhint: apply the policy again", strings.Join(fixed, "; "), generation))
}

func reportSynced(cmd *cobra.Command, out *apply.Synced) error {
	w := cmd.OutOrStdout()
	if optionsOf(cmd).json {
		return command.PrintJSON(w, out)
	}
	printSynced(cmd, out)
	switch {
	case out.Nothing:
		fmt.Fprintln(w, "no policy runs: nothing to update")
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
		fmt.Fprintf(w, "%sgeneration %d is loaded again\n", netns, out.Loaded)
	}
}
