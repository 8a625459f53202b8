package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"sluice/internal/base/english"
	"sluice/internal/base/fetch"
	"sluice/internal/cli/command"
	"sluice/internal/engine"
	"sluice/internal/engine/apply"
	"sluice/internal/language/lists"
	"sluice/internal/language/policy"
)

func newRefresh() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "refresh [SET]...",
		Short: "Download the lists of the running policy and load what changed",
		Long: `Checks the servers of the running policy's lists (sets with "url") for newer ones: for those
whose "refresh" is due, or those you name. A list that is empty or damaged is refused and the
copy stays; so is one of an implausible size:

- fewer than 80 % of the addresses of the copy in use, in either family; a copy of up to ten
  ranges may lose any number;
- more than ten times the addresses of the copy in use, in either family, if that is more than
  an IPv4 /8 or an IPv6 /16;
- a range as wide as an IPv4 /7 or an IPv6 /15, or wider, that the copy in use does not have.
  Addresses that no host of the internet has do not count in these two.

--force accepts a list of any size. plan and apply refuse the same lists, warn, and use the
copy. Warnings of check under the new lists are shown.

It first shows what changes: how many addresses come and go, and which live connections that
would cut (bans) or no longer allow. If there are any, or if it would lock out somebody who is
logged in over ssh, nothing changes without --allow-cut.

The policy is the one that was applied, not the file as it is now. Only lists change: for a
changed set file, apply the policy again. --countries loads the country data in use ("geo
update", "geo undo") in the same way, and then only lists that you name. While a policy waits
for confirmation nothing is refreshed. A refreshed policy is a generation of its own; the
history keeps only the newest refresh, and rollback goes to the policy before it.

Each list is downloaded and parsed by a separate process: as user sluice-fetch (from packaging's
sysusers.d), without capabilities, under landlock and seccomp if the kernel has them, in the
policy's network namespace. It returns plain ranges; a missing confinement is noted. plan and
apply do the same.

The timer sluice-refresh.timer in packaging runs this. "sluice agent" does it by itself; where
it runs, the timer's --unless-agent does nothing.
` + filesHelp + `
Environment: HTTP_PROXY, HTTPS_PROXY, NO_PROXY.

Exit status: 0 refreshed, or nothing newer; 1 stopped because it would cut connections or lock
somebody out, or a list was refused for its size; 2 bad use, or a list is unreachable, empty or
damaged.`,
		Example: `  sluice refresh
  sluice refresh scanners --dry-run
  sluice refresh --countries
  sluice refresh --allow-cut --netns customer7`,
		ValidArgsFunction: completeLists,
		RunE: func(cmd *cobra.Command, args []string) error {
			if given(cmd, "unless-agent") {
				h, err := hostOf(cmd)
				if err != nil {
					return err
				}
				if h.ByAgent() {
					note(cmd, "an agent refreshes the lists")
					return nil
				}
			}
			return onHost(runRefresh)(cmd, args)
		},
	}
	flags := cmd.Flags()
	flags.Bool("dry-run", false, "show what would change, and change nothing")
	flags.Bool("countries", false, "load the country data in use, and only lists that you name")
	flags.Bool("unless-agent", false, "do nothing if an agent refreshes the lists")
	flags.Bool("allow-cut", false, "go on even if that cuts live connections or locks somebody out")
	flags.Bool("force", false, "accept lists with far fewer or far more addresses than the copies in use")
	addMessage(cmd)
	addWait(cmd)
	return cmd
}

func runRefresh(ctx context.Context, cmd *cobra.Command, h door, args []string) error {
	in := engine.Refreshing{Sets: args, Countries: given(cmd, "countries"), DryRun: given(cmd, "dry-run"), AllowCut: given(cmd, "allow-cut"), Force: given(cmd, "force")}
	out, err := h.Refresh(ctx, in)
	if err != nil {
		return err
	}
	for i := range out.Lists {
		out.Lists[i].Error = command.StyleHints(out.Lists[i].Error)
	}
	err = answer(cmd, out, out.Stopped && in.DryRun, func(w io.Writer) { printRefresh(w, out, in.Countries) })
	if err == nil && out.Stopped {
		return command.Found("stopped: nothing changed\nhint: --allow-cut goes on anyway")
	}
	return cmp.Or(err, notFetched(out.Lists))
}

