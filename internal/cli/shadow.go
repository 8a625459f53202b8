package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os/signal"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"sluice/internal/backend"
	"sluice/internal/backend/nftables"
	"sluice/internal/base/addrset"
	"sluice/internal/cli/command"
	"sluice/internal/engine"
	"sluice/internal/engine/apply"
	"sluice/internal/engine/shadow"
	"sluice/internal/program"
	"sluice/internal/program/optimize"
	"sluice/internal/prove/check"
)

const (
	defaultShadowTime = 10 * time.Minute
	defaultShadowTop  = 10
)

func newShadow() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "shadow [FILE]",
		Short: "Count what a policy would drop on live traffic, without enforcing it",
		Long: `Compiles a policy, loads it so that it only counts, and says what it would have
dropped: by line of the policy, by source, service and country. Nothing is dropped,
rejected, rewritten, logged or banned by it; what enforces meanwhile, Sluice or
another firewall, goes on as before.

It ends after --for, with Ctrl-C, or with the process, whatever ends that: a second
process then deletes its table, and after its time the kernel counts no more by
itself. On a terminal it shows each second what it has counted.

It sees packets just before the filter chains, those too that these drop; what is
dropped before (a ban before tracking, the table of connections full) it does not.
Of a flow that the running firewall lets through, the packets behind the first are
established, and the policy's rules are asked for the first one alone. The policy's
address translation is not made; what it would change is said, and not judged.
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
	flags.Bool("all", false, "print the lines too that would allow")
	flags.Bool("start-tracking", false, "load it also where it would be the first to track connections")
	addPasses(cmd)
	return cmd
}

// candidate is a policy as a shadow.
type candidate struct {
	file     string
	prepared *engine.Preparation
	legend   *shadow.Legend
	artifact backend.Artifact
}

func runShadow(cmd *cobra.Command, args []string) error {
	life := command.TimeOf(cmd.Flags(), "for")
	if life < time.Second {
		return fmt.Errorf("--for %s is too short to count anything\nhint: give at least 1s", life)
	}
	if top, _ := cmd.Flags().GetInt("top"); top < 0 {
		return fmt.Errorf("--top %d is no number of lines", top)
	}
	ctx, stop := signal.NotifyContext(cmd.Context(), syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	// A stopped process could not end the shadow in time.
	signal.Ignore(syscall.SIGTSTP)
	defer signal.Reset(syscall.SIGTSTP)

	c, err := prepareShadow(ctx, cmd, command.PolicyArgument(args))
	if err != nil {
		return err
	}
	if start, _ := cmd.Flags().GetBool("start-tracking"); c.legend.Tracks && !start {
		err := shadow.Tracking(ctx)
		var untracked shadow.UntrackedError
		if errors.As(err, &untracked) {
			err = fmt.Errorf("%w\nhint: give --start-tracking where that is fine; it ends with the shadow", err)
		}
		if err != nil {
			return err
		}
	}
	if cost, free := c.artifact.Cost(), apply.FreeMemory(); free > 0 && cost.Memory+cost.Growth > free/2 {
		return fmt.Errorf("the shadow may take %s of kernel memory, and %s are free\nnothing was loaded", mebibytes(cost.Memory+cost.Growth), mebibytes(free))
	}
	return c.run(ctx, cmd, life)
}

func mebibytes(n uint64) string { return fmt.Sprintf("%.1f MiB", float64(n)/(1<<20)) }

// prepareShadow goes through the pipeline, with the counting form in the place of the
// program.
func prepareShadow(ctx context.Context, cmd *cobra.Command, file string) (*candidate, error) {
	h, err := hostOf(cmd)
	if err != nil {
		return nil, err
	}
	r, err := request(cmd, []string{file})
	if err != nil {
		return nil, err
	}
	p, err := h.Prepare(ctx, r)
	if err != nil {
		return nil, err
	}
	resolved, err := p.Sources.Resolve(ctx, p.Policy, p.Facts)
	if err != nil {
		return nil, err
	}
	findings := check.Run(resolved, p.Facts)
	if err := check.Errors(findings); err != nil {
		return nil, err
	}
	for _, f := range findings {
		if f.Severity == check.Warning {
			warn(cmd.ErrOrStderr(), f.Pos.String()+": "+f.Message)
		}
	}
	c := &candidate{file: file}
	banned, err := bannedByCommand(ctx, h)
	if err != nil {
		return nil, err
	}
	// What base chains are for is to see every packet, whatever the passes make of
	// the rest; and rules stay in the order of the policy.
	var legend *shadow.Legend
	counting, err := engine.Program(resolved, p.Can, engine.Options{
		Without: append(p.Without, "base-chains", "terminal"),
		Compiled: func(compiled *program.Program, _ *optimize.Options) (*program.Program, error) {
			counting, l, err := shadow.Counting(compiled, banned)
			if legend = l; err == nil && len(l.Hooks) == 0 {
				err = fmt.Errorf("%s polices no section, so it would drop nothing\nhint: a policy decides at input, forward or output once it has such a section", file)
			}
			return counting, err
		},
	})
	if err != nil {
		return nil, err
	}
	if err := shadow.Checked(counting); err != nil {
		return nil, err
	}
	if c.artifact, err = p.Backend.Lower(counting, p.Can); err != nil {
		return nil, err
	}
	for _, n := range c.artifact.Notes() {
		h.Note(apply.NoteText(n))
	}
	c.prepared, c.legend = p, legend
	return c, nil
}

// bannedByCommand is what "sluice ban" bans at this moment.
func bannedByCommand(ctx context.Context, h *engine.Host) (addrset.Set, error) {
	list, err := h.Bans(ctx)
	if err != nil {
		return addrset.Set{}, err
	}
	var banned []addrset.Range
	for _, b := range list {
		if b.By != apply.ByCommand {
			continue
		}
		r, err := addrset.ParseRange(b.What)
		if err != nil {
			return addrset.Set{}, fmt.Errorf("ban of %s: %w", b.What, err)
		}
		banned = append(banned, r)
	}
	return addrset.Of(banned...), nil
}

// run loads the shadow and stays until its end.
func (c *candidate) run(ctx context.Context, cmd *cobra.Command, life time.Duration) (err error) {
	errOut := cmd.ErrOrStderr()
	live := command.Colours(errOut)
	progress := linesOn(errOut, quietTime)
	if live {
		progress = progressOn(errOut)
	}
	running, err := shadow.Start(ctx, nftables.Of(shadow.Owner), c.artifact, c.legend, life, func(done, total int, name string) {
		progress(apply.Progress{Purpose: "load", Name: name, Done: done, Total: total})
	})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, running.Close()) }()
	names := c.names(errOut)
	if !live && !optionsOf(cmd).json {
		fmt.Fprintf(errOut, "counting what %s would drop for %s; nothing is enforced\n", c.file, spanText(life))
	}
	var look func(*shadow.Report)
	if live {
		line := command.Bare(errOut) // it moves the cursor
		look = func(r *shadow.Report) { fmt.Fprint(line, clearLine+fitted(line, liveText(r, life))) }
	}
	report, err := running.Watch(ctx, life, names, look)
	if live {
		fmt.Fprint(command.Bare(errOut), clearLine)
	}
	if err != nil {
		return err
	}
	report.Policy, report.Namespace = c.file, optionsOf(cmd).netns
	if optionsOf(cmd).json {
		err = command.PrintJSON(cmd.OutOrStdout(), report)
	} else {
		top, _ := cmd.Flags().GetInt("top")
		all, _ := cmd.Flags().GetBool("all")
		printShadow(cmd.OutOrStdout(), report, top, all)
	}
	if err == nil && report.Total.Refused() > 0 {
		return command.ErrFound
	}
	return err
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
