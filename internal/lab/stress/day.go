package stress

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"sluice/internal/agent/api"
	"sluice/internal/agent/client"
	"sluice/internal/base/addrset"
	"sluice/internal/engine/apply"
	"sluice/internal/lab/testnet"
	"sluice/internal/language/bans"
)

// dayHours is how many hours an agent's day has, each as full as it gets.
const dayHours = 24

// Hours at whose end the agent is measured; it is restarted behind the second one, and then
// every restartHours.
const (
	firstHour    = 3
	oldHour      = 11
	restartHours = 4
)

// fullHistory is how many generations there are at least before the first hour, so that
// for each that comes one goes; it is even.
const fullHistory = 20

// Of what an agent holds.
const (
	agentMemory  = "memory of the agent"  // not backed by files, in bytes
	agentLive    = "live MB of the agent" // what is left behind a collection
	agentThreads = "threads of the agent"
	agentFiles   = "file descriptors of the agent"
	bansInForce  = "bans in force"
	journalBytes = "bytes in the journal of bans"
)

const (
	listSet = "listed"
	// startTime is how long an agent may take to answer on a busy machine.
	startTime = time.Minute
	// patience is how long one change waits for another at most.
	patience = 5 * time.Minute
	// leftTime is how long what has ended may take to be gone.
	leftTime = 2 * time.Minute
)

// dayPolicies alternate: one more rule, and another default.
var dayPolicies = [2]string{"drop", "reject"}

const dayPolicy = `version: 1
zones:
  uplink: { interfaces: [default-route] }
sets:
  listed: { url: "http://` + listAddress + `/list.txt", refresh: 1h }
input:
  default: %s
  rules:
    - drop udp/7000 from listed
    - allow ssh in uplink
`

// lived is what came of an agent's day.
type lived struct {
	Hours      int           `json:"hours"`
	Wall       time.Duration `json:"wall-ns"`
	Bans       int           `json:"bans"`
	Lifted     int           `json:"lifted"`
	Moves      int           `json:"moved-routes"`
	Refreshes  int           `json:"refreshes"`
	Applies    int           `json:"applies"`
	Strangers  int           `json:"changes-by-others"`
	Namespaces int           `json:"namespaces-made-and-deleted"`
	Halves     int           `json:"half-requests"`
	Restarts   int           `json:"restarts"`
	Kills      int           `json:"kills"`
	Lost       []string      `json:"lost"`
	// Growth is by the same process, Restarted by those that came behind it.
	Growth    []growth `json:"growth"`
	Restarted []growth `json:"growth-over-restarts"`
}

// day is one agent's day under way.
type day struct {
	*Run
	*lab
	out          *lived
	dir, state   string
	socket, file string
	door         *client.Host // with the connection that is kept
	agent        *exec.Cmd
	ended        chan error
	served       *list
	hour         time.Duration
	next         uint32 // number of the address that is banned next
	standing     []netip.Addr
	policy       int
}