// notFetched is what was wrong with lists: one whose size alone is, somebody has to
// look at.
func notFetched(refreshed []engine.RefreshedList) error {
	var errs []error
	onlySizes := true
	for _, l := range refreshed {
		if l.Error == "" {
			continue
		}
		onlySizes = onlySizes && l.Refused
		errs = append(errs, fmt.Errorf("set %s: %s", l.Set, l.Error))
	}
	err := errors.Join(errs...)
	if err != nil && onlySizes {
		return fmt.Errorf("refused: %w%w", err, command.ErrFound)
	}
	return err
}

func printRefresh(w io.Writer, r *engine.Refreshed, countries bool) {
	if len(r.Lists) == 0 && !countries {
		fmt.Fprintln(w, "no list is due")
		return
	}
	for _, l := range r.Lists {
		text := map[lists.State]string{lists.Current: "the copy is current", lists.Fetched: "fetched"}[l.State]
		if l.Error != "" {
			text = "not refreshed"
			if !l.Copy.IsZero() {
				text += ", the copy of " + l.Copy.Local().Format(time.DateTime) + " is used"
			}
		}
		fmt.Fprintf(w, "list %s: %s\n", l.Set, text)
	}
	for _, s := range r.Sets {
		fmt.Fprintf(w, "set %s: %s, %d before: %d come, %d go%s\n", s.Name, english.Plural(s.After, "element"), s.Before, s.Added, s.Removed, addressesText(s))
	}
	for i, f := range r.Flows {
		if i == shownRefusals {
			fmt.Fprintf(w, "and %s\n", english.Plural(len(r.Flows)-i, "more connection"))
			break
		}
		fmt.Fprintln(w, f)
	}
	if r.LockedOut != "" {
		fmt.Fprintf(w, "%s is logged in over ssh and would be locked out\n", r.LockedOut)
	}
	switch {
	case r.Unchanged:
		fmt.Fprintf(w, "nothing changes: %s runs\n", generationName(r.Generation))
	case !r.DryRun && !r.Stopped:
		fmt.Fprintf(w, "%s runs\n", generationName(r.Generation))
	}
}

// addressesText counts addresses that come and go, of IPv6 networks of 64 bits.
func addressesText(s apply.SetChange) string {
	var parts []string
	if s.AddressesPlus+s.AddressesMinus > 0 {
		parts = append(parts, fmt.Sprintf("IPv4: %s %s come, %s go", english.Grouped(s.AddressesPlus), english.Noun(s.AddressesPlus, "address"), english.Grouped(s.AddressesMinus)))
	}
	if s.NetworksPlus > 0 || s.NetworksMinus > 0 {
		parts = append(parts, fmt.Sprintf("IPv6: addresses of %s %s (/64) come, of %s go", english.Grouped(s.NetworksPlus), english.Noun(s.NetworksPlus, "network"), english.Grouped(s.NetworksMinus)))
	}
	if len(parts) == 0 {
		return ""
	}
	return " (" + strings.Join(parts, "; ") + ")"
}

// completeLists offers the sets of the running policy that have a list.
func completeLists(cmd *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
	h, err := hostOf(cmd)
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	g, texts, err := h.RunningPolicy()
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	p, err := policy.LoadTexts(g.Policy, texts)
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	var names []string
	for _, s := range p.Sets {
		if s.URL != nil {
			names = append(names, cobra.CompletionWithDesc(s.Name, fetch.Redact(s.URL.Text)))
		}
	}
	return names, cobra.ShellCompDirectiveNoFileComp
}
