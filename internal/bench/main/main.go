// Command main runs the benchmarks of package bench; `make bench` calls it through
// scripts/bench. Exit status: 0 measured, whatever the figures are, 2 not measured,
// 130 interrupted.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"regexp"
	"syscall"

	"sluice/internal/bench"
)

func main() { os.Exit(run()) }

func run() int {
	o := bench.Options{Out: os.Stdout}
	flag.StringVar(&o.Binary, "sluice", "bin/sluice", "the `BINARY` to measure")
	flag.StringVar(&o.Data, "data", ".cache/geo/dbip-country", "`DIR` of the country data")
	flag.BoolVar(&o.Short, "short", false, "fewer rounds: a rough answer in about two minutes")
	flag.Uint64Var(&o.Seed, "seed", 1, "`SEED` of the sources that are drawn")
	flag.StringVar(&o.JSON, "json", "", "write the figures to `FILE` too")
	list := flag.Bool("list", false, "print the sections and stop")
	flag.Func("run", "only the sections whose name matches `REGEXP`", func(text string) (err error) {
		o.Sections, err = regexp.Compile(text)
		return err
	})
	flag.Parse()
	if flag.NArg() > 0 {
		fmt.Fprintf(os.Stderr, "error: unexpected argument %q\nhint: -run chooses sections\n", flag.Arg(0))
		return 2
	}
	if *list {
		bench.List(os.Stdout)
		return 0
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	err := bench.Run(ctx, o)
	if ctx.Err() != nil {
		fmt.Fprintln(os.Stderr, "interrupted, everything is removed")
		return 130
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		return 2
	}
	return 0
}