// live lets an agent live through so many hours, each of which takes this long.
func (r *Run) live(ctx context.Context, n *testnet.Net, hours int, hour time.Duration) (out *lived, err error) {
	l, err := newLab(n)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, l.close()) }()
	d := &day{Run: r, lab: l, out: &lived{}, hour: hour, served: &list{size: [2]int{8_000, 2_000}}}
	if d.dir, err = r.folder(); err != nil {
		return nil, err
	}
	d.state, d.socket, d.file = filepath.Join(d.dir, "state"), filepath.Join(d.dir, "agent.sock"), filepath.Join(d.dir, "agent.yaml")
	d.door = &client.Host{Socket: d.socket, Namespace: l.host.Name(), Meant: api.Meant{State: d.state, Wait: patience}}
	if err := os.WriteFile(d.file, []byte("version: 1\n"), 0o600); err != nil {
		return nil, err
	}
	listener, err := l.host.Listen(listAddress)
	if err != nil {
		return nil, err
	}
	server := &http.Server{Handler: d.served, ReadHeaderTimeout: time.Minute}
	go func() { _ = server.Serve(listener) }() // it ends with Close
	defer func() { err = errors.Join(err, server.Close()) }()
	if err := d.start(); err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, d.stop(syscall.SIGTERM)) }()
	for range fullHistory / 2 {
		if err := errors.Join(d.apply(ctx), d.refresh(ctx)); err != nil {
			return nil, err
		}
	}

	begun := time.Now()
	var first, old footprint
	for h := 1; h <= hours; h++ {
		if err := d.live(ctx, h > oldHour && h%restartHours == 2); err != nil {
			return nil, fmt.Errorf("hour %d: %w", h, err)
		}
		if h > firstHour && r.enough() {
			hours = h
		}
		d.out.Hours++
		r.progress("hour", h, hours)
		at := min(firstHour, hours-1)
		if h == at || h == min(oldHour, hours) || h == hours {
			now, err := d.footprint(ctx)
			if err != nil {
				return nil, fmt.Errorf("hour %d: %w", h, err)
			}
			switch {
			case h == at:
				first = now
			case h <= oldHour:
				d.out.Growth = grown(first, now)
				old = now
			default:
				d.out.Restarted = grown(old, now)
			}
		}
		if h >= oldHour && h < hours && h%restartHours == 0 {
			if err := errors.Join(d.stop(syscall.SIGTERM), d.start()); err != nil {
				return nil, err
			}
			d.out.Restarts++
		}
	}
	d.out.Wall = time.Since(begun)
	return d.out, nil
}

