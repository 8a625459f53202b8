package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"sluice/internal/base/english"
	"sluice/internal/cli/command"
	"sluice/internal/fleet/api"
	"sluice/internal/fleet/rollout"
	"sluice/internal/fleet/wire"
)

func newRollout() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "rollout",
		Short: "Watch and control how a bundle goes to the hosts",
		Long: `Shows and controls roll-outs. "publish" starts one; it proceeds one stage after another, and
halts when more hosts fail than fleet.yaml allows.`,
		Example: "  sluice-controller rollout show\n  sluice-controller rollout pause",
		Args:    cobra.NoArgs,
		RunE:    help,
	}
	cmd.AddCommand(
		newRolloutShow(),
		newSteer(api.Pause, "Start no further stage until it is resumed", "Pauses a roll-out: hosts still report, but no further stage begins."),
		newSteer(api.Resume, "Go on after a pause or a halt", "Lets a paused or halted roll-out go on. After a halt, failures until now are accepted."),
		newSteer(api.Halt, "Stop it, as failures would", "Halts a roll-out as failures would: on-halt in fleet.yaml says what follows."),
		newSteer(api.Hold, "Stop it, and leave the hosts as they are", "Halts a roll-out; the hosts stay as they are."),
		newSteer(api.Revert, "Take the hosts back to what they ran before", "Takes each host of a roll-out back to the bundle that it ran before. No signature is needed."),
	)
	return cmd
}

func newRolloutShow() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "show [ROLLOUT]",
		Short: "Show how far a roll-out is, and what it waits for",
		Long: `Shows how far the newest roll-out is, or the one with a number: its phase and stage, what it
waits for, and which hosts failed, each with its reason. With --all it lists the newest
hundred. With --wait it reports each stage on standard error until the roll-out is done, has
gone back, or waits for a person after a halt.

Exit status: 0 done or under way, 1 halted, going back, or back, 2 bad use, or there is none.`,
		Example: "  sluice-controller rollout show\n  sluice-controller rollout show --all\n  sluice-controller rollout show --wait",
		Args:    cobra.MaximumNArgs(1),
		RunE:    showRollout,
	}
	addController(cmd)
	cmd.Flags().Bool("all", false, "list the newest hundred, the newest first")
	cmd.Flags().Bool("wait", false, "wait until it ends, and report each stage")
	cmd.MarkFlagsMutuallyExclusive("all", "wait")
	return cmd
}

func showRollout(cmd *cobra.Command, args []string) error {
	ctx, stop := command.Interruptible(cmd)
	defer stop()
	c := controllerOf(cmd)
	w := cmd.OutOrStdout()
	if every, _ := cmd.Flags().GetBool("all"); every {
		all, err := c.Rollouts(ctx, mostListed)
		if err != nil {
			return hinted(err)
		}
		if command.JSON(cmd) {
			return command.PrintJSON(w, all)
		}
		for _, r := range all {
			fmt.Fprintf(w, "%-4d bundle %d  %s since %s: %s\n", r.ID, r.Bundle, r.State.Phase, r.State.Since.Local().Format(time.DateTime), command.PlainName(r.State.Reason))
		}
		return nil
	}
	r, err := chosen(ctx, c, args)
	if err != nil {
		return err
	}
	if waits, _ := cmd.Flags().GetBool("wait"); waits {
		if r, err = awaitRollout(ctx, cmd, c, r); err != nil {
			return err
		}
	}
	if command.JSON(cmd) {
		err = command.PrintJSON(w, r)
	} else {
		printRollout(w, r)
	}
	if err == nil && failed(r) {
		return command.ErrFound
	}
	return err
}

// failed says that a roll-out has stopped before its end, or goes back.
func failed(r *rollout.Rollout) bool {
	return slices.Contains([]rollout.Phase{rollout.Halted, rollout.Reverting, rollout.Reverted}, r.State.Phase)
}

// mostListed is how many roll-outs are listed.
const mostListed = 100

// askedEvery is the pause between two questions how far a roll-out is.
const askedEvery = 500 * time.Millisecond

