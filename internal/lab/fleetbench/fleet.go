package fleetbench

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"sluice/internal/fleet/api"
	"sluice/internal/fleet/rollout"
	"sluice/internal/lab/testnet"
	"sluice/internal/system/kernel/memgroup"
)

// Where everybody is: one network, whose bridge is the controller's.
const (
	network       = "198.51.100."
	controllerAt  = network + "1:7443"
	webAt         = network + "1:8443"
	simulatedFrom = network + "2/24"
	firstHost     = 11
)

// fleet is a controller with its hosts.
type fleet struct {
	*bench
	operating

	space      *testnet.Namespace // of the controller
	simulating *testnet.Namespace
	controller *program
	agents     *memgroup.Group
	hosts      []*host
	alone      []*host    // of no fleet
	simulated  *simulated // nil: there are none
	client     *api.Client
	token      string         // its text
	bans       atomic.Int64   // that were asked for
	done       []func() error // last to first
	web        string         // where people reach it from this machine, https://localhost:PORT
}

// program is one that runs in a namespace and in a control group.
type program struct {
	*exec.Cmd
	group *memgroup.Group
	told  *strings.Builder
}

// found makes a fleet that has no host yet, and so many machines.
func (b *bench) found(machines int) (*fleet, error) {
	f := &fleet{bench: b, space: b.net.Namespace("controller"), simulating: b.net.Namespace("simulated")}
	ports := []*testnet.Port{f.join(f.simulating, 2)}
	for i := range machines {
		h := f.host(fmt.Sprintf("host-%d", i))
		f.hosts = append(f.hosts, h)
		ports = append(ports, f.join(h.space, firstHost+i))
	}
	f.space.Bridge("fleet", []string{network + "1/24"}, ports...)
	return f, f.founded()
}

// join has a namespace be on the network, and returns the port that the bridge is to have.
func (f *fleet) join(space *testnet.Namespace, number int) *testnet.Port {
	_, port := f.net.Join(
		testnet.End{In: space, Device: "eth0", Addresses: []string{fmt.Sprintf("%s%d/24", network, number)}},
		testnet.End{In: f.space, Device: fmt.Sprint("port", number)},
	)
	return port
}

func (f *fleet) controllerDir() string { return f.path("controller") }

// end stops all that runs.
func (f *fleet) end() (err error) {
	for _, step := range slices.Backward(f.done) {
		err = errors.Join(err, step())
	}
	return err
}

// group makes a control group, which is removed at the end.
func (f *fleet) group(label string) (*memgroup.Group, error) {
	g, err := memgroup.New(label)
	if err == nil {
		err = g.CountTime()
	}
	if err == nil {
		f.done = append(f.done, g.Remove)
	}
	return g, err
}

// program is in its group before it is that program.
func (f *fleet) program(group *memgroup.Group, name string, args ...string) *program {
	script := `for f in $MEMBERS; do echo $$ > "$f" || exit; done; unset MEMBERS; exec "$0" "$@"`
	p := &program{Cmd: exec.Command("/bin/sh", append([]string{"-c", script, name}, args...)...), group: group, told: &strings.Builder{}}
	p.Env = append(os.Environ(), "MEMBERS="+strings.Join(group.Members(), " "))
	p.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	p.Stderr = p.told
	return p
}

// stop ends a program as systemd does.
func (p *program) stop() error {
	if p.Process == nil || p.ProcessState != nil {
		return nil
	}
	if err := p.Process.Signal(syscall.SIGTERM); err != nil {
		return err
	}
	return p.await()
}

// await waits for the end of a program that was told to end.
func (p *program) await() error {
	hanging := time.AfterFunc(time.Minute, func() { _ = p.Process.Kill() })
	defer hanging.Stop()
	if err := p.Wait(); err != nil {
		return fmt.Errorf("%s: %w\n%s", p.Args[3], err, p.said())
	}
	return nil
}

// start starts the controller.
func (f *fleet) start() error {
	group, err := f.group("controller")
	if err != nil {
		return err
	}
	f.client = api.NewClient(f.controllerDir())
	f.controller = &program{group: group}
	f.done = append(f.done, func() error { return f.controller.stop() })
	if err := f.control(); err != nil {
		return err
	}
	return f.allow()
}

// control has a controller run in the group of the one before.
func (f *fleet) control() error {
	f.controller = f.program(f.controller.group, f.Controller, "run", "--dir", f.controllerDir(), "--listen", controllerAt, "--reached-by", controllerAt, "--web", webAt, "--web-url", f.web)
	if err := f.space.StartCommand(f.controller.Cmd); err != nil {
		return err
	}
	return f.until(time.Minute, "the controller answers", func() (bool, error) {
		_, err := f.client.Status(f)
		return err == nil, nil
	})
}

// until waits until something is so.
func (f *fleet) until(patience time.Duration, what string, is func() (bool, error)) error {
	for end := time.Now().Add(patience); ; {
		switch fine, err := is(); {
		case fine || err != nil:
			return err
		case f.Err() != nil:
			return f.Err()
		case time.Now().After(end):
			return fmt.Errorf("within %v it never comes that %s; the controller: %s", patience, what, f.controller.said())
		}
		time.Sleep(50 * time.Millisecond)
	}
}

