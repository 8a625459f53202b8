package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"syscall"

	"sluice/internal/lab/testnet"
)

// options are what the command line says.
type options struct {
	before, after string // the two programs, absolute
	tree          string // the sources, for their policies
	kept          string // folder of what the older program has answered; "" for none
	seed          uint64
	from, count   int // policies by number
	state         bool
	differences   int // after so many it ends
	workers       int
	out           io.Writer
}

func main() {
	testnet.LeaveSignals()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	found, err := run(ctx, os.Args[1:])
	stop()
	switch {
	case err != nil:
		fmt.Fprintln(os.Stderr, "oracle:", err)
		os.Exit(2)
	case found > 0:
		os.Exit(1)
	}
}

// run gives the number of differences.
func run(ctx context.Context, args []string) (found int, err error) {
	o := options{out: os.Stdout}
	flags := flag.NewFlagSet("oracle", flag.ContinueOnError)
	flags.StringVar(&o.before, "before", "", "the older `program`")
	flags.StringVar(&o.after, "after", "bin/sluice", "the newer `program`")
	flags.StringVar(&o.tree, "tree", ".", "`folder` of the sources")
	flags.StringVar(&o.kept, "kept", filepath.Join(".cache", "oracle"), "`folder` for answers of the older program, so that they are asked for once")
	flags.Uint64Var(&o.seed, "seed", 1, "`seed` of the policies")
	flags.IntVar(&o.from, "from", 0, "`number` of the first policy")
	flags.IntVar(&o.count, "n", 10_000, "`number` of policies")
	flags.BoolVar(&o.state, "state", os.Geteuid() == 0, "go on from what the older program left on a host; needs root")
	flags.IntVar(&o.differences, "differences", 5, "end after so `many`")
	flags.IntVar(&o.workers, "workers", runtime.GOMAXPROCS(0), "policies at `once`")
	if err := flags.Parse(args); err != nil {
		return 0, err
	}
	if o.before == "" {
		return 0, errors.New("-before names no program (make oracle BEFORE=PROGRAM)")
	}
	for _, path := range []*string{&o.before, &o.after, &o.tree} {
		if *path, err = filepath.Abs(*path); err != nil {
			return 0, err
		}
	}
	work, err := os.MkdirTemp("", "sluice-oracle-")
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(work)) }()

	found, err = comparePolicies(ctx, o, work)
	if err == nil && o.state && found < o.differences {
		var more int
		more, err = compareStates(ctx, o, work)
		found += more
	}
	if err == nil && found == 0 {
		fmt.Fprintln(o.out, "no difference")
	}
	return found, err
}
