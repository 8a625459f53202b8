package cli

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"sluice/internal/backend/nftables/calibration"
	"sluice/internal/base/regular"
	"sluice/internal/cli/command"
	"sluice/internal/lab/calibrate"
	"sluice/internal/lab/figures"
	"sluice/internal/system/host"
)

func newBenchCalibrate() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "calibrate",
		Short: "Measure the costs of this machine's kernel, for estimates and layouts",
		Long: `Measures what single operations cost on this machine: a comparison, a lookup in sets of several
kinds and sizes, a base chain, a limit, a rewrite; and the kernel memory and load time of rules,
sets and elements. It takes about a minute, in network namespaces that are deleted afterwards. The
figures are stored with the kernel, the machine and the day. From then on

  "sluice plan", "explain" and "compile --explain" show the cost of packets in ns on this machine,
  instead of by the built-in figures;
  they decide the layouts of large sets: plan shows where the layout of the running policy would
  change. What runs stays until the next apply or refresh, and a boot loads the layout of the apply.

If the kernel, the processor or its mitigations have changed since, the stored figures are not used,
and every command that would use them says so.

If the machine was too busy, that is reported, with the spread, and nothing is stored; --force
stores anyway. --show prints the stored figures next to the built-in ones, without measuring;
--remove goes back to the built-in ones.

` + reportHelp + `

Exit status: 0 measured and stored, or shown, or removed; 1 too noisy and nothing stored, or --show
finds nothing, or nothing for this machine as it is now; 2 bad use, a damaged file, or a machine
that cannot measure; 130 interrupted, nothing stored.
Environment: SLUICE_STATE_DIR.
Files: calibration.json in /var/lib/sluice (--state-dir).`,
		Example: `  sluice-lab bench calibrate
  sluice-lab bench calibrate --show
  sluice-lab bench calibrate --remove`,
		Args: cobra.NoArgs,
		RunE: runBenchCalibrate,
	}
	flags := cmd.Flags()
	flags.Bool("show", false, "print what is stored, without measuring")
	flags.Bool("remove", false, "remove what is stored")
	flags.Bool("force", false, "store figures of a busy machine too")
	flags.Int("rounds", 21, "measure packets in `N` rounds")
	flags.Int("loads", 3, "measure loads in `N` rounds")
	addReport(cmd)
	cmd.MarkFlagsMutuallyExclusive("show", "remove", "force")
	cmd.MarkFlagsMutuallyExclusive("show", "remove", "rounds")
	cmd.MarkFlagsMutuallyExclusive("show", "remove", "loads")
	return cmd
}

func runBenchCalibrate(cmd *cobra.Command, args []string) error {
	flags := cmd.Flags()
	show, _ := flags.GetBool("show")
	remove, _ := flags.GetBool("remove")
	switch {
	case show:
		return showCalibration(cmd, args)
	case remove:
		return removeCalibration(cmd)
	}
	var o calibrate.Options
	o.Rounds, _ = flags.GetInt("rounds")
	o.Loads, _ = flags.GetInt("loads")
	if o.Rounds < 1 || o.Rounds > 10000 || o.Loads < 1 || o.Loads > 1000 {
		return errors.New("--rounds is 1 to 10000, --loads 1 to 1000")
	}
	ctx, stop := measuring(cmd)
	defer stop()
	r := startReport(cmd, args, calibrationTitle)
	progress := newProgress(cmd)
	o.Say = progress.Say
	m, err := calibrate.Measure(ctx, o)
	progress.Done()
	if err != nil {
		return err
	}
	return keepCalibration(cmd, r, m)
}

// keepCalibration stores what was measured, and reports it.
func keepCalibration(cmd *cobra.Command, r *figures.Report, m *calibrate.Measured) error {
	c := m.Calibration()
	c.Measured, c.Version, c.Machine = r.When, r.Version, r.Machine
	c.Took = time.Since(r.When).Seconds()
	r.Sections, r.Warnings, r.Took = calibrate.Sections(c, m.Series), c.Warnings, c.Took
	file := calibration.File(command.StateDir(cmd))
	stored := "stored in " + file
	if force, _ := cmd.Flags().GetBool("force"); len(m.Noise) > 0 && !force {
		r.Warnings = append(r.Warnings, "not stored")
		return errors.Join(finishReport(cmd, r), command.Found("too noisy to tell: "+strings.Join(m.Noise, "; ")+
			"\nnothing was stored\nhint: try again when the machine is less busy, with more --rounds; --force stores the figures anyway"))
	}
	if err := c.Save(command.StateDir(cmd)); err != nil {
		return err
	}
	if err := finishReport(cmd, r); err != nil {
		return err
	}
	fmt.Fprintln(cmd.ErrOrStderr(), stored)
	return nil
}

const calibrationTitle = "What things cost on this machine"

// showCalibration prints what is stored as the report of its run.
func showCalibration(cmd *cobra.Command, args []string) error {
	state := command.StateDir(cmd)
	c, err := calibration.Load(state)
	const anewOrForget = "\nhint: \"sluice-lab bench calibrate\" measures again, \"sluice-lab bench calibrate --remove\" goes back to the built-in figures"
	var other *calibration.OtherVersionError
	var damaged *calibration.DamagedError
	switch {
	case errors.As(err, &other):
		return command.Found("it is not used: " + err.Error() + anewOrForget)
	case errors.As(err, &damaged):
		return fmt.Errorf("%w%s", err, anewOrForget)
	case regular.Unfit(err):
		return fmt.Errorf("%w\nhint: remove it, or run sluice-lab bench calibrate again", err)
	case errors.Is(err, os.ErrPermission):
		return fmt.Errorf("%w\nhint: sudo sluice-lab bench calibrate --show", err)
	case err != nil:
		return err
	case c == nil:
		return command.Found("nothing is stored: estimates and layouts use the built-in figures\nhint: sluice-lab bench calibrate measures this machine")
	}
	r := startReport(cmd, args, calibrationTitle)
	r.Version, r.When, r.Took, r.Machine, r.Warnings = c.Version, c.Measured, c.Took, c.Machine, c.Warnings
	r.Sections = calibrate.Sections(c, nil)
	unfit := c.Unfit(host.ThisMachine())
	if unfit != "" {
		r.Warnings = append(r.Warnings, "not used: "+unfit)
	}
	if err := finishReport(cmd, r); err != nil {
		return err
	}
	if unfit != "" {
		return command.Found("it is not used: " + unfit + "\nhint: sluice-lab bench calibrate measures again")
	}
	return nil
}

func removeCalibration(cmd *cobra.Command) error {
	state := command.StateDir(cmd)
	was, err := calibration.Remove(state)
	if err != nil {
		return err
	}
	if command.JSON(cmd) {
		return command.PrintJSON(cmd.OutOrStdout(), struct {
			Removed bool `json:"removed"`
		}{was})
	}
	text := "nothing was stored"
	if was {
		text = "removed: estimates and layouts use the built-in figures"
	}
	fmt.Fprintln(cmd.OutOrStdout(), text)
	return nil
}
