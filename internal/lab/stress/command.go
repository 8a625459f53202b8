package stress

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
)

// Main runs the long form: "sluice-lab stress", which `make stress` calls through
// scripts/ It returns the exit status: 0 every count is what it has to be, 1 one
// is not, 2 not counted, 130 interrupted.
func Main(args []string) int {
	if status, asked := HandIfAsked(); asked {
		return status
	}
	flags := flag.NewFlagSet("stress", flag.ContinueOnError)
	r := Run{Out: os.Stdout}
	flags.StringVar(&r.Binary, "sluice", "bin/sluice", "the `BINARY` that some of the applies are made by")
	flags.StringVar(&r.Data, "data", ".cache/geo/dbip-country", "`DIR` of the country data")
	flags.Uint64Var(&r.Seed, "seed", 1, "`SEED` of the sources that are drawn")
	flags.BoolVar(&r.Short, "short", false, "a tenth of the applies and refreshes")
	flags.DurationVar(&r.Enough, "enough", 0, "end a part after so much `TIME`, and count what was made by then")
	file := flags.String("json", "", "write the counts to `FILE` too")
	list := flags.Bool("list", false, "print the parts and stop")
	var chosen *regexp.Regexp
	flags.Func("run", "only the parts whose name matches `REGEXP`", func(text string) (err error) {
		chosen, err = regexp.Compile(text)
		return err
	})
	switch err := flags.Parse(args); {
	case errors.Is(err, flag.ErrHelp):
		return 0
	case err != nil:
		return 2
	}
	if flags.NArg() > 0 {
		fmt.Fprintf(os.Stderr, "error: unexpected argument %q\nhint: -run chooses parts\n", flags.Arg(0))
		return 2
	}
	if *list {
		List(os.Stdout)
		return 0
	}
	if term.IsTerminal(int(os.Stderr.Fd())) {
		r.Progress = func(what string, done, of int) { fmt.Fprintf(os.Stderr, "\r\x1b[K%s %d of %d\r", what, done, of) }
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	err := inFolder(ctx, &r, chosen, *file)
	switch {
	case ctx.Err() != nil:
		fmt.Fprintln(os.Stderr, "interrupted, everything is removed")
		return 130
	case errors.Is(err, ErrWrong):
		fmt.Fprintln(os.Stderr, "error:", err)
		return 1
	case err != nil:
		fmt.Fprintln(os.Stderr, "error:", err)
		return 2
	}
	return 0
}

func inFolder(ctx context.Context, r *Run, chosen *regexp.Regexp, file string) (err error) {
	if r.Binary, err = filepath.Abs(r.Binary); err != nil {
		return err
	}
	if r.Dir, err = os.MkdirTemp("", "sluice-stress-"); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(r.Dir)) }()
	return r.Long(ctx, chosen, file)
}
