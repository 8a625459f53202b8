// Package matrix runs tests and measurements on other kernels than this machine's,
// emulated: "sluice-lab kernels", which `make kernels` calls from the root of the
// repository:
//
//	sluice-lab kernels                                  core tests, packet costs and capabilities of every kernel
//	sluice-lab kernels -kernel 6.1 -core                the core tests on one kernel
//	sluice-lab kernels -kernel 6.1 -run PACKAGE         the tests of a package on one kernel
//	sluice-lab kernels -kernel 6.1 -command 'LINE'      a command on one kernel
package matrix

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"

	"sluice/internal/lab/kernelbench"
	"sluice/internal/lab/kernels"
	"sluice/internal/lab/testnet"
)

// Kernels that are run when none is named: the oldest that Sluice supports, the one
// after it that Debian keeps, and the newest.
const (
	oneKernel   = "6.1"
	everyKernel = oneKernel + ",6.12," + kernels.Newest
)

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
	html    string

	sections string
	wanted   []string // of sections
	line     string   // what was asked, as it can be asked again
	inside   bool
	modules  string
	state    string
	binary   string
}

// Main runs one command line and returns the exit status: 0 all passed, 1 a test or the
// command failed or two runs do not agree, 2 a kernel could not be run, 130 interrupted.
func Main(args []string) int {
	_ = os.Setenv("PATH", os.Getenv("PATH")+":/usr/sbin:/sbin") // no part of a user's
	o, err := parse(args, os.Stderr)
	switch {
	case errors.Is(err, flag.ErrHelp):
		return 0
	case err != nil:
		fmt.Fprintln(os.Stderr, "error:", err)
		return 2
	}

	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	do := all
	if o.inside {
		testnet.LeaveSignals()
		do = inside
	}
	err = do(ctx, o)
	var ended *kernels.ExitError
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

// parse reads the command line; usage goes to w.
func parse(args []string, w io.Writer) (options, error) {
	var o options
	flags := flag.NewFlagSet("kernels", flag.ContinueOnError)
	flags.SetOutput(w)
	kernels := flags.String("kernel", "", "the `KERNELS`, separated by commas; not given: "+everyKernel+", and with -core or -command "+oneKernel)
	flags.StringVar(&o.cache, "cache", ".cache/kernels", "`DIR` of fetched kernels")
	flags.StringVar(&o.data, "data", ".cache/geo/dbip-country", "`DIR` of the country data")
	flags.BoolVar(&o.core, "core", false, "run the core tests alone, and measure nothing")
	flags.StringVar(&o.run, "run", "", "run the tests of these `PACKAGES` (patterns of go list, separated by spaces) alone, all of them unless -tests says which")
	flags.StringVar(&o.tests, "tests", "", "the tests whose name matches `REGEXP`")
	flags.StringVar(&o.command, "command", "", "run a shell `LINE` instead; tests of -run are at /src/PACKAGE/kernel.test")
	flags.BoolVar(&o.noTests, "no-tests", false, "no tests: the measurement alone")
	flags.BoolVar(&o.noTable, "no-table", false, "no measurement: the tests alone")
	flags.BoolVar(&o.twice, "twice", false, "measure twice and fail when a figure differs by more than 2 %")
	flags.StringVar(&o.save, "save", "", "write the figures to `FILE` as JSON")
	flags.StringVar(&o.html, "html", "", "write the figures to `FILE` as a page with charts")
	flags.StringVar(&o.sections, "sections", "", "measure these `SECTIONS` alone: "+strings.Join(kernelbench.Sections(), ","))
	flags.BoolVar(&o.inside, "inside", false, "measure on this kernel: what runs in the guest")
	flags.StringVar(&o.modules, "modules", "", "`DIR` of the kernel's modules, with -inside, in a machine that may be changed")
	flags.StringVar(&o.state, "state", "/var/lib/sluice", "`DIR` of the country data, with -inside")
	flags.StringVar(&o.binary, "binary", "/usr/bin/sluice", "the `BINARY` to measure, with -inside")
	if err := flags.Parse(args); err != nil {
		return o, err
	}
	if flags.NArg() > 0 {
		return o, fmt.Errorf("unexpected argument %q", flags.Arg(0))
	}
	if *kernels == "" {
		*kernels = everyKernel
		if o.core || o.command != "" {
			*kernels = oneKernel
		}
	}
	o.kernels = strings.FieldsFunc(*kernels, func(r rune) bool { return r == ',' || r == ' ' })
	if o.sections != "" {
		o.wanted = strings.Split(o.sections, ",")
		for _, name := range o.wanted {
			if !slices.Contains(kernelbench.Sections(), name) {
				return o, fmt.Errorf("no section is called %q\nhint: %s", name, strings.Join(kernelbench.Sections(), ", "))
			}
		}
	}
	if what := o.alone(); what != "" && ((o.save != "" || o.html != "") && !o.inside || o.twice || o.sections != "" && !o.inside) {
		return o, fmt.Errorf("with %s nothing is measured", what)
	}
	o.line = o.asked()
	return o, nil
}

// asked is the command of a measurement as it can be given again.
func (o *options) asked() string {
	words := []string{"make kernels", "KERNEL=" + strings.Join(o.kernels, ",")}
	if o.noTests {
		words = append(words, "TABLE=1")
	}
	if o.sections != "" {
		words = append(words, "SECTIONS="+o.sections)
	}
	if o.twice {
		words = append(words, "TWICE=1")
	}
	return strings.Join(words, " ")
}

// alone names what asks for something else than the measurement.
func (o *options) alone() string {
	switch {
	case o.command != "":
		return "a command"
	case o.core:
		return "the core tests alone"
	case o.run != "":
		return "the tests of packages alone"
	case o.noTable:
		return "the tests alone"
	}
	return ""
}