// start starts the agent and waits for its answer.
func (d *day) start() error {
	log, err := os.OpenFile(filepath.Join(d.dir, "log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer func() { _ = log.Close() }()
	d.agent = exec.Command(d.Binary, "agent", "--netns", d.host.Name(), "--state-dir", d.state, "--socket", d.socket, "--config", d.file)
	d.agent.Stdout, d.agent.Stderr, d.agent.SysProcAttr = log, log, processAttributes()
	d.agent.Env = append(os.Environ(), "GODEBUG=gctrace=1")
	if err := d.agent.Start(); err != nil {
		return err
	}
	ended := make(chan error, 1)
	go func(c *exec.Cmd) { ended <- c.Wait() }(d.agent)
	d.ended = ended
	for until := time.Now().Add(startTime); ; time.Sleep(20 * time.Millisecond) {
		c, err := net.Dial("unix", d.socket)
		if err == nil {
			return c.Close()
		}
		if time.Now().After(until) {
			return fmt.Errorf("the agent does not answer: %w", err)
		}
	}
}

// stop ends the agent.
func (d *day) stop(by syscall.Signal) error {
	if err := d.agent.Process.Signal(by); err != nil {
		return err
	}
	err := <-d.ended
	if by == syscall.SIGKILL {
		return nil
	}
	return err
}

// command runs sluice as anybody would.
func (d *day) command(ctx context.Context, args ...string) error {
	c := exec.CommandContext(ctx, d.Binary, append(args, "--netns", d.host.Name(), "--state-dir", d.state, "--wait", patience.String())...)
	c.Env = append(os.Environ(), "SLUICE_SOCKET="+d.socket)
	if text, err := c.CombinedOutput(); err != nil {
		return fmt.Errorf("sluice %s: %w\n%s", args[0], err, text)
	}
	return nil
}

func (d *day) apply(ctx context.Context) error {
	file := filepath.Join(d.dir, "policy.yaml")
	d.policy = 1 - d.policy
	if err := os.WriteFile(file, fmt.Appendf(nil, dayPolicy, dayPolicies[d.policy]), 0o600); err != nil {
		return err
	}
	return d.command(ctx, "apply", file, "--no-confirm")
}

// refresh gets another version of the list.
func (d *day) refresh(ctx context.Context) error {
	d.served.next()
	return d.command(ctx, "refresh", listSet)
}

// move makes the default route of IPv4 lead out of one device or the other.
func (d *day) move(ctx context.Context, gateway, device string) error {
	_, err := d.host.RunContext(ctx, "", "ip", "route", "replace", "default", "via", gateway, "dev", device)
	return err
}

// live is one hour: all that happens does so at the same time. In some the agent is killed
// in the middle.
func (d *day) live(ctx context.Context, killed bool) error {
	ctx, stop := context.WithTimeout(ctx, 10*d.hour+patience)
	defer stop()
	until := time.Now().Add(d.hour)
	var all sync.WaitGroup
	var mutex sync.Mutex
	var errs []error
	begin := func(count *int, each int, pause time.Duration, do func() error) {
		all.Go(func() {
			for done := 0; done == 0 || time.Now().Before(until); done++ {
				if err := do(); err != nil {
					mutex.Lock()
					errs = append(errs, err)
					mutex.Unlock()
					return
				}
				*count += each
				time.Sleep(pause)
			}
		})
	}
	var generation sync.Mutex // a refresh refuses beside an apply
	begin(&d.out.Applies, 1, d.hour/4, func() error {
		generation.Lock()
		defer generation.Unlock()
		return d.apply(ctx)
	})
	begin(&d.out.Refreshes, 1, d.hour/12, func() error {
		generation.Lock()
		defer generation.Unlock()
		return d.refresh(ctx)
	})
	var standing []netip.Addr
	if !killed {
		begin(&d.out.Bans, batch, 0, d.banner(ctx, &standing))
	}
	moves := 0
	begin(&d.out.Moves, 1, d.hour/60, func() error {
		if moves++; moves%2 == 1 {
			return d.move(ctx, insideV4, lan)
		}
		return d.move(ctx, clientV4, wan)
	})
	begin(&d.out.Strangers, 1, d.hour/60, func() error {
		_, err := d.host.RunContext(ctx, "add table inet stranger; add set inet stranger s { type ipv4_addr; }; add element inet stranger s { 192.0.2.99 }; delete table inet stranger\n", "nft", "-f", "-")
		return err
	})
	begin(&d.out.Namespaces, 1, d.hour/6, func() error {
		name := d.host.Name() + "x"
		_, err := d.host.RunContext(ctx, "", "sh", "-c", "ip netns add "+name+" && ip netns del "+name)
		return err
	})
	begin(&d.out.Halves, 1, 20*time.Millisecond, func() error {
		c, err := net.Dial("unix", d.socket)
		if err != nil {
			return err
		}
		_, _ = io.WriteString(c, "POST /v1/namespaces/"+d.host.Name()+"/bans HTTP/1.1\r\nHost: s\r\nContent-Length: 100\r\n\r\n{")
		return c.Close()
	})
	all.Wait()
	if err := errors.Join(errs...); err != nil {
		return err
	}
	if killed {
		return d.kill(ctx)
	}
	return d.lift(ctx, standing)
}

// banned at a time, of which every second one ends by itself.
const batch = 10

// banner bans a batch of addresses each time.
func (d *day) banner(ctx context.Context, standing *[]netip.Addr) func() error {
	return func() error {
		for _, lasts := range []time.Duration{0, time.Second} {
			in := apply.Banning{For: lasts}
			for range batch / 2 {
				a := address(4, 9, d.next*4)
				d.next++
				in.List = append(in.List, bans.Named{What: addrset.Range{From: a, To: a}, Reason: "seen"})
				if lasts == 0 {
					*standing = append(*standing, a)
				}
			}
			if _, err := d.door.Ban(ctx, in); err != nil {
				return err
			}
		}
		return nil
	}
}

// lift lifts what the hour before banned; what this hour did stands until the next one.
func (d *day) lift(ctx context.Context, standing []netip.Addr) error {
	var what []bans.Named
	for _, a := range d.standing {
		what = append(what, bans.Named{What: addrset.Range{From: a, To: a}})
	}
	d.out.Lifted += len(what)
	d.standing = standing
	if len(what) == 0 {
		return nil
	}
	_, err := d.door.Unban(ctx, what)
	return err
}

// kill kills the agent while it bans. What it had answered has to be in force behind that.
func (d *day) kill(ctx context.Context) error {
	var standing []netip.Addr
	banned := make(chan int)
	go func() {
		n := 0
		for ; ; n++ {
			a := address(4, 9, d.next*4)
			d.next++
			if _, err := d.door.Ban(ctx, apply.Banning{List: []bans.Named{{What: addrset.Range{From: a, To: a}}}}); err != nil {
				break
			}
			standing = append(standing, a)
		}
		banned <- n
	}()
	time.Sleep(d.hour / 10)
	err := d.stop(syscall.SIGKILL)
	d.out.Kills++
	d.out.Bans += <-banned
	if err := errors.Join(err, d.start()); err != nil {
		return err
	}
	list, err := d.door.Bans(ctx)
	if err != nil {
		return err
	}
	there := map[netip.Addr]bool{}
	for _, b := range list {
		if r, err := addrset.ParseRange(b.What); err == nil {
			there[r.From] = true
		}
	}
	for _, a := range append(standing, d.standing...) {
		if !there[a] {
			d.out.Lost = append(d.out.Lost, a.String())
		}
	}
	return d.lift(ctx, standing)
}

// footprint is what is held when nothing is banned, the first policy runs, and what ended
// is gone.
func (d *day) footprint(ctx context.Context) (footprint, error) {
	if d.policy != 0 {
		if err := d.apply(ctx); err != nil {
			return nil, err
		}
	}
	if err := d.move(ctx, clientV4, wan); err != nil {
		return nil, err
	}
	list, err := d.door.Bans(ctx)
	if err != nil {
		return nil, err
	}
	d.standing = nil
	for _, b := range list {
		r, err := addrset.ParseRange(b.What)
		if err != nil {
			return nil, err
		}
		d.standing = append(d.standing, r.From)
	}
	if err := d.lift(ctx, nil); err != nil {
		return nil, err
	}
	f := footprint{}
	for until := time.Now().Add(leftTime); ; time.Sleep(time.Second) {
		list, err := d.door.Bans(ctx)
		if err != nil {
			return nil, err
		}
		if f[bansInForce] = int64(len(list)); len(list) == 0 || time.Now().After(until) {
			break
		}
	}
	if err := files(d.state, f); err != nil {
		return nil, err
	}
	journal, err := os.Stat(filepath.Join(d.state, "netns", d.host.Name(), "bans.journal"))
	if err != nil {
		return nil, err
	}
	f[journalBytes] = journal.Size()
	f[stateBytes] -= f[journalBytes]
	// Until it has given back what the hour took: it does so when it did nothing for 10 s,
	// and looks for drift every 30 s.
	for steady := 0; steady < 45; time.Sleep(time.Second) {
		now, err := d.held()
		if err := errors.Join(err, d.objects(now), d.processes(now)); err != nil {
			return nil, err
		}
		steady++
		for name, n := range now {
			if old, known := f[name]; !known || n < old {
				f[name], steady = n, 0
			}
		}
	}
	return f, nil
}

// wrong is what must not be, in words.
func (d *lived) wrong() (out []string) {
	for _, a := range d.Lost {
		out = append(out, a+": its ban was answered, and is gone behind a kill")
	}
	for about, list := range map[string][]growth{"": d.Growth, " over restarts": d.Restarted} {
		for _, g := range list {
			if g.Grown {
				out = append(out, fmt.Sprintf("%s%s: grew from %d to %d", g.What, about, g.Before, g.After))
			}
		}
	}
	return out
}

func (d *lived) print(w io.Writer) {
	fmt.Fprintf(w, "  %d hours in %.0f s: %d bans, %d of them lifted, %d moved routes, %d refreshes, %d applies\n",
		d.Hours, d.Wall.Seconds(), d.Bans, d.Lifted, d.Moves, d.Refreshes, d.Applies)
	fmt.Fprintf(w, "  %d changes by others, %d namespaces made and deleted, %d half requests, %d restarts, %d kills\n",
		d.Strangers, d.Namespaces, d.Halves, d.Restarts, d.Kills)
	printGrowth(w, d.Growth)
	if d.Restarted != nil {
		fmt.Fprintln(w, "  over restarts")
		printGrowth(w, d.Restarted)
	}
}
