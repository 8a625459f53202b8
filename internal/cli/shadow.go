package cli

import (
	"fmt"
	"io"
	"os/signal"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"sluice/internal/cli/command"
	"sluice/internal/engine"
	"sluice/internal/engine/shadow"
)

const (
	defaultShadowTime = 10 * time.Minute
	defaultShadowTop  = 10
)

func newShadow() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "shadow [FILE]",
		Short: "Count what a policy would drop on live traffic, without enforcing it",
		Long: `Compiles a policy, loads it so that it only counts, and shows what it would have dropped: by line
of the policy, source, service and country. It drops, rejects, rewrites, logs and bans nothing;
the firewall that enforces meanwhile, Sluice or another, goes on as before.

It ends after --for, by Ctrl-C, or with the process: a second process then deletes its table, and
after its time the kernel stops counting by itself. On a terminal it shows the counts every
second.

It sees packets just before the filter chains, including those that these drop, but not packets
dropped earlier (by a ban before tracking, or by a full connection table). If the running
firewall allows a flow, its later packets are established, and the policy's rules evaluate only
the first. The policy's address translation is not done; what it would change is reported, and
not judged.
` + passesHelp + policyHelp + `

Exit status: 0 nothing would have been dropped or rejected, 1 something would,
2 bad use or bad input, or it could not be loaded or read.`,
		Example: `  sluice shadow new.yaml --for 1h
  sluice shadow new.yaml --for 1d --json > report.json
  sluice shadow new.yaml --netns customer7`,
		Args: cobra.MaximumNArgs(1),
		RunE: runShadow,
	}
	flags := cmd.Flags()
	command.AddTime(flags, "for", defaultShadowTime, "end after `TIME`")
	flags.Int("top", defaultShadowTop, "print the first `N` of each list")
	flags.Bool("all", false, "also print the lines that would allow")
	flags.Bool("start-tracking", false, "load it even if it would be the first to track connections")
	addPasses(cmd)
	return cmd
}

func runShadow(cmd *cobra.Command, args []string) error {
	collectSoon()
	life := command.TimeOf(cmd.Flags(), "for")
	if life < time.Second {
		return fmt.Errorf("--for %s is too short to count anything\nhint: give at least 1s", life)
	}
	top, _ := cmd.Flags().GetInt("top")
	if top < 0 {
		return fmt.Errorf("--top %d is not a number of lines", top)
	}
	ctx, stop := signal.NotifyContext(cmd.Context(), syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	// A stopped process could not end the shadow in time.
	signal.Ignore(syscall.SIGTSTP)
	defer signal.Reset(syscall.SIGTSTP)

	h, err := hostOf(cmd)
	if err != nil {
		return err
	}
	in := engine.Shadowing{Life: life}
	if in.Request, err = request(cmd, args); err != nil {
		return err
	}
	in.Track = given(cmd, "start-tracking")
	errOut := cmd.ErrOrStderr()
	switch {
	case command.Colours(errOut):
		line := command.Bare(errOut) // it moves the cursor
		in.Look = func(r *shadow.Report) { fmt.Fprint(line, clearLine+fitted(line, liveText(r, life))) }
	case !optionsOf(cmd).json:
		in.Began = func() {
			fmt.Fprintf(errOut, "counting what %s would drop for %s; nothing is enforced\n", in.File, spanText(life))
		}
	}
	report, err := h.Shadow(ctx, in)
	if in.Look != nil {
		fmt.Fprint(command.Bare(errOut), clearLine)
	}
	if err != nil {
		return err
	}
	return answer(cmd, report, report.Total.Refused() > 0, func(w io.Writer) { printShadow(w, report, top, given(cmd, "all")) })
}

// clearLine goes to the beginning of a line of a terminal and clears it.
const clearLine = "\r\x1b[K"

// fitted cuts a line to the width of the terminal.
func fitted(out io.Writer, text string) string {
	f, is := out.(interface{ Fd() uintptr })
	if !is {
		return text
	}
	width, _, err := term.GetSize(int(f.Fd()))
	if runes := []rune(text); err == nil && width > 1 && len(runes) >= width {
		return string(runes[:width-1])
	}
	return text
}
