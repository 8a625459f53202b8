package matrix

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"sluice/internal/lab/figures"
	"sluice/internal/lab/kernelbench"
	"sluice/internal/lab/kernels"
)

// all does what the options ask of every kernel.
func all(ctx context.Context, o Options) (*figures.Report, error) {
	work, err := os.MkdirTemp("", "sluice-kernels-")
	if err != nil {
		return nil, err
	}
	defer func() { _ = os.RemoveAll(work) }()
	l := &lab{Options: o, work: work}
	// found first: a kernel that cannot be had is said at once
	for _, version := range o.Kernels {
		k, err := kernels.Find(ctx, o.Cache, version, say)
		if err != nil {
			return nil, err
		}
		if slices.Contains(l.found, k) {
			say(fmt.Sprintf("%s is %s, which runs already", version, k.Release))
			continue
		}
		l.found = append(l.found, k)
	}
	if l.binary, err = buildSluice(ctx, work); err != nil {
		return nil, err
	}
	if err := l.build(ctx); err != nil {
		return nil, err
	}
	switch {
	case o.Command != "":
		return nil, l.each(ctx, l.oneCommand)
	case o.Core, o.Packages != "", o.NoTable:
		return nil, l.each(ctx, l.runTests)
	}
	return l.everything(ctx)
}

func say(line string) { fmt.Fprintln(os.Stderr, "kernels: "+line) }

// everything is the tests and the measurement of every kernel, in one after the other
// of the same machine's processors.
func (l *lab) everything(ctx context.Context) (*figures.Report, error) {
	begin := time.Now()
	p, err := l.prepare(ctx)
	if err != nil {
		return nil, err
	}
	reports := make([]*figures.Report, len(l.found))
	err = l.each(ctx, func(ctx context.Context, at int, k kernels.Kernel, out io.Writer) error {
		if !l.NoTests {
			if err := l.runTests(ctx, at, k, out); err != nil {
				return err
			}
		}
		var err error
		if reports[at], err = l.measure(ctx, k, p); err != nil || !l.Twice {
			return err
		}
		second, err := l.measure(ctx, k, p)
		if err != nil {
			return err
		}
		return agree(out, reports[at], second)
	})
	measured := slices.DeleteFunc(reports, func(r *figures.Report) bool { return r == nil })
	if len(measured) == 0 {
		return nil, err
	}
	r := kernelbench.Merge(measured)
	r.Command, r.When, r.Took = l.asked(), begin.Truncate(time.Second), time.Since(begin).Seconds()
	if err == nil {
		err = l.keep(r)
	}
	return r, err
}

// lab is one run of this command.
type lab struct {
	Options
	work   string
	binary string // sluice, of the tree
	found  []kernels.Kernel

	packages []testPackage
	files    map[string]string // of the tests, in the guest

	mu sync.Mutex
}

// build builds the tests that run in any of the kernels.
func (l *lab) build(ctx context.Context) error {
	if l.NoTests || l.Command != "" && l.Packages == "" {
		return nil
	}
	patterns, expression := strings.Fields(l.Packages), l.Options.Tests
	switch {
	case expression != "":
	case l.Packages != "":
		expression = "."
	default:
		expression = coreTests
	}
	if len(patterns) == 0 {
		patterns = []string{"./..."}
	}
	var err error
	if l.packages, err = kernelPackages(ctx, patterns, expression); err != nil {
		return err
	}
	l.files, err = buildTests(ctx, l.work, l.packages)
	return err
}

// each runs f for every kernel, two at a time: a guest that counts uses one
// processor.
func (l *lab) each(ctx context.Context, f func(context.Context, int, kernels.Kernel, io.Writer) error) error {
	slots := make(chan struct{}, 2)
	failed := make([]error, len(l.found))
	var wait sync.WaitGroup
	for i, k := range l.found {
		wait.Go(func() {
			slots <- struct{}{}
			defer func() { <-slots }()
			if failed[i] = ctx.Err(); failed[i] != nil {
				return
			}
			begin := time.Now()
			out := l.writer(k)
			failed[i] = f(ctx, i, k, out)
			out.end()
			say(fmt.Sprintf("%s: %.0f s", k.Release, time.Since(begin).Seconds()))
		})
	}
	wait.Wait()
	return errors.Join(failed...)
}

// writer writes whole lines, with the kernel before each where there are several.
func (l *lab) writer(k kernels.Kernel) *lines {
	if len(l.found) == 1 {
		return &lines{lab: l}
	}
	return &lines{lab: l, start: fmt.Sprintf("%-5s ", kernelbench.Short(k.Release))}
}

// lines is where one guest writes.
type lines struct {
	*lab
	start string
	rest  string
}

// end writes a last line that has no end of its own.
func (w *lines) end() {
	if w.rest != "" {
		_, _ = w.Write([]byte("\n"))
	}
}

func (w *lines) Write(data []byte) (int, error) {
	text := w.rest + string(data)
	end := strings.LastIndexByte(text, '\n') + 1
	w.rest = text[end:]
	w.mu.Lock()
	defer w.mu.Unlock()
	for line := range strings.Lines(text[:end]) {
		if _, err := io.WriteString(w.Out, w.start+line); err != nil {
			return 0, err
		}
	}
	return len(data), nil
}

// ciEnvironment makes a test that skips fail: these kernels have what tests ask of
// one.
var ciEnvironment = []string{"CI=true"}

// runTests runs those that the options name: in two guests where there is one kernel
// alone, since a guest that counts has one processor.
func (l *lab) runTests(ctx context.Context, _ int, k kernels.Kernel, _ io.Writer) error {
	guests := 1
	if len(l.found) == 1 {
		guests = 2
	}
	_, subtests, _ := strings.Cut(l.Options.Tests, "/")
	if subtests != "" {
		subtests = "/" + subtests
	}
	shares := share(l.packages, guests)
	failed := make([]error, len(shares))
	var wait sync.WaitGroup
	for i, s := range shares {
		wait.Go(func() {
			out := l.writer(k)
			failed[i] = k.Run(ctx, kernels.Options{
				Binary: l.binary, Programs: installed(testPrograms), Files: l.files, Env: ciEnvironment,
				Command: testCommand("/src", s, subtests), Out: out, Counted: true,
			})
			out.end()
		})
	}
	wait.Wait()
	return errors.Join(failed...)
}

// oneCommand runs the command.
func (l *lab) oneCommand(ctx context.Context, _ int, k kernels.Kernel, out io.Writer) error {
	return k.Run(ctx, kernels.Options{
		Binary: l.binary, Programs: installed(testPrograms), Files: l.files, Env: ciEnvironment, Command: l.Command, Out: out,
	})
}
