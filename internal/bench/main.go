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
	"time"

	"sluice/internal/measure"
	"sluice/internal/testnet"
)

func main() { os.Exit(run()) }

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

// sections in the order in which they run. Those that use the network alone come
// first: they leave no large sets behind that the kernel would still be freeing.
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
	{"apply", "whole commands: both families, all but Europe", (*bench).applies},
}

func run() int {
	var b bench
	flag.StringVar(&b.binary, "sluice", "bin/sluice", "the `BINARY` to measure")
	flag.BoolVar(&b.short, "short", false, "fewer rounds: a rough answer in under two minutes")
	flag.Uint64Var(&b.seed, "seed", 1, "`SEED` of the sources that are drawn")
	data := flag.String("data", ".cache/geo/dbip-country", "`DIR` of the country data")
	chosen := flag.String("run", "", "only the sections whose name matches `REGEXP`")
	file := flag.String("json", "", "write the figures to `FILE` too")
	list := flag.Bool("list", false, "print the sections and stop")
	flag.Parse()
	b.report = newReport(os.Stdout)
	if *list {
		for _, s := range sections {
			b.say("%-12s %s", s.name, s.what)
		}
		return 0
	}
	match, err := regexp.Compile(*chosen)
	if err == nil {
		b.binary, err = filepath.Abs(b.binary)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		return 2
	}
	if b.dir, err = os.MkdirTemp("", "sluice-bench-"); err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		return 2
	}
	defer os.RemoveAll(b.dir)
	b.state = filepath.Join(b.dir, "state")

	interrupted, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	b.Context = interrupted
	err = b.all(*data, match)
	if interrupted.Err() != nil {
		fmt.Fprintln(os.Stderr, "interrupted, everything is removed")
		return 130
	}
	if err == nil && *file != "" {
		err = b.writeJSON(*file)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		return 2
	}
	return 0
}

func (b *bench) all(data string, match *regexp.Regexp) (err error) {
	start := time.Now()
	if err := measure.Ask(); err != nil {
		return fmt.Errorf("this machine cannot measure: %w", err)
	}
	b.environment(b.seed, b.short)
	if b.world, err = b.loadWorld(data); err != nil {
		return err
	}
	for _, s := range sections {
		if !match.MatchString(s.name) {
			continue
		}
		b.title(s.name, s.what)
		if err := b.section(s.run); err != nil {
			return fmt.Errorf("section %s: %w", s.name, err)
		}
	}
	b.summary(time.Since(start))
	return nil
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
