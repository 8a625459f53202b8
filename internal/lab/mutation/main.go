// Program mutation plants faults in the source, one at a time, and says which test sees
// each: an operator that is another one, a condition that is turned round, a call that
// is left out. `make mutation` runs it; what survives is a test that is missing, or
// code that can go. The faults are drawn by a seed and stay the same as long as their
// lines do, so that a tree can be compared with an older one.
//
// The wrong passes of package program/mutants are the other half: they plant faults in
// a compiled program, and tests run them.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"
)

// packages are those that decide what a kernel runs or what is said of it.
const packages = "program/compile,program/optimize,backend/nftables,prove/reach,prove/reference,engine/apply,prove/check"

// verdict is what happened to one fault, a line of the file.
type verdict struct {
	Key     string  `json:"key"`
	Place   string  `json:"place"` // internal/…/file.go:line
	What    string  `json:"what"`
	By      string  `json:"by"` // package and test that saw it; "" where none did
	Seconds float64 `json:"seconds"`
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	survived, err := run(ctx, os.Args[1:], os.Stdout)
	stop()
	switch {
	case err != nil:
		fmt.Fprintln(os.Stderr, "mutation:", err)
		os.Exit(2)
	case survived > 0:
		os.Exit(1)
	}
}

// run gives the number of faults that no test saw.
func run(ctx context.Context, args []string, w io.Writer) (survived int, err error) {
	flags := flag.NewFlagSet("mutation", flag.ContinueOnError)
	in := flags.String("packages", packages, "`folders` below internal, by commas")
	seed := flags.Uint64("seed", 1, "`seed` of the faults")
	count := flags.Int("n", 50, "`number` of faults a package")
	save := flags.String("save", filepath.Join(".cache", "mutation.json"), "`file` of verdicts, a line each; what it holds is not run again")
	against := flags.String("against", "", "`file` of an older tree: what was seen there and is not now is told apart")
	times := flags.String("times", "", "`file` with what go test ./... printed: packages are asked in the order of their times")
	longest := flags.Duration("longest", time.Hour, "packages whose tests take longer, by -times, are not asked")
	again := flags.Bool("again", false, "run again what no test saw")
	bound := flags.Duration("timeout", 5*time.Minute, "how `long` the tests of a package may take")
	workers := flags.Int("workers", 2, "faults at `once`")
	if err := flags.Parse(args); err != nil {
		return 0, err
	}
	known, err := read(*save)
	if err != nil {
		return 0, err
	}
	older := map[string]verdict{}
	if *against != "" {
		if older, err = read(*against); err != nil {
			return 0, err
		}
	}
	took, err := timesOf(*times)
	if err != nil {
		return 0, err
	}
	file, err := os.OpenFile(*save, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return 0, err
	}
	defer file.Close()

	var mutex sync.Mutex
	tell := func(v verdict, fresh bool) error {
		mutex.Lock()
		defer mutex.Unlock()
		by := v.By
		if by == "" {
			by = "SURVIVED"
			survived++
			if older[v.Key].By != "" {
				by = "SURVIVED, was seen by " + older[v.Key].By
			}
		}
		fmt.Fprintf(w, "%-46s %s\n%46s %s\n", v.Place, v.What, "", by)
		if !fresh {
			return nil
		}
		return json.NewEncoder(file).Encode(v)
	}
	for name := range strings.SplitSeq(*in, ",") {
		pkg := "sluice/internal/" + name
		dir, err := filepath.Abs(filepath.Join("internal", name))
		if err != nil {
			return survived, err
		}
		asked, err := testers(ctx, pkg, took, *longest)
		if err != nil {
			return survived, err
		}
		sites, err := draw(dir, pkg, *seed, *count)
		if err != nil {
			return survived, err
		}
		if err := each(sites, *workers, func(s site) error {
			v, ok := known[s.Key]
			ok = ok && (v.By != "" || !*again)
			if !ok {
				var err error
				if v, err = judge(ctx, s, asked, *bound); err != nil {
					return err
				}
			}
			return tell(v, !ok)
		}); err != nil {
			return survived, err
		}
	}
	return survived, nil
}

// judge runs the tests of one package after another until one fails.
func judge(ctx context.Context, s site, asked []string, bound time.Duration) (verdict, error) {
	from := time.Now()
	root, err := os.Getwd()
	if err != nil {
		return verdict{}, err
	}
	place, err := filepath.Rel(root, s.File)
	if err != nil {
		return verdict{}, err
	}
	v := verdict{Key: s.Key, Place: fmt.Sprintf("%s:%d", place, s.Line), What: s.What}
	dir, err := os.MkdirTemp("", "sluice-mutation-")
	if err != nil {
		return v, err
	}
	defer os.RemoveAll(dir)
	over, err := overlay(dir, s)
	if err != nil {
		return v, err
	}
	for _, pkg := range asked {
		o, err := test(ctx, pkg, over, bound)
		if err != nil {
			return v, err
		}
		if o.build {
			v.By = "the compiler of Go"
			break
		}
		if o.seen {
			v.By = strings.TrimPrefix(pkg, "sluice/internal/") + " " + o.by
			break
		}
	}
	v.Seconds = time.Since(from).Seconds()
	return v, nil
}

// each calls f for every site, some at once, until one fails.
func each(sites []site, workers int, f func(site) error) error {
	todo := make(chan site)
	errs := make(chan error, workers)
	for range workers {
		go func() {
			var err error
			for s := range todo {
				if err == nil {
					err = f(s)
				}
			}
			errs <- err
		}()
	}
	for _, s := range sites {
		todo <- s
	}
	close(todo)
	var all []error
	for range workers {
		all = append(all, <-errs)
	}
	return errors.Join(all...)
}

// read gives the verdicts of a file by key; none where there is no file.
func read(name string) (map[string]verdict, error) {
	found := map[string]verdict{}
	data, err := os.ReadFile(name)
	if errors.Is(err, os.ErrNotExist) {
		return found, nil
	}
	if err != nil {
		return nil, err
	}
	for line := range strings.Lines(string(data)) {
		var v verdict
		if err := json.Unmarshal([]byte(line), &v); err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		found[v.Key] = v
	}
	return found, nil
}

// timesOf gives how long the tests of each package took, as go test printed it.
func timesOf(name string) (map[string]time.Duration, error) {
	took := map[string]time.Duration{}
	if name == "" {
		return took, nil
	}
	text, err := os.ReadFile(name)
	if err != nil {
		return nil, err
	}
	for line := range strings.Lines(string(text)) {
		fields := strings.Fields(line)
		if len(fields) < 3 || fields[0] != "ok" {
			continue
		}
		if d, err := time.ParseDuration(fields[2]); err == nil {
			took[fields[1]] = d
		}
	}
	return took, nil
}
