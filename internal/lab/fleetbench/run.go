package fleetbench

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"sluice/internal/lab/figures"
	"sluice/internal/lab/stats"
	"sluice/internal/lab/testnet"
)

// Options say what to measure.
type Options struct {
	Sluice, Controller string   // the programs
	Simulator          []string // the command that is Simulate
	Agents             []int
	Seed               uint64 // of the delays that simulated hosts draw
	Short              bool   // fewer changes, a shorter rest: a rough answer
	Profile            string // a file for where the simulated hosts' processor time goes; "" is none
	// Progress is told what goes on; nil: nobody.
	Progress func(format string, args ...any)
}

// MostReal is how many hosts of a fleet have a kernel.
const MostReal = 20

// What a fleet of so many is held to.
const (
	asked         = 1000
	mostProved    = 3.0   // s, of 99 % of the hosts
	mostMemory    = 120.0 // MiB, of the controller
	mostRest      = 1.0   // % of a core, of the controller
	mostChange    = 0.5   // ms of processor of the controller, for each agent
	mostReturn    = 40.0  // s
	mostOfAnAgent = 15.0  // MiB
)

// bench is one run.
type bench struct {
	context.Context
	Options
	*figures.Report
	net *testnet.Net
	// dir is for what the fleet keeps, memory for what simulated hosts do: each would have
	// a disk of its own.
	dir, memory string
}

// Run measures a fleet of each size and fills a report, also when it is interrupted, with
// the sizes that were measured by then.
func Run(ctx context.Context, o Options, r *figures.Report) error {
	if o.Progress == nil {
		o.Progress = func(string, ...any) {}
	}
	r.Seed = o.Seed
	r.Title = title(o.Agents)
	r.Sections = []figures.Section{{Name: "fleet", Title: "What a fleet costs", Text: []string{
		"Memory is that of a control group, with what the kernel holds for it and without files that it read or wrote.",
		"A change is one port in one part; it goes to all hosts at once, without time to settle.",
		"Proved is confirmed: the kernel was proved to hold the policy, and the host keeps it. All run on this machine's processors.",
	}, Figures: []figures.Figure{}}}
	b := &bench{Context: ctx, Options: o, Report: r}
	for _, n := range o.Agents {
		if err := b.fleet(n); err != nil {
			if ctx.Err() != nil {
				return ctx.Err()
			}
			return fmt.Errorf("%s agents: %w", count(n), err)
		}
	}
	return nil
}

// title says what is real.
func title(agents []int) string {
	most := slices.Max(agents)
	if most <= MostReal {
		return "What a fleet costs: every host with an agent and rules of the kernel"
	}
	return fmt.Sprintf("What a fleet costs: %d hosts with an agent and rules of the kernel, up to %s simulated with real certificates, streams, signatures and reports, "+
		"where compiling and the kernel are delays as the %d took one after the other", MostReal, count(most-MostReal), MostReal)
}

// count writes a number with its thousands.
func count(n int) string {
	if n < 1000 {
		return strconv.Itoa(n)
	}
	return fmt.Sprintf("%s,%03d", count(n/1000), n%1000)
}

// fleet measures a fleet of n hosts, which is gone afterwards.
func (b *bench) fleet(n int) (err error) {
	if b.dir, err = os.MkdirTemp("", "sluice-fleet-"); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(b.dir)) }()
	if b.memory, err = os.MkdirTemp("/dev/shm", "sluice-fleet-"); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(b.memory)) }()
	return testnet.Within("fleet", func(net *testnet.Net) error {
		b.net = net
		var failure error
		err := net.Try(func() { failure = b.measure(n) })
		return errors.Join(failure, err)
	})
}

