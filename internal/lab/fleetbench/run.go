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
	Seed               uint64   // of the delays that simulated hosts draw
	Short              bool     // fewer changes, a shorter rest: a rough answer
	Only               []string // of Parts; none: all of them
	Profile            string   // a file for where the simulated hosts' processor time goes; "" is none
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
func (b *bench) fleet(n int) error {
	return b.within(func() (*fleet, error) { return b.stand(n) }, func(f *fleet) error { return b.measure(f, n) })
}

// within has a fleet for as long as act takes.
func (b *bench) within(stand func() (*fleet, error), act func(*fleet) error) (err error) {
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
		err := net.Try(func() {
			var f *fleet
			if f, failure = stand(); failure == nil {
				failure = act(f)
			}
			if f != nil {
				failure = errors.Join(failure, f.end())
			}
		})
		return errors.Join(failure, err)
	})
}

// Parts are what can be measured of a fleet, in the order in which it is.
var Parts = []string{"changes", "bans", "rest", "people", "restart", "guests"}

// stand makes a fleet of n hosts that are proved; what of it there is it returns with an
// error too.
func (b *bench) stand(n int) (*fleet, error) {
	real := min(n, MostReal)
	subject := count(n) + " agents"
	b.Progress("%s: a controller and %d hosts", subject, real)
	f, err := b.found(real)
	if err != nil {
		return f, err
	}
	f.web = fmt.Sprint("https://localhost:", f.space.PassOn(webAt).Port())
	if err := f.start(); err != nil {
		return f, err
	}
	if err := f.enrol(); err != nil {
		return f, err
	}
	// The first change finds nothing on the hosts. The second one is as all others, and goes
	// to one host after the other, since hosts have processors of their own.
	for _, f.stages = range []string{"", oneByOne(real)} {
		if _, err := f.change(real); err != nil {
			return f, err
		}
	}
	f.stages = ""
	if err := f.liveTimes(); err != nil {
		return f, err
	}
	if n > real {
		b.Progress("%s: %s of them simulated", subject, count(n-real))
		if err := f.simulate(n - real); err != nil {
			return f, err
		}
	}
	if err := f.await(n); err != nil {
		return f, err
	}
	// One that has the stages of all others in fleet.yaml is not measured.
	_, err = f.change(n)
	return f, err
}

func (b *bench) measure(f *fleet, n int) error {
	subject := count(n) + " agents"
	m := &measured{f, n, len(f.hosts), subject}
	for i, part := range []func() error{m.changed, m.banned, m.atRest, m.watched, m.restarted, m.labelled} {
		if len(b.Only) > 0 && !slices.Contains(b.Only, Parts[i]) {
			continue
		}
		b.Progress("%s: %s", subject, Parts[i])
		if err := part(); err != nil {
			return err
		}
	}
	return nil
}

// measured is a fleet of n hosts whose figures go into the report.
type measured struct {
	*fleet
	n, real int
	subject string
}

func (m *measured) add(row, quantity, unit string, s ...float64) stats.Series {
	m.Sections[0].Add(figures.Figure{Case: row, Subject: m.subject, Quantity: quantity, Unit: unit, Samples: s})
	return s
}

func (m *measured) goal(name, unit string, limit float64, s stats.Series) {
	if m.n == asked {
		m.Goals = append(m.Goals, figures.AtMost(m.subject+": "+name, unit, limit, s, nil))
	}
}

func (m *measured) changed() error {
	var half, most, all, processor, kernel, member stats.Series
	for range m.rounds() {
		c, err := m.change(m.n)
		if err != nil {
			return err
		}
		half, most, all = append(half, at(c.proved, 0.5)), append(most, at(c.proved, 0.99)), append(all, at(c.proved, 1))
		processor, kernel = append(processor, milliseconds(c.controller, m.n)), append(kernel, milliseconds(c.agents, m.real))
		member = append(member, milliseconds(c.simulated, m.n-m.real))
	}
	m.add("publish until proved, half of the hosts", "time", "s", half...)
	m.goal("publish until proved, 99 % of the hosts", "s", mostProved, m.add("publish until proved, 99 %", "time", "s", most...))
	m.add("publish until proved, all", "time", "s", all...)
	m.goal("processor time of the controller for a change, per agent", "ms", mostChange, m.add("the controller, a change, per agent", "processor time", "ms", processor...))
	m.add("an agent with a kernel, a change", "processor time", "ms", kernel...)
	if m.n > m.real {
		m.add("a simulated agent, a change", "processor time", "ms", member...)
	}
	return nil
}

func (m *measured) banned() error {
	var banned stats.Series
	for range m.rounds() {
		took, err := m.ban("", m.n)
		if err != nil {
			return err
		}
		banned = append(banned, at(took, 0.99))
	}
	m.goal("a ban until 99 % of the hosts have it proved", "s", mostOneBan, m.add("a ban until proved, 99 %", "time", "s", banned...))
	if m.n == m.real {
		return nil
	}
	many, err := m.flood(m.n-m.real, m.floodTime())
	if err != nil {
		return err
	}
	name := fmt.Sprintf("%d bans a second for %.0f s", floodRate, m.floodTime().Seconds())
	m.add(name+", until in force, half", "time", "s", many.Half)
	m.goal(name+", 99 % of bans and hosts", "s", mostFlood, m.add(name+", until in force, 99 %", "time", "s", many.Most))
	share := func(t time.Duration) float64 { return 100 * t.Seconds() / many.took.Seconds() }
	m.goal("the controller meanwhile, of a core", "%", mostBanning, m.add("the controller, "+name, "processors", "%", share(many.controller)))
	m.add("all agents with a kernel, "+name, "processors", "%", share(many.agents))
	m.add("all simulated agents, "+name, "processors", "%", share(many.simulated))
	return nil
}

func (m *measured) atRest() error {
	if err := m.stayAlone(); err != nil {
		return err
	}
	rest, err := m.rest()
	if err != nil {
		return err
	}
	m.goal("the controller at rest, of a core", "%", mostRest, m.add("the controller at rest, of a core", "processors", "%", rest.controller))
	now, err := m.controller.group.Usage()
	if err != nil {
		return err
	}
	m.add("the controller at rest", "memory", "MiB", mebibytes(now.Memory-now.Files))
	m.goal("memory of the controller, at most", "MiB", mostMemory, m.add("the controller, at most", "memory", "MiB", mebibytes(now.Peak-now.Files)))
	added, err := m.ownHalf()
	if err != nil {
		return err
	}
	m.goal("what the fleet adds to an agent", "MiB", mostOfAnAgent, m.add("what the fleet adds to an agent", "memory", "MiB", added...))
	if m.simulated != nil {
		u, err := m.simulated.group.Usage()
		if err != nil {
			return err
		}
		m.add("a simulated agent", "memory", "MiB", mebibytes(u.Memory-u.Files)/float64(m.n-m.real))
	}
	return nil
}

func (m *measured) restarted() error {
	back, err := m.restart(m.n)
	if err != nil {
		return err
	}
	m.goal("restart of the controller, until all agents are back", "s", mostReturn, m.add("restart of the controller, until all are back", "time", "s", back.took.Seconds()))
	m.goal("hosts that went back to an older policy by it", "hosts", 0, m.add("went back to an older policy by it", "hosts", "hosts", float64(back.reverted)))
	return nil
}

func (b *bench) rounds() int {
	if b.Short {
		return 3
	}
	return 7
}

// peopleRounds is how often there is nobody, and then somebody.
func (b *bench) peopleRounds() int {
	if b.Short {
		return 1
	}
	return 3
}

// floodTime is how long a program bans one address after the other, and people look.
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
