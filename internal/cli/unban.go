package cli

import (
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"sluice/internal/base/english"
	"sluice/internal/cli/command"
	"sluice/internal/engine/apply"
)

func newUnban() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "unban [ADDRESS|PREFIX|RANGE|COUNTRY|-]...",
		Short: "Lift bans made by command or by limits",
		Long: `Lifts the bans of the given addresses, prefixes and ranges, and all bans within them; "sluice
unban 0.0.0.0/0 ::/0" lifts every one. This includes bans made by a limit of the policy ("then
ban"). You cannot lift a part of a banned prefix or country. Bans written in the policy stay, and
so do bans of the host's fleet: "sluice-controller unban" lifts those. A host that has left its
fleet keeps the fleet's bans until their time is up, and can lift them like its own.
` + banInputHelp + `
` + filesHelp + `

Exit status: 0 lifted, 1 some or all of it was not banned, or the fleet bans it, and the rest is
lifted, 2 bad use, or it failed.`,
		Example: `  sluice unban 203.0.113.7
  sluice unban 0.0.0.0/0 ::/0`,
		Args:              cobra.ArbitraryArgs,
		ValidArgsFunction: completeBanned,
		RunE: func(cmd *cobra.Command, args []string) error {
			list, err := command.BanInput(cmd, args)
			if err != nil {
				return err
			}
			return onHost(func(ctx context.Context, cmd *cobra.Command, h door, _ []string) error {
				out, err := h.Unban(ctx, list)
				if err != nil {
					return err
				}
				other := len(out.NotThere)+len(out.OfFleet) > 0
				err = answer(cmd, out, false, func(w io.Writer) {
					if out.Lifted > 0 || !other {
						fmt.Fprintf(w, "lifted %s\n", english.Plural(out.Lifted, "ban"))
					}
				})
				if err == nil && other {
					return command.Found(notBannedText(out))
				}
				return err
			})(cmd, nil)
		},
	}
	addMessage(cmd)
	addWait(cmd)
	return cmd
}

func notBannedText(out *apply.Banned) string {
	var b strings.Builder
	for i, text := range out.NotThere {
		if i == shownRefusals {
			fmt.Fprintf(&b, "and %d more were not banned\n", len(out.NotThere)-i)
			break
		}
		fmt.Fprintf(&b, "not banned: %s\n", text)
	}
	if n := len(out.OfFleet); n > 0 {
		fmt.Fprintf(&b, "banned by the fleet: %s\nhint: lift it on a controller by sluice-controller unban %s\n", english.Few(out.OfFleet, shownRefusals), out.OfFleet[0])
	}
	return strings.TrimRight(b.String(), "\n")
}

// completeBanned offers what is banned.
func completeBanned(cmd *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
	h, err := hostOf(cmd)
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	h.Note = nil
	list, err := h.Bans(cmd.Context())
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	var out []string
	for _, b := range list {
		out = append(out, cobra.CompletionWithDesc(b.What, b.Reason))
	}
	return out, cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveKeepOrder
}
