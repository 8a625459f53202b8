package cli

import (
	"fmt"
	"os"
	"slices"
	"strconv"

	"github.com/spf13/cobra"

	"sluice/internal/base/english"
	"sluice/internal/lab/figures"
	"sluice/internal/lab/fleetbench"
)

// mostAgents is how many can be at one address of the lab's network.
const mostAgents = 20_000

func newBenchFleet() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "fleet [AGENTS]...",
		Short: "Measure what a fleet's controller and agents need",
		Long: fmt.Sprintf(`Runs a controller with the given number of agents (1000), and measures how long a change takes from
its publication until the controller knows it is proved on the hosts, what memory and processor time
the controller needs for that, at rest and while 50 people have pages of the fleet open, how long all
agents take to reconnect to a new controller, what the fleet adds to an agent, and how long a guest's
label takes until it is proved. With several numbers it measures a fleet of each size.

Up to %d hosts are real: a network namespace, the agent, rules in the kernel. The others are
simulated in one process: enrolled, with a certificate and a stream each; they fetch the bundle,
verify its signatures and report as agents do, and wait as long as the real ones took to compile,
load, prove and confirm one after the other. Controller, agents and simulated hosts are a control
group each.

%s

Environment: TMPDIR, the directory of the controller's database.
Exit status: 0 every limit is kept, 1 one is not, 2 bad use, or a machine that cannot measure, 130
interrupted.`, fleetbench.MostReal, reportHelp),
		Example: `  sluice-lab bench fleet --short
  sluice-lab bench fleet 10 100 1000 4000 --save fleet.json`,
		Args: func(_ *cobra.Command, args []string) error {
			_, err := agentsOf(args)
			return err
		},
		RunE: runBenchFleet,
	}
	flags := cmd.Flags()
	flags.Bool("short", false, "fewer changes and a shorter rest: a rough answer")
	flags.StringSlice("only", nil, "measure only these `PARTS`, separated by commas: "+english.List(fleetbench.Parts))
	flags.Uint64("seed", 1, "`SEED` of the delays that simulated hosts draw")
	flags.String("profile", "", "write a processor profile of the simulated hosts to `FILE`, for go tool pprof")
	addReport(cmd)
	cmd.AddCommand(newSimulatedHosts())
	return cmd
}

// newSimulatedHosts is the process of the hosts that have no kernel.
func newSimulatedHosts() *cobra.Command {
	return &cobra.Command{
		Use:    "simulated",
		Short:  "Simulate hosts of a fleet",
		Long:   "Started by bench fleet; reads JSON, and writes JSON.\n\nExit status: 0 done, 2 it failed.",
		Args:   cobra.NoArgs,
		Hidden: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return fleetbench.Simulate(cmd.Context(), cmd.InOrStdin(), cmd.OutOrStdout())
		},
	}
}

// agentsOf are the sizes of fleets.
func agentsOf(args []string) ([]int, error) {
	if len(args) == 0 {
		return []int{1000}, nil
	}
	var all []int
	for _, text := range args {
		n, err := strconv.Atoi(text)
		if err != nil || n < 1 || n > mostAgents {
			return nil, fmt.Errorf("%q is not a number of agents from 1 to %d", text, mostAgents)
		}
		all = append(all, n)
	}
	slices.Sort(all)
	return slices.Compact(all), nil
}

func runBenchFleet(cmd *cobra.Command, args []string) error {
	ctx, stop := measuring(cmd)
	defer stop()
	o := fleetbench.Options{}
	o.Short, _ = cmd.Flags().GetBool("short")
	o.Only, _ = cmd.Flags().GetStringSlice("only")
	for _, part := range o.Only {
		if !slices.Contains(fleetbench.Parts, part) {
			return fmt.Errorf("--only has %q, and may have %s", part, english.List(fleetbench.Parts))
		}
	}
	o.Seed, _ = cmd.Flags().GetUint64("seed")
	o.Profile, _ = cmd.Flags().GetString("profile")
	if err := fleetPrograms(&o); err != nil {
		return err
	}
	var err error
	if o.Agents, err = agentsOf(args); err != nil {
		return err
	}
	r := startReport(cmd, args, "")
	progress := newProgress(cmd)
	o.Progress = progress.Say
	failed := fleetbench.Run(ctx, o, r)
	progress.Done()
	if failed != nil {
		if slices.ContainsFunc(r.Sections, func(s figures.Section) bool { return len(s.Figures) > 0 }) {
			_ = finishReport(cmd, r) // that it failed is what is said
		}
		return failed
	}
	return finishReport(cmd, r)
}

// fleetPrograms finds what a fleet is made of.
func fleetPrograms(o *fleetbench.Options) (err error) {
	if o.Sluice, err = theSluice(); err != nil {
		return err
	}
	if o.Controller, err = theProgram("sluice-controller"); err != nil {
		return err
	}
	self, err := os.Executable()
	if err != nil {
		return fmt.Errorf("find this program: %w", err)
	}
	o.Simulator = []string{self, "bench", "fleet", "simulated"}
	return nil
}
