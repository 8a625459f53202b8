package cli

import (
	"context"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"sluice/internal/engine/apply"
)

func newConfirm() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "confirm",
		Short: "Keep the policy or settings that wait for confirmation",
		Long: `Keeps the policy that was applied with --confirm: it is not rolled back, and is loaded at
boot from now on. If it cannot be stored, it is kept until the next boot only, and the message
names what that boot loads; make room and confirm again. Settings made by "sluice conntrack
tune apply --confirm" or "sluice doctor --fix" are kept too.
` + filesHelp + `

Exit status: 0 confirmed; 1 nothing waits for confirmation, or it is kept until the next
boot only; 2 failed.`,
		Example: "  sluice apply policy.yaml --confirm 60s && ssh host.example.net sluice confirm",
		Args:    cobra.NoArgs,
		RunE: onHost(func(ctx context.Context, cmd *cobra.Command, h door, _ []string) error {
			n, err := h.Confirm(ctx)
			if err != nil {
				return err
			}
			return answer(cmd, &apply.Outcome{Generation: n}, false, func(w io.Writer) {
				fmt.Fprintln(w, confirmedText(n))
			})
		}),
	}
	addMessage(cmd)
	addWait(cmd)
	return cmd
}

// confirmedText says what was confirmed; 0 is settings alone.
func confirmedText(generation int) string {
	if generation == 0 {
		return "the tuned settings are confirmed"
	}
	return fmt.Sprintf("generation %d is confirmed and will be loaded at boot", generation)
}
