package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"sluice/internal/base/addrset"
	"sluice/internal/base/english"
	"sluice/internal/cli/command"
	"sluice/internal/engine"
	"sluice/internal/language/resolve"
)

func newSet() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "set",
		Short: "Add addresses to living sets of the policy, or remove them",
		Long: `Edits the sets that the policy marks "living: true", at once and without touching the policy.
What you add holds in addition to what the policy has in the set.`,
		Example: `  sluice set add partners 203.0.113.7 --for 2h -m "ticket 4711"
  sluice set show partners`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newSetAdd(), newSetRemove(), newSetList(), newSetShow())
	return cmd
}

func newSetAdd() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "add NAME ADDRESS|PREFIX|RANGE|-...",
		Short: "Add addresses to a living set",
		Long: `Adds addresses, prefixes and ranges to a living set of the running policy. "-" reads standard
input: one a line; # begins a comment.

With --for the kernel removes them by its own clock. They survive applies, rollbacks and reboots
until their time is up or "sluice set remove" removes them; adding one again replaces it.
explain, query, diff and verify take them into account; expectations of the policy are proved
without them. Single addresses are added to the set that rules look up; for a prefix or a range
the set of ranges is filled again, and the rules switch to it.

If somebody who is logged in over ssh could not come back, nothing changes without --force.
--for takes times such as 90s, 10m, 2h30m and 7d, from 1s to 3650d. All living sets together hold
at most 65,536 entries by command.
` + filesHelp + `

Exit status: 0 added, 1 somebody would be locked out and nothing changed, 2 bad use, or it
failed and nothing changed.`,
		Example: `  sluice set add partners 203.0.113.7 198.51.100.0/24 --for 2h -m "ticket 4711"
  sluice set add blocked - < scanners.txt`,
		Args:              cobra.MinimumNArgs(2),
		ValidArgsFunction: completeSets,
		RunE: func(cmd *cobra.Command, args []string) error {
			in, err := setEdit(cmd, args)
			if err != nil {
				return err
			}
			in.For = command.TimeOf(cmd.Flags(), "for")
			if cmd.Flags().Changed("for") && in.For < time.Second {
				return errors.New("--for is too short\nhint: give at least 1s, or omit it for entries that do not end")
			}
			return editSet(cmd, "added", func(ctx context.Context, h door) (*engine.SetEdited, error) { return h.AddToSet(ctx, in) })
		},
	}
	addMessage(cmd)
	command.AddTime(cmd.Flags(), "for", 0, "remove it after `TIME`")
	cmd.Flags().Bool("force", false, "even if somebody who is logged in over ssh could not come back")
	addWait(cmd)
	return cmd
}

func newSetRemove() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "remove NAME ADDRESS|PREFIX|RANGE|-...",
		Short: "Remove from a living set what \"sluice set add\" added",
		Long: `Removes from a living set the entries that commands added and that lie in an address, prefix or
range that you name. "-" reads standard input: one a line; # begins a comment. What the policy
has in the set stays. Connections that began while rules allowed them go on.

If somebody who is logged in over ssh could not come back, nothing changes without --force.
` + filesHelp + `

Exit status: 0 removed, 1 some of it was not there, or somebody would be locked out and
nothing changed, 2 bad use, or it failed.`,
		Example: `  sluice set remove partners 203.0.113.7
  sluice set remove partners 0.0.0.0/0 ::/0`,
		Args:              cobra.MinimumNArgs(2),
		ValidArgsFunction: completeSets,
		RunE: func(cmd *cobra.Command, args []string) error {
			in, err := setEdit(cmd, args)
			if err != nil {
				return err
			}
			return editSet(cmd, "removed", func(ctx context.Context, h door) (*engine.SetEdited, error) { return h.RemoveFromSet(ctx, in) })
		},
	}
	addMessage(cmd)
	cmd.Flags().Bool("force", false, "even if somebody who is logged in over ssh could not come back")
	addWait(cmd)
	return cmd
}

func setEdit(cmd *cobra.Command, args []string) (engine.SetEdit, error) {
	in := engine.SetEdit{Set: args[0], Force: given(cmd, "force")}
	for i, text := range args[1:] {
		if text != "-" {
			what, err := addrset.ParseRange(text)
			if err != nil {
				return in, err
			}
			in.What = append(in.What, what)
			continue
		}
		if slices.Contains(args[1:1+i], "-") {
			return in, errors.New("standard input is given twice")
		}
		if err := resolve.ReadSetFile("standard input", cmd.InOrStdin(), func(r addrset.Range) { in.What = append(in.What, r) }); err != nil {
			return in, err
		}
	}
	if len(in.What) == 0 {
		return in, errors.New("no address given")
	}
	return in, nil
}

