package matrix

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"sluice/internal/lab/figures"
	"sluice/internal/lab/kernelbench"
	"sluice/internal/lab/kernels"
)

// Paths in the guest.
const (
	guestState  = "/var/lib/sluice"
	guestReport = "/tmp/report.json"
	guestTree   = "/src"
)

// prepared is what every guest that measures has, made once.
type prepared struct{ files map[string]string }

// prepare builds what runs inside and reads the country data: in the guest that
// would take minutes.
func (l *lab) prepare(ctx context.Context) (prepared, error) {
	self := filepath.Join(l.work, "sluice-lab")
	if _, err := tool(ctx, "env", "CGO_ENABLED=0", "go", "build", "-trimpath", "-ldflags=-s -w", "-o", self, "./cmd/sluice-lab"); err != nil {
		return prepared{}, err
	}
	data, err := filepath.Glob(filepath.Join(l.Data, "dbip-country-ipv?.csv"))
	if err != nil || len(data) == 0 {
		return prepared{}, fmt.Errorf("no country data in %s\nhint: scripts/fetch-geo-data fetches them", l.Data)
	}
	state := filepath.Join(l.work, "state")
	args := []string{"geo", "update", "--state-dir", state}
	for _, f := range data {
		args = append(args, "--from", f)
	}
	if _, err := tool(ctx, l.binary, args...); err != nil {
		return prepared{}, err
	}
	return prepared{map[string]string{"/usr/bin/sluice-lab": self, guestState: state, path.Join(guestTree, kernelbench.Examples): kernelbench.Examples}}, nil
}

// parts are the sections in as many guests as run at a time, since a guest that counts
// has one processor; the examples one by one.
func (l *lab) parts() ([][]string, error) {
	var names []string
	sections := l.Sections
	if len(sections) == 0 {
		sections = kernelbench.Sections()
	}
	for _, s := range sections {
		if s != kernelbench.Examples {
			names = append(names, s)
			continue
		}
		examples, err := kernelbench.ExampleNames(kernelbench.Examples)
		if err != nil {
			return nil, err
		}
		for _, e := range examples {
			names = append(names, path.Join(kernelbench.Examples, e))
		}
	}
	if len(l.found) > 1 || len(names) == 1 {
		return [][]string{names}, nil
	}
	half := len(names) / 2
	return [][]string{names[:half], names[half:]}, nil
}

// measure runs the measurement in one kernel.
func (l *lab) measure(ctx context.Context, k kernels.Kernel, p prepared) (*figures.Report, error) {
	parts, err := l.parts()
	if err != nil {
		return nil, err
	}
	reports, failed := make([]*figures.Report, len(parts)), make([]error, len(parts))
	var wait sync.WaitGroup
	for i, part := range parts {
		wait.Go(func() {
			out := l.writer(k)
			reports[i], failed[i] = l.measurePart(ctx, k, p, part, out)
			out.end()
		})
	}
	wait.Wait()
	if err := errors.Join(failed...); err != nil {
		return nil, err
	}
	return kernelbench.Merge(reports), nil
}

// measurePart measures sections in a guest and reads what it found.
func (l *lab) measurePart(ctx context.Context, k kernels.Kernel, p prepared, sections []string, out io.Writer) (*figures.Report, error) {
	file := filepath.Join(l.work, fmt.Sprintf("report-%s-%d.json", k.Release, time.Now().UnixNano())) //nolint:forbidigo // a name, not a seed
	command := fmt.Sprintf("sluice-lab kernels inside --modules /lib/modules --state-dir %s --save %s --sections %s", guestState, guestReport, quote(strings.Join(sections, ",")))
	if l.Hold != "" {
		command += " --alone"
	}
	if l.Plant != "" {
		command += " --plant " + quote(l.Plant)
	}
	err := k.Run(ctx, kernels.Options{
		Binary: l.binary, Files: p.files, Directory: guestTree, Counted: true, Memory: 3072, Command: command, Out: out, Longest: time.Hour,
		Results: map[string]string{guestReport: file},
	})
	if err != nil {
		return nil, err
	}
	return figures.Load(file)
}

// ErrDiffers says that two runs of one kernel do not agree.
var ErrDiffers = errors.New("two runs do not agree")

// agreement is how much two runs may differ by.
const agreement = 0.02

// agree compares two runs of one kernel.
func agree(w io.Writer, first, second *figures.Report) error {
	a, err := kernelbench.Agree(first, second)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrDiffers, err)
	}
	fmt.Fprintf(w, "two runs: %d figures, the largest difference is %.2f %% (%s)\n", a.Figures, 100*a.Worst, a.Which)
	if a.Worst > agreement {
		return fmt.Errorf("%w: %s differs by %.2f %%", ErrDiffers, a.Which, 100*a.Worst)
	}
	return nil
}

// ErrCostlier says that packets pay more than the record has.
var ErrCostlier = errors.New("packets have become costlier")

// keep writes the record of a run, or holds the run to one.
func (l *lab) keep(r *figures.Report) error {
	run := kernelbench.RecordOf(r)
	if l.Record != "" {
		if err := run.Keep(l.Record); err != nil {
			return err
		}
	}
	if l.Hold == "" {
		return nil
	}
	record, err := kernelbench.LoadRecord(l.Hold)
	if err != nil {
		return err
	}
	return hold(l.Out, record, run)
}

// hold says which packets have become costlier, and how to have that on record.
func hold(w io.Writer, record, run *kernelbench.Record) error {
	costlier, strangers := record.Hold(run)
	for _, d := range costlier {
		fmt.Fprintln(w, "costlier:", d)
	}
	for _, s := range strangers {
		fmt.Fprintln(w, "on one side alone:", s)
	}
	if len(costlier)+len(strangers) == 0 {
		fmt.Fprintf(w, "%d kinds of packets are no costlier than on %s\n", len(run.Packets), record.Date)
		return nil
	}
	text := fmt.Sprintf("%d of %d, and %d are on one side alone", len(costlier), len(run.Packets), len(strangers))
	if record.Kernel != run.Kernel {
		text += fmt.Sprintf("; the record is of %s, this kernel is %s", record.Kernel, run.Kernel)
	}
	return fmt.Errorf("%w: %s\nhint: where that is meant, \"make figures\" measures the record and its tables again", ErrCostlier, text)
}
