package cli

import (
	"bytes"
	"errors"
	"fmt"
	"regexp"
	"strings"

	"github.com/google/renameio/v2"
	"github.com/spf13/cobra"

	"sluice/internal/cli/command"
	"sluice/internal/lab/stress"
)

func newStress() *cobra.Command {
	names, about := stress.Parts()
	var list strings.Builder
	for i, name := range names {
		fmt.Fprintf(&list, "  %-10s %s\n", name, about[i])
	}
	cmd := &cobra.Command{
		Use:   "stress",
		Short: "Change policies under traffic and count what happens to packets",
		Long: `Applies and refreshes policies over and over while packets go through, and counts
what happened to them, in namespaces that are gone afterwards: "make stress" in the
source tree. Its parts are

` + list.String() + `
--json prints the counts as JSON instead of the tables, which are on standard error
then. --save writes them into a file.

Exit status: 0 every count is what it has to be, 1 one is not, 2 bad use, or nothing
could be counted, 130 interrupted.`,
		Example: `  sluice-lab stress --short
  sluice-lab stress --run 'applies|control' --save counts.json`,
		Args: cobra.NoArgs,
		RunE: runStress,
	}
	flags := cmd.Flags()
	flags.String("data", treeCountries, "country data as CSV in `DIR`")
	flags.Uint64("seed", 1, "`SEED` of the sources that are drawn")
	flags.Bool("short", false, "make a tenth of the applies and refreshes")
	command.AddTime(flags, "enough", 0, "end a part after so much `TIME`, and count what was made by then")
	flags.String("run", "", "run only the parts whose name matches `REGEXP`")
	command.Must(errors.Join(cmd.MarkFlagDirname("data"), cmd.RegisterFlagCompletionFunc("run", command.Words(names...))))
	addSave(cmd)
	return cmd
}

func runStress(cmd *cobra.Command, _ []string) (err error) {
	if status, asked := stress.HandIfAsked(); asked {
		if status != 0 {
			return command.ErrFound // it has said why
		}
		return nil
	}
	flags := cmd.Flags()
	r := stress.Run{Out: cmd.OutOrStdout(), Enough: command.TimeOf(flags, "enough")}
	if command.JSON(cmd) {
		r.Out = cmd.ErrOrStderr()
	}
	r.Data, _ = flags.GetString("data")
	r.Seed, _ = flags.GetUint64("seed")
	r.Short, _ = flags.GetBool("short")
	expression, _ := flags.GetString("run")
	chosen, err := regexp.Compile(expression)
	if err != nil {
		return fmt.Errorf("--run: %w", err)
	}
	if r.Binary, err = theSluice(); err != nil {
		return err
	}
	if w := command.Bare(cmd.ErrOrStderr()); command.IsTerminal(w) {
		r.Progress = func(what string, done, of int) { fmt.Fprintf(w, "\r\x1b[K%s %d of %d\r", what, done, of) }
	}
	ctx, stop := command.Interruptible(cmd)
	defer stop()
	all, err := r.Long(ctx, chosen)
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case errors.Is(err, stress.ErrWrong):
		err = command.Found(err.Error())
	case err != nil:
		return err
	}
	if file, _ := flags.GetString("save"); file != "" {
		var text bytes.Buffer
		err = errors.Join(command.PrintJSON(&text, all), renameio.WriteFile(file, text.Bytes(), 0o644), err)
	}
	if command.JSON(cmd) {
		err = errors.Join(command.PrintJSON(cmd.OutOrStdout(), all), err)
	}
	return err
}