func (b *bench) measure(n int) (err error) {
	real := min(n, MostReal)
	subject := count(n) + " agents"
	b.Progress("%s: a controller and %d hosts", subject, real)
	f, err := b.found(real)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.end()) }()
	if err := f.start(); err != nil {
		return err
	}
	if err := f.enrol(); err != nil {
		return err
	}
	// The first change finds nothing on the hosts. The second one is as all others, and goes
	// to one host after the other, since hosts have processors of their own.
	for _, f.stages = range []string{"", oneByOne(real)} {
		if _, err := f.change(real); err != nil {
			return err
		}
	}
	f.stages = ""
	if err := f.liveTimes(); err != nil {
		return err
	}
	if n > real {
		b.Progress("%s: %s of them simulated", subject, count(n-real))
		if err := f.simulate(n - real); err != nil {
			return err
		}
	}
	if err := f.await(n); err != nil {
		return err
	}
	add := func(row, quantity, unit string, s ...float64) stats.Series {
		b.Sections[0].Add(figures.Figure{Case: row, Subject: subject, Quantity: quantity, Unit: unit, Samples: s})
		return s
	}
	goal := func(name, unit string, limit float64, s stats.Series) {
		if n == asked {
			b.Goals = append(b.Goals, figures.AtMost(subject+": "+name, unit, limit, s, nil))
		}
	}

	b.Progress("%s: changes", subject)
	var half, most, all, processor, kernel, member, peak stats.Series
	for range b.rounds() {
		c, err := f.change(n)
		if err != nil {
			return err
		}
		half, most, all = append(half, at(c.proved, 0.5)), append(most, at(c.proved, 0.99)), append(all, at(c.proved, 1))
		processor, kernel = append(processor, milliseconds(c.controller, n)), append(kernel, milliseconds(c.agents, real))
		member = append(member, milliseconds(c.simulated, n-real))
	}
	add("publish until proved, half of the hosts", "time", "s", half...)
	goal("publish until proved, 99 % of the hosts", "s", mostProved, add("publish until proved, 99 %", "time", "s", most...))
	add("publish until proved, all", "time", "s", all...)
	goal("processor time of the controller for a change, per agent", "ms", mostChange, add("the controller, a change, per agent", "processor time", "ms", processor...))
	add("an agent with a kernel, a change", "processor time", "ms", kernel...)
	if n > real {
		add("a simulated agent, a change", "processor time", "ms", member...)
	}

	b.Progress("%s: bans", subject)
	var banned stats.Series
	for range b.rounds() {
		took, err := f.ban("", n)
		if err != nil {
			return err
		}
		banned = append(banned, at(took, 0.99))
	}
	goal("a ban until 99 % of the hosts have it proved", "s", mostOneBan, add("a ban until proved, 99 %", "time", "s", banned...))
	if n > real {
		many, err := f.flood(n-real, b.floodTime())
		if err != nil {
			return err
		}
		name := fmt.Sprintf("%d bans a second for %.0f s", floodRate, b.floodTime().Seconds())
		add(name+", until in force, half", "time", "s", many.Half)
		goal(name+", 99 % of bans and hosts", "s", mostFlood, add(name+", until in force, 99 %", "time", "s", many.Most))
		goal("the controller meanwhile, of a core", "%", mostBanning, add("the controller, "+name, "processors", "%", many.controller))
	}

	b.Progress("%s: at rest", subject)
	if err := f.stayAlone(); err != nil {
		return err
	}
	rest, err := f.rest()
	if err != nil {
		return err
	}
	goal("the controller at rest, of a core", "%", mostRest, add("the controller at rest, of a core", "processors", "%", rest.controller))
	now, err := f.controller.group.Usage()
	if err != nil {
		return err
	}
	peak = stats.Series{mebibytes(now.Peak - now.Files)}
	add("the controller at rest", "memory", "MiB", mebibytes(now.Memory-now.Files))
	goal("memory of the controller, at most", "MiB", mostMemory, add("the controller, at most", "memory", "MiB", peak...))
	added, err := f.ownHalf()
	if err != nil {
		return err
	}
	goal("what the fleet adds to an agent", "MiB", mostOfAnAgent, add("what the fleet adds to an agent", "memory", "MiB", added...))
	if f.simulated != nil {
		u, err := f.simulated.group.Usage()
		if err != nil {
			return err
		}
		add("a simulated agent", "memory", "MiB", mebibytes(u.Memory-u.Files)/float64(n-real))
	}

	b.Progress("%s: a new controller", subject)
	back, err := f.restart(n)
	if err != nil {
		return err
	}
	goal("restart of the controller, until all agents are back", "s", mostReturn, add("restart of the controller, until all are back", "time", "s", back.took.Seconds()))
	goal("hosts that went back to an older policy by it", "hosts", 0, add("went back to an older policy by it", "hosts", "hosts", float64(back.reverted)))
	return nil
}

func (b *bench) rounds() int {
	if b.Short {
		return 3
	}
	return 7
}

// floodTime is how long a program bans one address after the other.
func (b *bench) floodTime() time.Duration {
	if b.Short {
		return 20 * time.Second
	}
	return time.Minute
}

// restTime has each stream asked twice whether it lives.
func (b *bench) restTime() time.Duration {
	if b.Short {
		return 20 * time.Second
	}
	return 40 * time.Second
}

// at is the part of sorted values up to which a share of them are.
func at(sorted []float64, share float64) float64 {
	return sorted[max(0, min(len(sorted)-1, int(share*float64(len(sorted))+0.5)-1))]
}

// milliseconds are those of a processor for each of so many.
func milliseconds(t time.Duration, of int) float64 { return t.Seconds() * 1000 / float64(of) }

func mebibytes(bytes int64) float64 { return float64(bytes) / (1 << 20) }

func (b *bench) path(names ...string) string {
	return filepath.Join(append([]string{b.dir}, names...)...)
}