// await waits until so many hosts are connected and proved.
func (f *fleet) await(n int) error {
	last := ""
	err := f.until(patience(n), fmt.Sprintf("%d hosts are proved", n), func() (bool, error) {
		time.Sleep(200 * time.Millisecond)
		all, err := f.client.Hosts(f, "")
		if err != nil {
			return false, err
		}
		for _, h := range all.Hosts {
			if h.State != api.Proved {
				last = fmt.Sprintf("%s is %s: %s", h.Host, h.State, h.Reason)
			}
		}
		return all.Proved >= n, nil
	})
	if err != nil && last != "" {
		err = fmt.Errorf("%w\n%s", err, last)
	}
	return err
}

// changed is what a change took.
type changed struct {
	proved []float64 // s from its publication until the controller knew, of each host, sorted
	spent
}

// spent is processor time, of all of them.
type spent struct{ controller, agents, simulated time.Duration }

func (s spent) since(before spent) spent {
	return spent{s.controller - before.controller, s.agents - before.agents, s.simulated - before.simulated}
}

// spent is what was spent until now.
func (f *fleet) spent() (s spent, err error) {
	of := func(g *memgroup.Group) time.Duration {
		u, failed := g.Usage()
		err = errors.Join(err, failed)
		return u.Time
	}
	s = spent{controller: of(f.controller.group), agents: of(f.agents)}
	if f.simulated != nil {
		s.simulated = of(f.simulated.group)
	}
	return s, err
}

// patience is how long a step of so many hosts may take.
func patience(hosts int) time.Duration {
	return 2*time.Minute + time.Duration(hosts)*50*time.Millisecond
}

// change publishes a changed policy, and waits until it is proved and confirmed on n hosts.
func (f *fleet) change(n int) (*changed, error) {
	before, err := f.spent()
	if err != nil {
		return nil, err
	}
	begun, r, err := f.publish()
	if err != nil {
		return nil, err
	}
	// The hosts say it here, so that nobody asks the controller meanwhile.
	if err := f.until(patience(n), fmt.Sprintf("bundle %d is confirmed everywhere", r.Bundle), func() (bool, error) {
		return f.confirmed(r.Bundle) >= n, f.failed()
	}); err != nil {
		return nil, err
	}
	time.Sleep(500 * time.Millisecond) // for the last reports to be written
	after, err := f.spent()
	if err != nil {
		return nil, err
	}
	c := &changed{spent: after.since(before)}
	err = f.until(time.Minute, "the controller has all reports", func() (bool, error) {
		time.Sleep(500 * time.Millisecond) // it is a long answer
		now, err := f.client.Rollout(f, r.ID)
		if err != nil {
			return false, err
		}
		c.proved = nil
		for id, h := range now.State.Hosts {
			switch {
			case h.State == rollout.Confirmed && h.Target == r.Bundle:
				c.proved = append(c.proved, h.Since.Sub(begun).Seconds())
			case h.Failed:
				return false, fmt.Errorf("%s: %s", id, h.Reason)
			}
		}
		return len(c.proved) >= n, nil
	})
	slices.Sort(c.proved)
	return c, err
}

// confirmed is how many hosts have confirmed a bundle.
func (f *fleet) confirmed(bundle int64) (n int) {
	for _, h := range f.hosts {
		if h.has(bundle) {
			n++
		}
	}
	if f.simulated != nil {
		n += f.simulated.confirmed(bundle)
	}
	return n
}

// failed is an error where a host refuses, or the simulated ones have ended.
func (f *fleet) failed() error {
	for _, h := range f.hosts {
		if err := h.failed(); err != nil {
			return err
		}
	}
	if f.simulated != nil {
		return f.simulated.failed()
	}
	return nil
}

// resting is what is taken while nothing happens, in % of a core.
type resting struct{ controller float64 }

func (f *fleet) rest() (r resting, err error) {
	time.Sleep(time.Second)
	before, err := f.controller.group.Usage()
	if err != nil {
		return r, err
	}
	begun := time.Now()
	select {
	case <-time.After(f.restTime()):
	case <-f.Done():
		return r, f.Err()
	}
	after, err := f.controller.group.Usage()
	r.controller = 100 * (after.Time - before.Time).Seconds() / time.Since(begun).Seconds()
	return r, err
}

// returned is how a fleet comes back to another controller.
type returned struct {
	took     time.Duration
	reverted int
}

// restart ends the controller and starts another one, as systemd does.
func (f *fleet) restart(n int) (r returned, err error) {
	begun := time.Now()
	if err := f.controller.stop(); err != nil {
		return r, err
	}
	if err := f.control(); err != nil {
		return r, err
	}
	err = f.until(patience(n), "all hosts are connected again", func() (bool, error) {
		s, err := f.client.Status(f)
		return err == nil && s.Online >= n, err
	})
	r.took = time.Since(begun)
	if err != nil {
		return r, err
	}
	if err := f.await(n); err != nil {
		return r, err
	}
	for _, h := range f.hosts {
		r.reverted += h.reverted()
	}
	if f.simulated != nil {
		r.reverted += f.simulated.reverted()
	}
	return r, nil
}
