package cli

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"sluice/internal/cli/command"
	"sluice/internal/engine/apply"
)

func newHistory() *cobra.Command {
	return &cobra.Command{
		Use:   "history [GENERATION]",
		Short: "List the policies that were applied, or print one",
		Long: `Lists the generations that are kept, the newest first: when each was applied and confirmed, by
whom, from where and why (--message), and what happened to it. With a number it prints the policy
of that generation as it was applied.
` + filesHelp + `

Exit status: 0 fine, 2 bad use, or no such generation.`,
		Example: "  sluice history\n  sluice history 7 > policy-as-of-7.yaml",
		Args:    cobra.MaximumNArgs(1),

		ValidArgsFunction: completeGeneration,
		RunE: func(cmd *cobra.Command, args []string) error {
			h, err := doorOf(cmd)
			if err != nil {
				return err
			}
			if len(args) > 0 {
				return printGeneration(cmd, h, args[0])
			}
			kept, err := h.History()
			if err != nil {
				return err
			}
			w := cmd.OutOrStdout()
			if optionsOf(cmd).json {
				return command.PrintJSON(w, kept)
			}
			if len(kept.Generations) == 0 {
				fmt.Fprintln(w, "nothing has been applied yet")
			}
			for _, g := range kept.Generations {
				printEntry(w, g, g.Number == kept.Running, g.Number == kept.Boot, kept.Pending != nil && kept.Pending.Generation == g.Number)
			}
			return nil
		},
	}
}

func printEntry(w io.Writer, g *apply.Generation, running, boot, pending bool) {
	first := g.Events[0].What
	listed := g.RefreshOf != 0 && first != apply.Excepted && first != apply.SetsEdited
	var marks []string
	for _, m := range []struct {
		holds bool
		text  string
	}{{running, "runs"}, {boot, "boots"}, {pending, "waits for confirmation"}, {first == apply.Excepted, "exceptions changed"}, {first == apply.SetsEdited, "sets edited"}, {listed, "lists refreshed"}, {g.Closed, "closed: a restore failed"}} {
		if m.holds {
			marks = append(marks, m.text)
		}
	}
	state := ""
	if len(marks) > 0 {
		state = " (" + strings.Join(marks, ", ") + ")"
	}
	fmt.Fprintf(w, "%-4d %s  %s%s%s\n", g.Number, g.Applied.Local().Format(time.DateTime), policyName(g), by(g.By), command.Paint(w, "1", state))
	for _, e := range g.Events[1:] {
		if e.By == g.By {
			e.By.Reason = "" // as told above
		}
		fmt.Fprintf(w, "     %s  %s%s\n", e.Time.Local().Format(time.DateTime), e.What, by(e.By))
	}
}

// policyName is the file of a generation, as it was named.
func policyName(g *apply.Generation) string {
	if g.Closed {
		return "the closed policy"
	}
	return command.PlainName(g.Policy)
}

// noGeneration is for an argument that is none.
func noGeneration(cmd *cobra.Command, text string) error {
	return fmt.Errorf("%q is not the number of a generation\nhint: sluice history%s lists them", text, command.HereArguments(cmd))
}

func printGeneration(cmd *cobra.Command, h door, text string) error {
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 {
		return noGeneration(cmd, text)
	}
	g, err := h.Text(n)
	if err != nil {
		return err
	}
	if g.Closed && !optionsOf(cmd).json {
		return fmt.Errorf("generation %d is the closed policy, loaded by a restore that failed: it has no text", n)
	}
	w := command.Exact(cmd.OutOrStdout())
	if optionsOf(cmd).json {
		return command.PrintJSON(w, g)
	}
	names := slices.Sorted(maps.Keys(g.Texts))
	for _, name := range names {
		if len(names) > 1 {
			fmt.Fprintf(w, "# file: %s\n", name)
		}
		fmt.Fprint(w, g.Texts[name])
	}
	return nil
}
