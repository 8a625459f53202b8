package main

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

	"sluice/internal/figures"
	"sluice/internal/kernellab"
)

// all does what the options ask of every kernel.
func all(ctx context.Context, o options) error {
	work, err := os.MkdirTemp("", "sluice-kernels-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(work) }()
	l := &lab{options: o, work: work, out: os.Stdout}
	if l.binary, err = buildSluice(ctx, work); err != nil {
		return err
	}
	switch {
	case o.command != "":
		return l.each(ctx, l.oneCommand)
	case o.core, o.run != "", o.noTable:
		return l.each(ctx, l.tests)
	}
	return l.everything(ctx)
}

// everything is the tests and the measurement of every kernel, in one after the other
// of the same machine's processors.
func (l *lab) everything(ctx context.Context) error {
	begin := time.Now()
	p, err := l.prepare(ctx)
	if err != nil {
		return err
	}
	reports := make([]*figures.Report, len(l.kernels))
	err = l.each(ctx, func(ctx context.Context, at int, k kernellab.Kernel, out io.Writer) error {
		if !l.noTests {
			if err := l.tests(ctx, at, k, out); err != nil {
				return err
			}
		}
		var err error
		if reports[at], err = l.measure(ctx, k, p, out); err != nil || !l.twice {
			return err
		}
		second, err := l.measure(ctx, k, p, out)
		if err != nil {
			return err
		}
		return agree(out, reports[at], second)
	})
	measured := slices.DeleteFunc(reports, func(r *figures.Report) bool { return r == nil })
	if len(measured) == 0 {
		return err
	}
	return errors.Join(err, l.tell(measured, begin))
}

// lab is one run of this command.
type lab struct {
	options
	work string

	mu  sync.Mutex
	out io.Writer
}

// each runs f for every kernel, two at a time: a guest that counts uses one
// processor.
func (l *lab) each(ctx context.Context, f func(context.Context, int, kernellab.Kernel, io.Writer) error) error {
	slots := make(chan struct{}, 2)
	failed := make([]error, len(l.kernels))
	var wait sync.WaitGroup
	for i, version := range l.kernels {
		k, err := kernellab.Find(ctx, l.cache, version, func(line string) { fmt.Fprintln(os.Stderr, "kernels: "+line) })
		if err != nil {
			return err
		}
		wait.Go(func() {
			slots <- struct{}{}
			defer func() { <-slots }()
			begin := time.Now()
			failed[i] = f(ctx, i, k, l.writer(version))
			fmt.Fprintf(os.Stderr, "kernels: %s: %.0f s\n", k.Release, time.Since(begin).Seconds())
		})
	}
	wait.Wait()
	return errors.Join(failed...)
}

// writer writes whole lines, with the kernel before each where there are several.
func (l *lab) writer(version string) io.Writer {
	if len(l.kernels) == 1 {
		return l.out
	}
	return &lines{lab: l, start: fmt.Sprintf("%-6s ", version)}
}

type lines struct {
	*lab
	start string
	rest  string
}

func (w *lines) Write(data []byte) (int, error) {
	text := w.rest + string(data)
	end := strings.LastIndexByte(text, '\n') + 1
	w.rest = text[end:]
	w.mu.Lock()
	defer w.mu.Unlock()
	for line := range strings.Lines(text[:end]) {
		if _, err := io.WriteString(w.out, w.start+line); err != nil {
			return 0, err
		}
	}
	return len(data), nil
}

// ciEnvironment makes a test that skips fail: these kernels have what tests ask of
// one.
var ciEnvironment = []string{"CI=true"}

// packages are what -run names, or all.
func (l *lab) packages(ctx context.Context) ([]testPackage, error) {
	patterns := strings.Fields(l.run)
	if len(patterns) == 0 {
		patterns = []string{"./..."}
	}
	return kernelPackages(ctx, patterns)
}

// tests runs those that the options name.
func (l *lab) tests(ctx context.Context, _ int, k kernellab.Kernel, out io.Writer) error {
	packages, err := l.packages(ctx)
	if err != nil {
		return err
	}
	files, err := l.testFiles(ctx, packages)
	if err != nil {
		return err
	}
	tests := l.options.tests
	switch {
	case tests != "":
	case l.run != "":
		tests = "."
	default:
		tests = coreTests
	}
	return k.Run(ctx, kernellab.Options{
		Binary: l.binary, Programs: installed(testPrograms), Files: files, Env: ciEnvironment,
		Command: testCommand(packages, tests), Out: out, Counted: true,
	})
}

// testFiles builds the tests once, for all kernels.
func (l *lab) testFiles(ctx context.Context, packages []testPackage) (files map[string]string, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return buildTests(ctx, l.work, packages)
}

// oneCommand runs what -command says.
func (l *lab) oneCommand(ctx context.Context, _ int, k kernellab.Kernel, out io.Writer) error {
	files := map[string]string{}
	if l.run != "" {
		packages, err := l.packages(ctx)
		if err != nil {
			return err
		}
		if files, err = l.testFiles(ctx, packages); err != nil {
			return err
		}
	}
	return k.Run(ctx, kernellab.Options{
		Binary: l.binary, Programs: installed(testPrograms), Files: files, Env: ciEnvironment, Command: l.command, Out: out,
	})
}