// editSet has a living set edited, and says what came of it.
func editSet(cmd *cobra.Command, done string, edit func(context.Context, door) (*engine.SetEdited, error)) error {
	return onHost(func(ctx context.Context, cmd *cobra.Command, h door, _ []string) error {
		out, err := edit(ctx, h)
		if err != nil {
			return err
		}
		err = answer(cmd, out, false, func(w io.Writer) {
			for _, text := range out.Notes {
				note(cmd, text)
			}
			for i, e := range out.Entries {
				if i == shownRefusals && len(out.Entries) > i+1 {
					fmt.Fprintf(w, "%s %s more\n", done, english.Grouped(len(out.Entries)-i))
					break
				}
				end := ""
				if done == "added" {
					end = " " + endText(e, "until it is removed")
				}
				fmt.Fprintf(w, "%s %s%s\n", done, e.What, end)
			}
			for _, text := range out.NotThere {
				fmt.Fprintf(w, "not added by a command: %s\n", text)
			}
		})
		switch {
		case err != nil:
			return err
		case out.LockedOut != "":
			return command.Found(out.LockedOut + " is logged in over ssh and could not come back: nothing was changed\nhint: --force does it anyway")
		case len(out.NotThere) > 0:
			return command.ErrFound
		}
		return nil
	})(cmd, nil)
}

func newSetList() *cobra.Command {
	return &cobra.Command{
		Use:   "list",
		Short: "List the living sets, and how much is in them",
		Long: `Lists the living sets of the running policy: where they are defined, how many addresses and
ranges the policy has in them, and how many commands added. Then come sets that the policy no
longer has, or no longer as living: their entries by command are kept, hold again when the set
comes back, and are forgotten by "sluice set remove".
` + filesHelp + `

Exit status: 0 listed, 2 bad use, or it could not be read.`,
		Example: "  sluice set list\n  sluice set list --json | jq -r '.[].name'",
		Args:    cobra.NoArgs,
		RunE: onHost(func(ctx context.Context, cmd *cobra.Command, h door, _ []string) error {
			list, err := h.LivingSets(ctx)
			if err != nil {
				return err
			}
			return answer(cmd, list, false, func(w io.Writer) { printLivingSets(w, list) })
		}),
	}
}

func printLivingSets(w io.Writer, list []engine.LivingSet) {
	if len(list) == 0 {
		fmt.Fprintln(w, "the running policy has no living set")
		return
	}
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "set\tof the policy\tby commands\tdefined at")
	for _, s := range list {
		at := s.At
		if s.Gone {
			at = "no longer defined: not in force"
		}
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\n", s.Name, english.Grouped(len(s.Policy)), english.Grouped(len(s.Added)), at)
	}
	_ = table.Flush()
}

func newSetShow() *cobra.Command {
	return &cobra.Command{
		Use:   "show NAME",
		Short: "Show what is in a living set: how long, by whom, why",
		Long: `Shows what is in a living set: first what the policy has in it, then what commands
added: how long, who added it, when and why.
` + filesHelp + `

Exit status: 0 shown, 2 bad use, there is no such set, or it could not be read.`,
		Example:           "  sluice set show partners\n  sluice set show partners --json | jq -r '.added[].what'",
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: completeSets,
		RunE: onHost(func(ctx context.Context, cmd *cobra.Command, h door, args []string) error {
			list, err := h.LivingSets(ctx)
			if err != nil {
				return err
			}
			at := slices.IndexFunc(list, func(s engine.LivingSet) bool { return s.Name == args[0] })
			if at < 0 {
				none := &engine.NoLivingSetError{Set: args[0]}
				for _, s := range list {
					none.Known = append(none.Known, s.Name)
				}
				return none
			}
			return answer(cmd, list[at], false, func(w io.Writer) { printLivingSet(w, list[at]) })
		}),
	}
}

func printLivingSet(w io.Writer, s engine.LivingSet) {
	if len(s.Policy)+len(s.Added) == 0 {
		fmt.Fprintf(w, "%s is empty\n", s.Name)
		return
	}
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "address\tuntil\tby\tsince\treason")
	for _, text := range s.Policy {
		fmt.Fprintf(table, "%s\tforever\tthe policy\t\t\n", text)
	}
	now := time.Now()
	for _, e := range s.Added {
		until := command.Until(e.Until, now)
		if !e.InForce {
			until += ", not in force"
		}
		by := e.By
		by.Reason = ""
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%s\n", e.What, until, whoText(by), e.Since.Local().Format(time.DateTime), e.By.Reason)
	}
	_ = table.Flush()
}

// completeSets offers the living sets, and of one that is named what commands added.
func completeSets(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	h, err := hostOf(cmd)
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	h.Note = nil
	list, err := h.LivingSets(cmd.Context())
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	var out []string
	for _, s := range list {
		switch {
		case len(args) == 0:
			out = append(out, cobra.CompletionWithDesc(s.Name, s.At))
		case s.Name == args[0] && cmd.Name() == "remove":
			for _, e := range s.Added {
				out = append(out, cobra.CompletionWithDesc(e.What, e.By.Reason))
			}
		}
	}
	return out, cobra.ShellCompDirectiveNoFileComp
}
