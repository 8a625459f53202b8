// Command main runs the long form of package stress; `make stress` calls it through
// scripts/stress. Exit status: 0 every count is what it has to be, 1 one is not,
// 2 not counted, 130 interrupted.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"regexp"
	"syscall"

	"golang.org/x/term"

	"sluice/internal/lab/stress"
)

func main() {
	if status, asked := stress.HandIfAsked(); asked {
		os.Exit(status)
	}
	os.Exit(run())
}

func run() int {
	r := stress.Run{Out: os.Stdout}
	flag.StringVar(&r.Binary, "sluice", "bin/sluice", "the `BINARY` that some of the applies are made by")
	flag.StringVar(&r.Data, "data", ".cache/geo/dbip-country", "`DIR` of the country data")
	flag.Uint64Var(&r.Seed, "seed", 1, "`SEED` of the sources that are drawn")
	flag.BoolVar(&r.Short, "short", false, "a tenth of the applies and refreshes")
	flag.DurationVar(&r.Enough, "enough", 0, "end a part after so much `TIME`, and count what was made by then")
	file := flag.String("json", "", "write the counts to `FILE` too")
	list := flag.Bool("list", false, "print the parts and stop")
	var chosen *regexp.Regexp
	flag.Func("run", "only the parts whose name matches `REGEXP`", func(text string) (err error) {
		chosen, err = regexp.Compile(text)
		return err
	})
	flag.Parse()
	if flag.NArg() > 0 {
		fmt.Fprintf(os.Stderr, "error: unexpected argument %q\nhint: -run chooses parts\n", flag.Arg(0))
		return 2
	}
	if *list {
		stress.List(os.Stdout)
		return 0
	}
	if term.IsTerminal(int(os.Stderr.Fd())) {
		r.Progress = func(what string, done, of int) { fmt.Fprintf(os.Stderr, "\r\x1b[K%s %d of %d\r", what, done, of) }
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	err := long(ctx, &r, chosen, *file)
	switch {
	case ctx.Err() != nil:
		fmt.Fprintln(os.Stderr, "interrupted, everything is removed")
		return 130
	case errors.Is(err, stress.ErrWrong):
		fmt.Fprintln(os.Stderr, "error:", err)
		return 1
	case err != nil:
		fmt.Fprintln(os.Stderr, "error:", err)
		return 2
	}
	return 0
}

func long(ctx context.Context, r *stress.Run, chosen *regexp.Regexp, file string) (err error) {
	if r.Binary, err = filepath.Abs(r.Binary); err != nil {
		return err
	}
	if r.Dir, err = os.MkdirTemp("", "sluice-stress-"); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(r.Dir)) }()
	return r.Long(ctx, chosen, file)
}
