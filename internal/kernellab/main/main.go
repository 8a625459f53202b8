// Command main runs Sluice on other kernels than this machine's, emulated; `make
// kernels` calls it. From the root of the repository:
//
//	main                                  core tests, packet costs and capabilities of every kernel
//	main -kernel 6.1 -core                the core tests on one kernel
//	main -kernel 6.1 -run PACKAGE         the tests of a package on one kernel
//	main -kernel 6.1 -command 'LINE'      a command on one kernel
//
// Exit status: 0 all passed, 1 a test or the command failed or two runs do not agree,
// 2 a kernel could not be run, 130 interrupted.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"sluice/internal/kernelbench"
	"sluice/internal/kernellab"
	"sluice/internal/testnet"
)

// Kernels that are run when none is named: the oldest that Sluice supports, the one
// after it that Debian keeps, and the newest.
const (
	oneKernel   = "6.1"
	everyKernel = oneKernel + ",6.12," + kernellab.Newest
)

func main() { os.Exit(run()) }

type options struct {
	kernels []string
	cache   string
	data    string
	core    bool
	run     string
	tests   string
	command string
	noTests bool
	noTable bool
	twice   bool
	save    string

	sections string
	line     string // what was asked, as it can be asked again
	inside   bool
	state    string
	binary   string
}

func run() int {
	o := options{}
	kernels := flag.String("kernel", "", "the `KERNELS`, separated by commas; not given: "+everyKernel+", and with -core or -command "+oneKernel)
	flag.StringVar(&o.cache, "cache", ".cache/kernels", "`DIR` of fetched kernels")
	flag.StringVar(&o.data, "data", ".cache/geo/dbip-country", "`DIR` of the country data")
	flag.BoolVar(&o.core, "core", false, "run the core tests alone, and measure nothing")
	flag.StringVar(&o.run, "run", "", "run the tests of these `PACKAGES` (patterns of go list, separated by spaces) alone, all of them unless -tests says which")
	flag.StringVar(&o.tests, "tests", "", "the tests whose name matches `REGEXP`")
	flag.StringVar(&o.command, "command", "", "run a shell `LINE` instead; tests of -run are at /src/PACKAGE/kernel.test")
	flag.BoolVar(&o.noTests, "no-tests", false, "no tests: the measurement alone")
	flag.BoolVar(&o.noTable, "no-table", false, "no measurement: the tests alone")
	flag.BoolVar(&o.twice, "twice", false, "measure twice and fail when a figure differs by more than 2 %")
	flag.StringVar(&o.save, "save", "", "write the figures to `FILE` as JSON")
	flag.StringVar(&o.sections, "sections", "", "measure these `SECTIONS` alone: "+strings.Join(kernelbench.Sections(), ","))
	flag.BoolVar(&o.inside, "inside", false, "measure on this kernel: what runs in the guest")
	flag.StringVar(&o.state, "state", "/var/lib/sluice", "`DIR` of the country data, with -inside")
	flag.StringVar(&o.binary, "binary", "/usr/bin/sluice", "the `BINARY` to measure, with -inside")
	flag.Parse()
	if flag.NArg() > 0 {
		fmt.Fprintf(os.Stderr, "error: unexpected argument %q\n", flag.Arg(0))
		return 2
	}
	o.line = "kernels " + strings.Join(os.Args[1:], " ")
	if *kernels == "" {
		*kernels = everyKernel
		if o.core || o.command != "" {
			*kernels = oneKernel
		}
	}
	o.kernels = strings.FieldsFunc(*kernels, func(r rune) bool { return r == ',' || r == ' ' })

	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	do := all
	if o.inside {
		testnet.LeaveSignals()
		do = inside
	}
	err := do(ctx, o)
	var ended *kernellab.ExitError
	switch {
	case ctx.Err() != nil:
		fmt.Fprintln(os.Stderr, "interrupted, everything is removed")
		return 130
	case errors.As(err, &ended) || errors.Is(err, errDiffers):
		fmt.Fprintln(os.Stderr, "error:", err)
		return 1
	case err != nil:
		fmt.Fprintln(os.Stderr, "error:", err)
		return 2
	}
	return 0
}
