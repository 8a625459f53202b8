package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"os"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"sluice/internal/agent/api"
	"sluice/internal/agent/work"
	"sluice/internal/cli/command"
	"sluice/internal/engine"
)

// newWork is the body of the process that does one operation for the agent.
func newWork() *cobra.Command {
	return &cobra.Command{
		Use:   "work",
		Short: "Do one operation for the agent",
		Long: `Started by the agent, with the operation on standard input. Progress and result go to standard
output, a line of JSON each.

Exit status: 0 answered, 2 there was nothing to do.`,
		Args:   cobra.NoArgs,
		Hidden: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			var o work.Order
			if err := json.NewDecoder(cmd.InOrStdin()).Decode(&o); err != nil {
				return fmt.Errorf("read the operation: %w", err)
			}
			if err := o.Bound(); err != nil {
				return err
			}
			ctx, stop := command.Interruptible(cmd)
			defer stop()
			h, err := hostOf(cmd)
			if err != nil {
				return err
			}
			answer := api.NewLines(command.Bare(cmd.OutOrStdout())) // not for a terminal
			h.Wait, h.Beside, h.By, h.Session = o.Wait, o.Beside, o.By, o.Session
			h.Note, h.Warn, h.Shout, h.Progress, h.Download = answer.Note, answer.Warn, answer.Shout, answer.Progress, answer.Download
			o.Seen = answer.Top
			if o.Files {
				unix.CloseOnExec(3)
				o.Root = os.NewFile(3, "/")
			}
			done, err := o.Do(ctx, asking{worded{h, command.HereArguments(cmd)}})
			answer.End(done, work.Failed(err, command.HereArguments(cmd), done))
			return answer.Err()
		},
	}
}

// asking asks in the words of the commands.
type asking struct{ worded }

func (a asking) Check(ctx context.Context, r engine.Request) (*engine.Checked, error) {
	out, err := a.Host.Check(ctx, r)
	if out != nil {
		withRemedies(out.Findings)
	}
	return out, err
}
