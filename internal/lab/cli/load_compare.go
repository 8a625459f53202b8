package cli

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"runtime/debug"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"sluice/internal/cli/command"
	"sluice/internal/lab/figures"
	"sluice/internal/lab/load"
)

// runLoadCompare compares two saved loads, or two servers.
func runLoadCompare(ctx context.Context, cmd *cobra.Command, args []string) error {
	least, _ := cmd.Flags().GetFloat64("least")
	if least < 0 || least >= 1 {
		return errors.New("--least is a part of the old figure, 0 up to 1, such as 0.02")
	}
	urls := 0
	for _, a := range args {
		if strings.Contains(a, "://") {
			urls++
		}
	}
	var (
		r    *figures.Report
		a, b load.Side
		none error // nothing was measured
		err  error
	)
	switch urls {
	case 0:
		r = startReport(cmd, args, "Load, "+args[0]+" against "+args[1])
		a, b, err = savedSides(args)
	case 2:
		r = startReport(cmd, args, "Load on "+args[0]+" and "+args[1])
		a, b, none, err = measuredSides(ctx, cmd, args, r)
	default:
		return errors.New("--compare needs two URLs or two files, not one of each")
	}
	if err != nil {
		return err
	}
	found, err := load.Compare(a, b, least)
	if err != nil {
		return err
	}
	if last := len(found.Sections) - 1; urls == 0 {
		found.Sections[last].Text = append(found.Sections[last].Text,
			"Two runs, one after the other: anything else that differed between them is part of the difference. Two URLs are loaded in turn.")
	}
	r.Sections = append(r.Sections, found.Sections...)
	r.Warnings = append(r.Warnings, found.Warnings...)
	if err := finishReport(cmd, r); err != nil {
		return err
	}
	printLoadCourses(cmd, r)
	switch {
	case ctx.Err() != nil:
		return context.Canceled
	case none != nil:
		return none
	case found.Worse:
		return command.ErrFound
	}
	return nil
}

// savedSides are called by their files' names where these differ.
func savedSides(files []string) (a, b load.Side, err error) {
	sides := [2]*load.Side{&a, &b}
	for i, file := range files {
		if sides[i].Report, err = figures.Load(file); err != nil {
			return a, b, err
		}
		sides[i].Name = strings.TrimSuffix(filepath.Base(file), ".json")
	}
	if a.Name == b.Name {
		a.Name, b.Name = files[0], files[1]
	}
	if a.Name == b.Name {
		a.Name, b.Name = "A", "B"
	}
	return a, b, nil
}

// measuredSides asks two URLs in turn. The error none says that neither answered.
func measuredSides(ctx context.Context, cmd *cobra.Command, urls []string, r *figures.Report) (a, b load.Side, none, err error) {
	for _, name := range []string{"every", "watch-host", "netns-of", "requests"} {
		if cmd.Flags().Changed(name) {
			return a, b, nil, fmt.Errorf("--%s is for one load: two are measured in rounds", name)
		}
	}
	o, err := loadOptions(cmd)
	if err != nil {
		return a, b, nil, err
	}
	defer debug.SetGCPercent(debug.SetGCPercent(loadGarbage))
	progress := newProgress(cmd)
	defer progress.Done()
	oa, ob := o, o
	oa.URL, ob.URL = urls[0], urls[1]
	ra, rb, err := load.Turns(ctx, oa, ob, func(over, of int, last *load.Result) {
		progress.Say("round %d of %d: %s requests/s, 99 %% below %s, from %s", over, of,
			figures.Number(last.Rate()), load.TimeText(time.Duration(last.Latency.ValueAtPercentile(99))), last.Options.URL)
	})
	if err != nil {
		return a, b, nil, err
	}
	if ra.Noisy() {
		r.Warnings = append(r.Warnings, "the rounds of A differ among themselves by more than chance: the machine is too noisy for small differences, give --for more time")
	}
	side := func(name string, result *load.Result) load.Side {
		report := *r
		report.Sections = []figures.Section{result.Section()}
		for _, w := range result.Warnings() {
			r.Warnings = append(r.Warnings, name+": "+w)
		}
		return load.Side{Name: name, Report: &report}
	}
	return side("A", ra), side("B", rb), unanswered(ra, rb), nil
}
