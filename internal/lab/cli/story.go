package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"

	"github.com/spf13/cobra"

	"sluice"
	"sluice/internal/cli/command"
	"sluice/internal/lab/figures"
	"sluice/internal/lab/stories"
)

func newStory() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "story NUMBER",
		Short: "Replay an incident, name its cause, and measure Sluice's answer",
		Long: `Builds an incident in network namespaces with the real programs, measures it, names the cause from what
the kernel shows, applies Sluice's answer with "sluice apply", and measures again. "sluice-lab story
list" lists the incidents.

Nothing is sent beyond the namespaces, the host's own rules are not touched, and everything is deleted
afterwards, also after Ctrl-C.

The limit of the connection table (nf_conntrack_max) is for the whole machine. Stories that set it run
in an emulated machine with --kernel, where time is counted in instructions, or here with
--host-sysctl: every table of this machine then has the story's limit for a while, and new tracked
connections may be lost. The old value is restored in any case, even if sluice is killed.

` + reportHelp + `

Environment: SLUICE_STATE_DIR has the country data that story 3 needs (see sluice geo update).

Files: kernels are kept in $XDG_CACHE_HOME/sluice, or else ~/.cache/sluice.
/run/sluice-held-sysctls.json has the values to restore.

Exit status: 0 played, and every goal reached, 1 a goal is not reached or cannot be shown (its line says
which), 2 bad use, or a machine that lacks something, 130 interrupted.`,
		Example: `  sluice-lab story list
  sluice-lab story 2 --html story2.html
  sluice-lab story 1 --kernel 6.12`,
		Args: cobra.ExactArgs(1),
		RunE: runStory,
		ValidArgsFunction: func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
			var out []string
			for _, s := range stories.All() {
				out = append(out, fmt.Sprintf("%d\t%s", s.Number, s.Title))
			}
			return out, cobra.ShellCompDirectiveNoFileComp
		},
	}
	flags := cmd.Flags()
	flags.Bool("host-sysctl", false, "let the story set nf_conntrack_max of this machine while it plays")
	flags.String("kernel", "", "play in an emulated machine with kernel `VERSION` of Debian, such as 6.12")
	flags.Bool("short", false, "play the shortest version, with rougher figures")
	flags.Uint64("seed", 1, "random seed `NUMBER`")
	flags.Bool("in-lab", false, "the machine is one of the kernel lab")
	command.Must(flags.MarkHidden("in-lab"))
	cmd.MarkFlagsMutuallyExclusive("host-sysctl", "kernel")
	addReport(cmd)
	cmd.AddCommand(newStoryList(), newStoryAsk())
	return cmd
}

func newStoryList() *cobra.Command {
	return &cobra.Command{
		Use:   "list",
		Short: "List the stories",
		Long: `Lists the incidents that "sluice-lab story NUMBER" plays, and what each needs.

Exit status: 0 fine, 2 bad use.`,
		Example: "  sluice-lab story list",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			w := cmd.OutOrStdout()
			if command.JSON(cmd) {
				return command.PrintJSON(w, storiesJSON())
			}
			widest := 0
			for _, s := range stories.All() {
				widest = max(widest, len(s.Title))
			}
			for _, s := range stories.All() {
				if s.Machine {
					fmt.Fprintf(w, "%d  %-*s  with --kernel or --host-sysctl\n", s.Number, widest, s.Title)
					continue
				}
				fmt.Fprintf(w, "%d  %s\n", s.Number, s.Title)
			}
			return nil
		},
	}
}

// newStoryAsk is the load of a story; story starts it inside a client's namespace.
func newStoryAsk() *cobra.Command {
	return &cobra.Command{
		Use:    "ask",
		Short:  "Send the requests of a story to a web server",
		Long:   "Started by story in the namespace of a client; reads JSON, and writes JSON.\n\nExit status: 0 done, 2 it failed.",
		Args:   cobra.NoArgs,
		Hidden: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return stories.AskChild(cmd.Context(), cmd.InOrStdin(), cmd.OutOrStdout())
		},
	}
}

// storyJSON is one story of "sluice-lab story list --json".
type storyJSON struct {
	Number   int      `json:"number"`
	Title    string   `json:"title"`
	Incident string   `json:"incident"`
	Needs    []string `json:"needs"`
	Machine  bool     `json:"sets-machine"` // --kernel or --host-sysctl
}

func storiesJSON() []storyJSON {
	var out []storyJSON
	for _, s := range stories.All() {
		entry := storyJSON{s.Number, s.Title, s.Incident, []string{}, s.Machine}
		for _, f := range s.Needs {
			entry.Needs = append(entry.Needs, f.Name)
		}
		out = append(out, entry)
	}
	return out
}

func runStory(cmd *cobra.Command, args []string) error {
	number, err := strconv.Atoi(args[0])
	s, there := stories.Find(number)
	if err != nil || !there {
		return fmt.Errorf("no such story: %q\nhint: sluice-lab story list", args[0])
	}
	flags := cmd.Flags()
	o := stories.Options{Version: sluice.Version(), Command: commandLine(cmd, args), Countries: command.StateDir(cmd)}
	o.Seed, _ = flags.GetUint64("seed")
	o.Short, _ = flags.GetBool("short")
	o.HostSysctl, _ = flags.GetBool("host-sysctl")
	o.InLab, _ = flags.GetBool("in-lab")
	if o.Binary, err = theSluice(); err != nil {
		return err
	}
	if o.Lab, err = os.Executable(); err != nil {
		return fmt.Errorf("find this program: %w", err)
	}
	o.Say = func(line string) { fmt.Fprintln(cmd.ErrOrStderr(), line) }
	ctx, stop := measuring(cmd)
	defer stop()

	report, err := playStory(ctx, cmd, s, o)
	switch {
	case errors.Is(err, stories.ErrMachine):
		return fmt.Errorf("story %d: %w\nhint: --kernel 6.12 plays it in an emulated machine; --host-sysctl sets it on this machine for the time of the story, and brings it back", number, err)
	case report == nil:
		return err
	case ctx.Err() != nil:
		err = ctx.Err()
	}
	if err == nil {
		return finishReport(cmd, report)
	}
	// What was measured until then is shown anyway.
	if slices.ContainsFunc(report.Sections, func(s figures.Section) bool { return len(s.Figures) > 0 }) {
		if failed := finishReport(cmd, report); failed != nil && !errors.Is(failed, command.ErrFound) {
			err = errors.Join(err, failed)
		}
	}
	return err
}

// playStory plays a story here or in the kernel lab.
func playStory(ctx context.Context, cmd *cobra.Command, s stories.Story, o stories.Options) (*figures.Report, error) {
	if kernel, _ := cmd.Flags().GetString("kernel"); kernel != "" {
		return stories.RunInLab(ctx, s, kernel, o)
	}
	return stories.Run(ctx, s, o)
}
