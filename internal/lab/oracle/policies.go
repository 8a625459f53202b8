package main

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"sluice/internal/lab/drafts"
	"sluice/internal/lab/testnet"
)

// worker asks both programs, one question after the other.
type worker struct {
	options
	kept  *kept
	texts []string
	dirs  [2]string // of the older and the newer program, alike
	space *testnet.Namespace
}

// tally is what all workers have done.
type tally struct {
	sync.Mutex
	from                     time.Time
	done, good, asked, found int
	last                     string // difference
}

// comparePolicies gives the number of differences over examples and seeded policies.
func comparePolicies(ctx context.Context, o options, work string) (int, error) {
	k, err := open(o.kept, o.before)
	if err != nil {
		return 0, err
	}
	list, err := texts(o.tree)
	if err != nil {
		return 0, err
	}
	examples, err := filepath.Glob(filepath.Join(o.tree, "examples", "*", drafts.Main))
	if err != nil || len(examples) == 0 {
		return 0, fmt.Errorf("no examples in %s: %w", o.tree, err)
	}
	var net *testnet.Net
	if os.Geteuid() == 0 {
		if net, err = testnet.Create("oracle"); err != nil {
			return 0, err
		}
		defer net.Close() // what is left is removed with the next one
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	t := &tally{from: time.Now()}
	jobs := make(chan func(w *worker) error)
	var all sync.WaitGroup
	for i := range o.workers {
		w := &worker{options: o, kept: k, texts: list}
		for side := range w.dirs {
			w.dirs[side] = filepath.Join(work, fmt.Sprintf("policies-%d-%d", i, side))
			if err := os.Mkdir(w.dirs[side], 0o755); err != nil {
				return 0, err
			}
		}
		if net != nil {
			if err := net.Try(func() { w.space = newYard(net, "") }); err != nil {
				return 0, err
			}
		}
		all.Go(func() {
			for job := range jobs {
				if err := job(w); err != nil {
					cancel(err)
				}
			}
		})
	}
	give := func(job func(w *worker) error) {
		select {
		case jobs <- job:
		case <-ctx.Done():
		}
	}
	for _, file := range examples {
		for _, host := range []string{yard, street} {
			give(func(w *worker) error { return w.example(ctx, t, file, host) })
		}
	}
	for number := o.from; number < o.from+o.count && ctx.Err() == nil && !t.enough(o); number++ {
		give(func(w *worker) error {
			c, err := w.newCase(ctx, o.seed, number)
			if err != nil {
				return err
			}
			return w.compare(ctx, t, c, fmt.Sprintf("-seed %d -from %d -n 1", o.seed, number), false)
		})
	}
	close(jobs)
	all.Wait()
	fmt.Fprintln(o.out, t)
	if t.found > 0 {
		return t.found, nil
	}
	return 0, context.Cause(ctx)
}

// newYard is a namespace with the devices of the yard's facts, named where it is given a
// label.
func newYard(net *testnet.Net, label string) *testnet.Namespace {
	host, far := net.Unnamed("host"), net.Unnamed("far")
	if label != "" {
		host = net.Namespace(label)
	}
	for _, d := range []testnet.End{
		{Device: "wan0", Addresses: []string{"198.51.100.1/24", "198.51.100.9/24", "2001:db8:100::9/64", "2001:db8:100::1/64"}},
		{Device: "lan0", Addresses: []string{"10.20.0.1/24", "2001:db8:20::1/64"}},
		{Device: "lan1", Addresses: []string{"10.30.0.1/24", "2001:db8:30::1/64"}},
	} {
		d.In = host
		net.Join(d, testnet.End{In: far, Device: d.Device})
		host.MustRun("ip", "-6", "address", "flush", "dev", d.Device, "scope", "link") // made of its MAC
	}
	host.Route("default4", "198.51.100.254")
	host.Route("default6", "2001:db8:100::fe")
	return host
}

// example asks everything about a policy of the examples, with the files beside it.
func (w *worker) example(ctx context.Context, t *tally, file, host string) error {
	files, err := filesOf(filepath.Dir(file))
	if err != nil {
		return err
	}
	r := rand.New(rand.NewPCG(w.seed, 0))
	files[hostFile], files["after.yaml"] = host, mutated(r, files[drafts.Main])
	c := &policyCase{name: file, random: r, files: files}
	return w.compare(ctx, t, c, file, true)
}

// compare asks both programs about one policy, and reports the first difference.
func (w *worker) compare(ctx context.Context, t *tally, c *policyCase, where string, everything bool) error {
	for _, dir := range w.dirs {
		if err := w.write(dir, c.files); err != nil {
			return err
		}
	}
	good, n := false, 0
	list := []question{first}
	for i := 0; i < len(list); i++ {
		status, difference, err := w.both(ctx, c, list[i])
		if err != nil {
			return err
		}
		n++
		if i == 0 {
			good = status != 2
			list = append(list, rest(c.random, good, w.space != nil, everything)...)
		}
		if difference != "" {
			t.report(w.out, fmt.Sprintf("DIFFERENCE %s (%s)\n%s\n%s%s", where, c.name, list[i], difference, c))
			break
		}
	}
	t.add(w.options, good, n)
	return nil
}

// both asks one question, and gives the exit status and what differs, or that the newer
// program finds itself wrong, which is no better for the older one's finding it too.
func (w *worker) both(ctx context.Context, c *policyCase, q question) (status int, difference string, err error) {
	q.args = append(q.args[:len(q.args):len(q.args)], "--state-dir", "state")
	after, err := ask(ctx, w.after, q, w.dirs[1], w.space)
	if err != nil {
		return 0, "", err
	}
	if text := after.ownFault(); text != "" {
		return after.status, text, nil
	}
	key := w.kept.key(q, c.files)
	if w.kept.answered(key) == after.sum() {
		return after.status, "", nil
	}
	before, err := ask(ctx, w.before, q, w.dirs[0], w.space)
	if err == nil {
		err = w.kept.keep(key, before.sum())
	}
	difference = before.unlike(after)
	for n := 0; n < 4 && difference != "" && err == nil; n++ {
		var again answer
		if again, err = ask(ctx, w.before, q, w.dirs[0], w.space); err == nil && again.unlike(before) != "" {
			w.unsteady(q)
			return before.status, "", nil
		}
	}
	return before.status, difference, err
}

// unsteady says that the older program answers a question in several ways.
func (w *worker) unsteady(q question) {
	fmt.Fprintf(w.out, "the older program does not say the same twice: %s\n", q)
}

func (t *tally) enough(o options) bool {
	t.Lock()
	defer t.Unlock()
	return t.found >= o.differences
}

func (t *tally) report(out io.Writer, text string) {
	t.Lock()
	defer t.Unlock()
	t.found++
	t.last = text
	fmt.Fprintln(out, strings.TrimRight(text, "\n")+"\n")
}

// add counts a policy and says now and then how far it has come.
func (t *tally) add(o options, good bool, asked int) {
	t.Lock()
	defer t.Unlock()
	t.done++
	t.asked += asked
	if good {
		t.good++
	}
	if t.done%100 == 0 {
		fmt.Fprintf(o.out, "%s, of %d, %.1f a second\n", t, o.count, float64(t.done)/time.Since(t.from).Seconds())
	}
}

func (t *tally) String() string {
	return fmt.Sprintf("%d policies, %d good and %d refused, %d commands, %d differences", t.done, t.good, t.done-t.good, t.asked, t.found)
}
