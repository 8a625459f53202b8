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

// section is a group of figures that share a set-up, and what is asked of them.
type section struct {
	name, what string
	// run measures, adds figures, and returns what goals are about.
	run    func(*bench) (lookup, error)
	itself [2]string // a side measured twice: again, and once
	goals  []goal
}

// goal is what is asked of a figure of the section, or a figure that nothing is asked of.
type goal struct {
	name     string
	limit    float64 // at most; 0: nothing is asked
	unit     string
	quantity string
	of       string
	against  string // of a ratio; it is set against a side to itself (A/A), too
}

// sections in the order in which they run. Those with small rules come first: they
// leave no large sets behind that the kernel would still be freeing.
var sections = []section{
	{
		"established", "an established packet through a whole policy", (*bench).established,
		[2]string{handAgain, handWritten},
		[]goal{
			{"established packet, whole policy against a hand-written ruleset, cost of the packet", 1.05, "×", whole, ours, handWritten},
			{"the same, of what is added to the bare stack", 1.05, "×", added, ours, handWritten},
		},
	},
	{
		"bans", "650 bans and 100 bypassed services", (*bench).bans,
		[2]string{asRulesAgain, asRules},
		[]goal{
			{"650 bans + 100 bypass services, added per packet against the same as linear nftables rules", 0.01, "×", added, ours, asRules},
			{"the same, against one hash set each", 0, "×", added, ours, asSets},
		},
	},
	{
		"rules", "10,000 rules that differ in one or two fields", (*bench).manyRules,
		[2]string{tenAgain, tenRules},
		[]goal{
			{"added per packet by 10,000 rules against 10", 2, "×", added, manyRules, tenRules},
			{"the same, of the whole packet", 2, "×", whole, manyRules, tenRules},
			{"10,000 rules, compiled and loaded", 1, "s", clock, manyRules, ""},
			{"the same, time of processors", 0, "s", processors, manyRules, ""},
		},
	},
	{
		"ipv4", "sets of IPv4 ranges: all but Europe", (*bench).layouts4,
		[2]string{oneAgain, oneSet},
		[]goal{
			{"added per packet against one interval set, sources by address weight, blocked and allowed averaged", 0.55, "×", byWeight, ours, oneSet},
			{"the same, every range equally likely", 1, "×", byRange, ours, oneSet},
		},
	},
	{
		"ipv6", "sets of IPv6 ranges: all but Europe", (*bench).layouts6,
		[2]string{oneAgain, oneSet},
		[]goal{
			{"added per packet, IPv6, sources uniform over allocated /48s", 0.6, "×", over48s, ours, oneSet},
		},
	},
	{"frontier", "what a packet costs, by what a layout may take", (*bench).frontier, [2]string{}, nil},
	{
		"apply", "whole commands: both families, all but Europe", (*bench).applies,
		[2]string{nftTextAgain, nftText},
		[]goal{
			{"sluice apply from nothing, against nft -f of one set a family", 0.8, "×", clock, fromNothing, nftText},
			{"the same, time of processors", 0, "×", processors, fromNothing, nftText},
			{"the same again, nothing changed, against the first", 0.1, "×", clock, unchanged, fromNothing},
			{"one ban more by the policy's file, against the first", 0.1, "×", clock, oneMore, fromNothing},
			{"one ban by sluice ban", 20, "ms", clock, banCommand, ""},
			{"100,000 bans in one call, from standard input", 1, "s", clock, banMany, ""},
			{"sluice apply from nothing, resident at once with its children", 128, "MiB", resident, fromNothing, ""},
			{"nft -f of one set a family, resident", 0, "MiB", resident, nftText, ""},
		},
	},
	{
		"daily", "the daily change, with all that an apply does by default", (*bench).daily,
		[2]string{europeAgain, europeByHand},
		[]goal{
			{"only Europe: sluice apply from nothing, against nft -f of one set a family", 1, "×", clock, europeFirst, europeByHand},
			{"the same, resident at once with its children", 128, "MiB", resident, europeFirst, ""},
			{"one address more in a file and in an except, against the first", 0.15, "×", clock, europeOneMore, europeFirst},
			{"web server: sluice apply from nothing, against nft -f of the same rules and back by nft -j", 4, "×", processors, serverFirst, serverByHand},
			{"the same, one rule changed", 3, "×", processors, serverOneRule, serverByHand},
			{"one ban by sluice ban --netns, beside the start of a process", 10, "ms", beside, oneBan, ""},
			{"each of 30 in a row, beside the start of a process", 10, "ms", beside, bansInARow, ""},
			{"300,000 bans: sluice verify", 1.5, "s", clock, verifyMany, ""},
			{"300,000 bans: sluice apply of one rule", 1, "s", clock, applyMany, ""},
		},
	},
	{
		"kept", "bans by an agent, with 50,000 in force", (*bench).kept,
		[2]string{},
		[]goal{
			{"a ban by a kept connection, beyond one fdatasync", 1, "ms", clock, keptBeyond, ""},
			{"10,000 of them, one after the other", 10, "s", clock, keptMany, ""},
			{"sluice ban, which asks the agent, beyond the start of a process", 3, "ms", clock, askedOnce, ""},
		},
	},
	{
		"drops", "a flood, with what the kernel drops of it counted and shown", (*bench).drops,
		[2]string{unwatchedAgain, unwatched},
		[]goal{
			{"a flood that is watched as sluice drops does, against without", 1.05, "×", whole, watched, unwatched},
			{"the same, without rests", 0, "×", whole, unbounded, unwatched},
			{"a flood that is traced as sluice drops --trace does, against without", 1.05, "×", whole, traced, unwatched},
		},
	},
	{
		"drift", "rules that somebody flushed, put back by an agent", (*bench).drift,
		[2]string{},
		[]goal{{"nft flush ruleset, until the rules of the web server are back and proved", 2, "s", clock, fixed, ""}},
	},
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
			err := b.section(func() error {
				of, err := s.run(b)
				if err == nil {
					b.judge(s, of)
				}
				return err
			})
			if err != nil {
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
func (b *bench) section(f func() error) error {
	return testnet.Within("bench", func(n *testnet.Net) error {
		b.net = n
		var failure error
		err := n.Try(func() { failure = f() })
		return errors.Join(failure, err)
	})
}

// rounds is a number of rounds, fewer in a short run, and always odd.
func (b *bench) rounds(n int) int {
	if b.short {
		n /= 4
	}
	return max(n, 7) | 1
}
