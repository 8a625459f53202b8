package cli

import (
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"sluice/internal/cli/command"
	"sluice/internal/lab/kernelbench"
	"sluice/internal/lab/kernels"
	"sluice/internal/lab/kernels/matrix"
)

// treeCountries is where scripts/fetch-geo-data puts the country data, from the root of
// the source tree.
const treeCountries = ".cache/geo/dbip-country"

func newKernels() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "kernels",
		Short: "Run tests and measurements on other kernels, emulated",
		Long: `Runs the core tests of the source tree on Debian's kernels in emulated machines, and measures there
what a packet costs, in counted instructions. --core, --run, --no-table and --command skip the
measurement. Run it in the root of the source tree ("make kernels").

` + reportHelp + `

Exit status: 0 all passed, 1 a test or the command failed, two runs differ, or a packet costs more
than recorded, 2 bad use, or a kernel that could not run, 130 interrupted.`,
		Example: `  sluice-lab kernels
  sluice-lab kernels --kernel 6.1 --core
  sluice-lab kernels --kernel 6.1,6.12 --run ./internal/lab/kerneltest --tests Flowtable
  sluice-lab kernels --kernel newest --command 'nft -v; uname -a'`,
		Args: cobra.NoArgs,
		RunE: runKernels,
	}
	flags := cmd.Flags()
	flags.StringSlice("kernel", nil, "the `KERNELS`; without it "+matrix.EveryKernel+", and with --core or --command "+matrix.OneKernel)
	flags.String("cache", ".cache/kernels", "`DIR` of downloaded kernels")
	flags.String("data", treeCountries, "country data as CSV in `DIR`")
	flags.Bool("core", false, "run only the core tests, and measure nothing")
	flags.String("run", "", "run only the tests of these `PACKAGES` (patterns of go list, separated by spaces); all of them without --tests")
	flags.String("tests", "", "run the tests whose name matches `REGEXP`")
	flags.String("command", "", "run a shell `LINE` instead; tests of --run are at /src/PACKAGE/kernel.test")
	flags.Bool("no-tests", false, "run no tests, only measure")
	flags.Bool("no-table", false, "measure nothing, only run the tests")
	flags.Bool("twice", false, "measure twice, and fail when a figure differs by more than 2 %")
	flags.String("record", "", "write the figures of the kernel to `FILE`")
	flags.String("hold", "", "measure only the examples under Sluice, and fail if a packet costs more than recorded in `FILE`")
	flags.String("plant", "", "put an nft `RULE` first into input and forward of the examples, to test that --hold notices it")
	cmd.MarkFlagsMutuallyExclusive("record", "hold")
	cmd.MarkFlagsMutuallyExclusive("record", "plant")
	addSections(cmd)
	command.Must(errors.Join(cmd.MarkFlagFilename("record", "json"), cmd.MarkFlagFilename("hold", "json"), cmd.MarkFlagDirname("cache"), cmd.MarkFlagDirname("data")))
	addReport(cmd)
	cmd.AddCommand(newKernelsInside())
	return cmd
}

func addSections(cmd *cobra.Command) {
	names := kernelbench.Sections()
	cmd.Flags().StringSlice("sections", nil, "measure only these `SECTIONS`: "+strings.Join(names, ", "))
	command.Must(cmd.RegisterFlagCompletionFunc("sections", command.Words(names...)))
}

func runKernels(cmd *cobra.Command, args []string) error {
	flags := cmd.Flags()
	o := matrix.Options{
		Report: flags.Changed("save") || flags.Changed("html") || command.JSON(cmd), Out: cmd.OutOrStdout(),
	}
	if command.JSON(cmd) {
		o.Out = cmd.ErrOrStderr()
	}
	o.Kernels, _ = flags.GetStringSlice("kernel")
	o.Cache, _ = flags.GetString("cache")
	o.Data, _ = flags.GetString("data")
	o.Core, _ = flags.GetBool("core")
	o.Packages, _ = flags.GetString("run")
	o.Tests, _ = flags.GetString("tests")
	o.Command, _ = flags.GetString("command")
	o.NoTests, _ = flags.GetBool("no-tests")
	o.NoTable, _ = flags.GetBool("no-table")
	o.Twice, _ = flags.GetBool("twice")
	o.Sections, _ = flags.GetStringSlice("sections")
	o.Record, _ = flags.GetString("record")
	o.Hold, _ = flags.GetString("hold")
	o.Plant, _ = flags.GetString("plant")
	ctx, stop := command.Interruptible(cmd)
	defer stop()
	r, err := matrix.Run(ctx, o)
	switch ended := (*kernels.ExitError)(nil); {
	case ctx.Err() != nil:
		return ctx.Err()
	case errors.As(err, &ended) || errors.Is(err, matrix.ErrDiffers) || errors.Is(err, matrix.ErrCostlier):
		err = command.Found(err.Error())
	}
	if r != nil {
		err = errors.Join(finishReport(cmd, r), err)
	}
	return err
}

// newKernelsInside is what measures in the guest.
func newKernelsInside() *cobra.Command {
	cmd := &cobra.Command{
		Use:    "inside",
		Short:  "Measure on this kernel",
		Long:   "Started by kernels in the emulated machine.\n\nExit status: 0 measured, 2 it failed, 130 interrupted.",
		Args:   cobra.NoArgs,
		Hidden: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			flags := cmd.Flags()
			o := kernelbench.Options{
				StateDir: command.StateDir(cmd), Seed: 1,
				Say: func(format string, args ...any) { fmt.Fprintf(cmd.OutOrStdout(), format+"\n", args...) },
			}
			o.Modules, _ = flags.GetString("modules")
			o.Sections, _ = flags.GetStringSlice("sections")
			o.Alone, _ = flags.GetBool("alone")
			o.Plant, _ = flags.GetString("plant")
			file, _ := flags.GetString("save")
			var err error
			if o.Binary, err = theSluice(); err != nil {
				return err
			}
			ctx, stop := measuring(cmd)
			defer stop()
			r, err := kernelbench.Run(ctx, o)
			if err != nil {
				return err
			}
			return r.Save(file)
		},
	}
	cmd.Flags().String("modules", "", "`DIR` of the kernel's modules, in a machine that may be changed")
	cmd.Flags().Bool("alone", false, "measure only the examples under Sluice")
	cmd.Flags().String("plant", "", "a `RULE` to put first into the examples' input and forward chains")
	addSections(cmd)
	addSave(cmd)
	return cmd
}