// awaitRollout tells how a roll-out goes on until it ends, or waits for a person.
func awaitRollout(ctx context.Context, cmd *cobra.Command, c *api.Client, r *rollout.Rollout) (*rollout.Rollout, error) {
	type place struct {
		phase rollout.Phase
		stage int
	}
	var told place
	for {
		s := r.State
		if now := (place{s.Phase, s.Stage}); now != told {
			told = now
			fmt.Fprintf(cmd.ErrOrStderr(), "roll-out %d of bundle %d: %s: %s\n", r.ID, r.Bundle, s.Phase, command.PlainName(s.Reason))
		}
		if r.Closed() || s.Phase == rollout.Done || s.Phase == rollout.Halted && s.Hold {
			return r, nil
		}
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("%w; the roll-out goes on\nhint: sluice-controller rollout show %d --wait waits for it again", context.Cause(ctx), r.ID)
		case <-time.After(askedEvery):
		}
		var err error
		if r, err = c.Rollout(ctx, r.ID); err != nil && ctx.Err() == nil {
			return nil, hinted(err)
		}
	}
}

// chosen is the roll-out of a number, or the newest.
func chosen(ctx context.Context, c *api.Client, args []string) (*rollout.Rollout, error) {
	if len(args) == 0 {
		newest, err := c.Rollouts(ctx, 1)
		if err != nil {
			return nil, hinted(err)
		}
		if len(newest) == 0 {
			return nil, errors.New("there is no roll-out\nhint: sluice-controller publish begins one")
		}
		r, err := c.Rollout(ctx, newest[0].ID)
		return r, hinted(err)
	}
	id, err := strconv.ParseInt(args[0], 10, 64)
	if err != nil {
		return nil, fmt.Errorf("%q is not the number of a roll-out\nhint: sluice-controller rollout show --all lists them", args[0])
	}
	r, err := c.Rollout(ctx, id)
	if f := (*wire.Failure)(nil); errors.As(err, &f) && f.Kind == wire.KindNotFound {
		return nil, fmt.Errorf("there is no roll-out %d\nhint: sluice-controller rollout show --all lists them", id)
	}
	return r, hinted(err)
}

func printRollout(w io.Writer, r *rollout.Rollout) {
	fmt.Fprintf(w, "roll-out %d of bundle %d: %s since %s\n  %s\n", r.ID, r.Bundle, command.Paint(w, "1", string(r.State.Phase)), r.State.Since.Local().Format(time.DateTime), command.PlainName(r.State.Reason))
	counts := map[rollout.HostState]int{}
	for _, h := range r.State.Hosts {
		counts[h.State]++
	}
	if len(r.State.Hosts) > 0 {
		var each []string
		for _, state := range slices.Sorted(maps.Keys(counts)) {
			each = append(each, fmt.Sprintf("%d %s", counts[state], state))
		}
		fmt.Fprintf(w, "  %s: %s\n", english.Plural(len(r.State.Hosts), "host"), strings.Join(each, ", "))
	}
	for _, id := range slices.Sorted(maps.Keys(r.State.Hosts)) {
		h := r.State.Hosts[id]
		if !h.Failed {
			continue
		}
		first, more, _ := strings.Cut(h.Reason, "\n")
		fmt.Fprintf(w, "  %s %s: %s\n", command.Paint(w, "31", "failed"), id, command.PlainName(first))
		beneath := strings.FieldsFunc(more, func(r rune) bool { return r == '\n' })
		for _, e := range h.Evidence {
			if !strings.Contains(h.Reason, e) {
				beneath = append(beneath, e)
			}
		}
		for _, line := range beneath {
			fmt.Fprintf(w, "    %s\n", command.PlainName(line))
		}
	}
	for _, l := range r.State.LeftOut {
		fmt.Fprintf(w, "  left out %s: %s\n", l.Host, l.Reason)
	}
}

// newSteer is the command that has a roll-out do something.
func newSteer(what api.Command, short, long string) *cobra.Command {
	cmd := &cobra.Command{
		Use:   string(what) + " [ROLLOUT]",
		Short: short,
		Long: long + `
Without a number it applies to the newest roll-out.

Exit status: 0 fine, 2 bad use, not possible in the roll-out's phase, or no controller
answers.`,
		Example: "  sluice-controller rollout " + string(what) + " --message 'the probes are wrong'",
		Args:    cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			c := controllerOf(cmd)
			r, err := chosen(cmd.Context(), c, args)
			if err != nil {
				return err
			}
			why, _ := cmd.Flags().GetString("message")
			is, err := c.Command(cmd.Context(), r.ID, what, why)
			if err != nil {
				return waiting(err)
			}
			if command.JSON(cmd) {
				return command.PrintJSON(cmd.OutOrStdout(), is)
			}
			printRollout(cmd.OutOrStdout(), is)
			return nil
		},
	}
	addController(cmd)
	cmd.Flags().StringP("message", "m", "", "`TEXT` for the audit: why")
	return cmd
}
