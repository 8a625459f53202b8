// Package matrix runs tests and measurements on other kernels than this machine's,
// emulated. "sluice-lab kernels" calls it, which `make kernels` runs from the root of the
// repository: core tests, packet costs and capabilities of every kernel, or the tests of
// a package or a command alone.
package matrix

import (
	"context"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"sluice/internal/lab/figures"
	"sluice/internal/lab/kernelbench"
	"sluice/internal/lab/kernels"
)

// Kernels that are run when none is named: the oldest that Sluice supports, the one
// after it that Debian keeps, and the newest.
const (
	OneKernel   = "6.1" // of the core tests alone, or a command
	EveryKernel = OneKernel + ",6.12," + kernels.Newest
)

// Options say what is run, and on which kernels.
type Options struct {
	Kernels  []string // versions; none: those above
	Cache    string   // directory of fetched kernels
	Data     string   // directory of the country data
	Core     bool     // the core tests alone
	Packages string   // patterns of go list, separated by blanks: their tests alone
	Tests    string   // a regular expression of their names
	Command  string   // a line for sh, run instead
	NoTests  bool     // the measurement alone
	NoTable  bool     // the tests alone
	Twice    bool     // measure twice, and compare
	Sections []string // that are measured; none: all
	Record   string   // a file that keeps what the one kernel gives
	Hold     string   // such a file, to which the examples under Sluice alone are held
	Plant    string   // a rule of nft that comes first in the examples' chains of input and forward
	Report   bool     // what is measured is wanted in a file, or as JSON
	Out      io.Writer
}

// Run does what the options ask. There is a report where something was measured, also
// with an error: *kernels.ExitError where a test or the command failed, [ErrDiffers],
// [ErrCostlier].
func Run(ctx context.Context, o Options) (*figures.Report, error) {
	_ = os.Setenv("PATH", os.Getenv("PATH")+":/usr/sbin:/sbin") // no part of a user's
	if err := o.complete(); err != nil {
		return nil, err
	}
	return all(ctx, o)
}

// complete fills in the kernels, and refuses what contradicts itself.
func (o *Options) complete() error {
	o.Kernels = slices.DeleteFunc(o.Kernels, func(name string) bool { return name == "" })
	if len(o.Kernels) == 0 {
		names := EveryKernel
		if o.Core || o.Command != "" {
			names = OneKernel
		}
		o.Kernels = strings.Split(names, ",")
	}
	if o.Hold != "" {
		o.NoTests = true
		if len(o.Sections) == 0 {
			o.Sections = []string{kernelbench.Examples}
		}
	}
	if (o.Record != "" || o.Hold != "") && len(o.Kernels) != 1 {
		return fmt.Errorf("a record is of one kernel: name it by --kernel")
	}
	if err := kernelbench.CheckSections(o.Sections); err != nil {
		return err
	}
	if what := o.alone(); what != "" && (o.Report || o.Twice || len(o.Sections) > 0 || o.Record != "" || o.Hold != "") {
		return fmt.Errorf("with %s nothing is measured", what)
	}
	return nil
}

// asked is the command of a measurement as it can be given again.
func (o *Options) asked() string {
	words := []string{"make kernels", "KERNEL=" + strings.Join(o.Kernels, ",")}
	if o.NoTests {
		words = append(words, "TABLE=1")
	}
	if len(o.Sections) > 0 {
		words = append(words, "SECTIONS="+strings.Join(o.Sections, ","))
	}
	if o.Twice {
		words = append(words, "TWICE=1")
	}
	return strings.Join(words, " ")
}

// alone names what asks for something else than the measurement.
func (o *Options) alone() string {
	switch {
	case o.Command != "":
		return "a command"
	case o.Core:
		return "the core tests alone"
	case o.Packages != "":
		return "the tests of packages alone"
	case o.NoTable:
		return "the tests alone"
	}
	return ""
}
