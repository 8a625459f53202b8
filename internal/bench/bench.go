package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"time"

	"sluice/internal/measure"
	"sluice/internal/testnet"
)

// Options say what to measure.
type Options struct {
	Binary string // sluice
	Data   string // directory of the country data
	Seed   uint64 // of the sources that are drawn
	Short  bool   // fewer rounds: a rough answer
	// Sections chooses by name; nil takes all.
	Sections *regexp.Regexp
	JSON     string    // file for the figures, "" for none
	Out      io.Writer // for the reader
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

// List writes the names of the sections and what each is about.
func List(out io.Writer) {
	for _, s := range sections {
		fmt.Fprintf(out, "%-12s %s\n", s.name, s.what)
	}
}

// Run measures the chosen sections. Figures that are not reached are no error; a
// verdict that is not the expected one, or a machine that cannot measure, is.
func Run(ctx context.Context, o Options) error {
	return with(ctx, o, func(b *bench) error {
		start := time.Now()
		b.environment(b.seed, b.short)
		b.world.describe(b.report)
		for _, s := range sections {
			if o.Sections != nil && !o.Sections.MatchString(s.name) {
				continue
			}
			b.title(s.name, s.what)
			if err := b.section(s.run); err != nil {
				return fmt.Errorf("section %s: %w", s.name, err)
			}
		}
		b.summary(time.Since(start))
		if o.JSON == "" {
			return nil
		}
		return b.writeJSON(o.JSON)
	})
}

// with prepares a run and removes afterwards what it put on disk.
func with(ctx context.Context, o Options, f func(*bench) error) (err error) {
	if err := measure.Ask(); err != nil {
		return fmt.Errorf("this machine cannot measure: %w", err)
	}
	b := &bench{report: newReport(o.Out), Context: ctx, seed: o.Seed, short: o.Short}
	if b.binary, err = filepath.Abs(o.Binary); err != nil {
		return err
	}
	if b.dir, err = os.MkdirTemp("", "sluice-bench-"); err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(b.dir) }()
	b.state = filepath.Join(b.dir, "state")
	if b.world, err = b.loadWorld(o.Data); err != nil {
		return err
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
