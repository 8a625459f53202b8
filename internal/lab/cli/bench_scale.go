package cli

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"sluice/internal/cli/command"
	"sluice/internal/lab/packetbench/against"
	"sluice/internal/lab/packetbench/scale"
)

// scaleHelp is part of the help of bench packet.
const scaleHelp = `With --scale it makes policies of its own, of that many prefixes and then of that many rules, and
reports how the cost of a packet, the load time, and the memory of the kernel and of the loading
programs grow. It compares with the peers of --against, or a usual choice of them. A peer that would
take longer than --patience for a load, or for one round of packets, judged by the step before, is
skipped from there on, and listed.`

// alone are the flags that are about a policy of the user's.
var alone = []string{"kinds", "family", "for", "packets", "sources", "flows", "inject"}

func addScale(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringSlice("scale", nil, "measure how costs grow, with these `SIZES`: 1k,10k,100k,1M")
	flags.StringSlice("scale-of", nil, "grow `WHAT`: prefixes or rules (both by default)")
	command.Must(cmd.RegisterFlagCompletionFunc("scale-of", command.Words("prefixes", "rules")))
	for _, name := range alone {
		cmd.MarkFlagsMutuallyExclusive("scale", name)
	}
}

func runBenchScale(cmd *cobra.Command, args []string) error {
	flags := cmd.Flags()
	if len(args) > 0 {
		return fmt.Errorf("--scale makes policies of its own, and takes no file: %s", args[0])
	}
	o := scale.Options{StateDir: command.StateDir(cmd), Patience: patienceOf(cmd), Dimensions: scale.Dimensions}
	sizes, _ := flags.GetStringSlice("scale")
	var err error
	if o.Steps, err = sizesOf(sizes); err != nil {
		return err
	}
	if of, _ := flags.GetStringSlice("scale-of"); len(of) > 0 {
		o.Dimensions = nil
		for _, name := range of {
			at := slices.IndexFunc(scale.Dimensions, func(d scale.Dimension) bool { return d.Name == name })
			if at < 0 {
				return fmt.Errorf("--scale-of must be prefixes or rules, not %q", name)
			}
			o.Dimensions = append(o.Dimensions, scale.Dimensions[at])
		}
	}
	names, _ := flags.GetStringSlice("against")
	if len(names) == 0 {
		names = scale.Usual
	}
	var missing []string
	if o.Peers, missing, err = against.Peers(names); err != nil {
		return err
	}
	for _, p := range o.Peers {
		if p.File {
			return fmt.Errorf("--scale makes policies of its own, and %s says another", p.Group)
		}
	}
	if flags.Changed("rounds") {
		o.Rounds, _ = flags.GetInt("rounds")
	}
	o.Seed, _ = flags.GetUint64("seed")
	if o.Binary, err = theSluice(); err != nil {
		return err
	}
	ctx, stop := measuring(cmd)
	defer stop()
	begun := startReport(cmd, args, "")
	progress := newProgress(cmd)
	o.Progress = func(what string) { progress.Say("%s", what) }
	r, err := scale.Run(ctx, o)
	progress.Done()
	if r == nil {
		return err
	}
	r.Command, r.Version = begun.Command, begun.Version
	r.Warnings = append(missing, r.Warnings...)
	if err != nil {
		r.Warnings = append(r.Warnings, "interrupted: these are the steps so far")
	}
	return errors.Join(err, finishReport(cmd, r))
}

// mostOfScale is the largest size: so many networks have room in IPv4.
const mostOfScale = 3_000_000

// sizesOf reads sizes such as 10k and 1M, and sorts them.
func sizesOf(texts []string) ([]int, error) {
	var out []int
	for _, text := range texts {
		digits, unit := text, 1
		switch {
		case strings.HasSuffix(text, "k"):
			digits, unit = strings.TrimSuffix(text, "k"), 1000
		case strings.HasSuffix(text, "M"):
			digits, unit = strings.TrimSuffix(text, "M"), 1_000_000
		}
		n, err := strconv.Atoi(digits)
		if err != nil || n < 1 || n > mostOfScale/unit || n*unit < 10 {
			return nil, fmt.Errorf("--scale: %q is not a size from 10 to 3M\nhint: write 1k,10k,100k,1M", text)
		}
		out = append(out, n*unit)
	}
	slices.Sort(out)
	return slices.Compact(out), nil
}
