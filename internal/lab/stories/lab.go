package stories

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"sluice/internal/lab/figures"
	"sluice/internal/lab/kernels"
	"sluice/internal/language/geo"
)

// RunInLab plays a story in an emulated machine of the kernel lab, where time is
// counted in instructions: what a request costs is the same from run to run. The
// machine is its own, so a story may set what belongs to the whole machine. The kernel
// is one that kernels.Options takes.
func RunInLab(ctx context.Context, story Story, kernel string, o Options) (*figures.Report, error) {
	begun := time.Now()
	dir, err := os.MkdirTemp("", fmt.Sprintf("%s%d-", folderPrefix, os.Getpid()))
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	const there = "/tmp/report.json"
	here := filepath.Join(dir, "report.json")
	args := []string{"sluice-lab", "story", fmt.Sprint(story.Number), "--in-lab", "--save", there, "--seed", fmt.Sprint(o.Seed)}
	if o.Short {
		args = append(args, "--short")
	}
	files := map[string]string{}
	maps.Copy(files, story.Files)
	if data := geo.CurrentFile(o.Countries); exists(data) {
		files[geo.CurrentFile(stateInLab)] = data
		args = append(args, "--state-dir", stateInLab)
	}
	out := &lines{say: o.say}
	err = kernels.Run(ctx, kernels.Options{
		Kernel: kernel, Binary: o.Binary, Programs: append(slices.Clip(story.Programs), o.Lab), Files: files, Counted: true,
		// The table of the report stays in there: it is printed here.
		Directory: "/tmp", Command: strings.Join(args, " ") + " >/dev/null",
		Out: out, Results: map[string]string{there: here}, Say: o.say, Longest: longestInLab,
	})
	// Goals that were not reached end the command with status 1, and are in the report.
	var exit *kernels.ExitError
	if err != nil && (!errors.As(err, &exit) || exit.Status != 1) {
		return nil, fmt.Errorf("%w\n%s", err, strings.Join(out.last, "\n"))
	}
	report, err := figures.Load(here)
	if err != nil {
		return nil, err
	}
	// The clock in there counts instructions.
	report.Command, report.Version, report.When, report.Took = o.Command, o.Version, begun.Truncate(time.Second), time.Since(begun).Seconds()
	return report, nil
}

// stateInLab is where the emulated machine has the country data of this one.
const stateInLab = "/var/lib/sluice"

func exists(file string) bool {
	_, err := os.Stat(file)
	return err == nil
}

// longestInLab is for a machine with other work: a story takes some minutes alone.
const longestInLab = 2 * time.Hour

func (o *Options) say(line string) {
	if o.Say != nil {
		o.Say(line)
	}
}

// lines hands on what the guest writes, line by line, and keeps the last ones for
// an error.
type lines struct {
	say  func(string)
	part string
	last []string
}

const keptLines = 20

func (l *lines) Write(p []byte) (int, error) {
	l.part += string(p)
	for {
		line, rest, whole := strings.Cut(l.part, "\n")
		if !whole {
			return len(p), nil
		}
		l.part = rest
		line = strings.TrimRight(line, "\r")
		l.say(line)
		if l.last = append(l.last, line); len(l.last) > keptLines {
			l.last = l.last[1:]
		}
	}
}
