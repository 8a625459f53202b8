package limits

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"sluice/internal/lab/figures"
	"sluice/internal/lab/measure"
	"sluice/internal/lab/testnet"
)

// Options say what to measure.
type Options struct {
	Binary string // sluice
	// Data is a directory of country data as CSV; "" takes those of StateDir, which are
	// the built-in ones where it has none.
	Data, StateDir string
	Seed           uint64 // of the sources that are drawn
	Short          bool   // fewer rounds: a rough answer
	Sections       []string
	// Progress is told what goes on; nil: nobody.
	Progress func(format string, args ...any)
}

// bench is one run.
type bench struct {
	*report
	context.Context
	net    *testnet.Net
	binary string
	state  string // state directory, with the country data
	dir    string // for policies
	seed   uint64
	short  bool
	world  *world
}

// sections in the order in which they run. Those with small rules come first: they
// leave no large sets behind that the kernel would still be freeing.
var sections = []struct {
	name string
	what string
	run  func(*bench) error
}{
	{"established", "an established packet through a whole policy", (*bench).established},
	{"bans", "650 bans and 100 bypassed services", (*bench).bans},
	{"rules", "10,000 rules that differ in one or two fields", (*bench).manyRules},
	{"ipv4", "sets of IPv4 ranges: all but Europe", (*bench).layouts4},
	{"ipv6", "sets of IPv6 ranges: all but Europe", (*bench).layouts6},
	{"frontier", "what a packet pays, by what a layout may take", (*bench).frontier},
	{"apply", "whole commands: both families, all but Europe", (*bench).applies},
}

// Sections are the names of the sections with what each is about, in the order in
// which they run.
func Sections() (names, about []string) {
	for _, s := range sections {
		names, about = append(names, s.name), append(about, s.what)
	}
	return names, about
}

// Run measures the chosen sections and fills a report, also when it is interrupted,
// with the sections that were measured by then. Goals that are not reached are no
// error; a verdict that is not the expected one, or a machine that cannot measure, is.
func Run(ctx context.Context, o Options, r *figures.Report) error {
	r.Seed = o.Seed
	return with(ctx, o, r, func(b *bench) error {
		for _, s := range sections {
			if len(o.Sections) > 0 && !slices.Contains(o.Sections, s.name) {
				continue
			}
			b.title(s.name, s.what)
			if len(r.Sections) == 1 {
				b.world.describe(b.report)
			}
			if err := b.section(s.run); err != nil {
				r.Sections = r.Sections[:len(r.Sections)-1] // not measured to its end
				if ctx.Err() != nil {
					return ctx.Err()
				}
				return fmt.Errorf("section %s: %w", s.name, err)
			}
		}
		return nil
	})
}

// with prepares a run and removes afterwards what it put on disk.
func with(ctx context.Context, o Options, r *figures.Report, f func(*bench) error) (err error) {
	b := &bench{report: &report{r, o.Progress}, Context: ctx, seed: o.Seed, short: o.Short}
	if b.binary, err = filepath.Abs(o.Binary); err != nil {
		return err
	}
	if b.dir, err = os.MkdirTemp("", "sluice-bench-"); err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(b.dir) }()
	b.state = filepath.Join(b.dir, "state")
	if b.world, err = b.loadWorld(o); err != nil {
		return err
	}
	if err := measure.Ask(); err != nil {
		return fmt.Errorf("this machine cannot measure: %w", err)
	}
	return f(b)
}

// section runs one section in a net of its own, which is gone afterwards.
func (b *bench) section(f func(*bench) error) (err error) {
	if b.net, err = testnet.Create("bench"); err != nil {
		return err
	}
	var failure error
	err = b.net.Try(func() { failure = f(b) })
	return errors.Join(failure, err, b.net.Close())
}

// rounds is a number of rounds, fewer in a short run, and always odd.
func (b *bench) rounds(n int) int {
	if b.short {
		n /= 4
	}
	return max(n, 7) | 1
}
