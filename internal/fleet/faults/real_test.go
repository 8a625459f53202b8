package faults

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"sluice/internal/base/sorting"
	"sluice/internal/cli/command"
	"sluice/internal/fleet/api"
	"sluice/internal/fleet/cli"
	"sluice/internal/fleet/rollout"
	"sluice/internal/fleet/store"
	"sluice/internal/fleet/wire"
	"sluice/internal/lab/testnet"
)

// real is a fleet of processes in network namespaces: a controller and hosts, each on a link
// of its own to a router, which asks the hosts in packets what they enforce.
type real struct {
	*testing.T

	history    History
	router     *testnet.Namespace
	space      *testnet.Namespace // of the controller
	dir        string             // of the controller
	repository string
	keys       string
	database   string
	env        []string // of the controller
	controller *testnet.Process
	client     *api.Client
	machines   []*machine
	newest     int64        // bundle that was signed
	ports      atomic.Int64 // of bundles that somebody may enforce
	floors     map[int64]int64
	audit      audit
	ahead      time.Duration // of the controller's clock
	clock      string        // its file; "": the clock is right
	watching   sync.WaitGroup
	unwatch    context.CancelFunc
}

const (
	controllerAddress = "192.0.2.2:7443"
	routerAddress     = "192.0.2.1"
	// Bundle n lets packets to TCP port firstPort+n in, and to no other.
	firstPort = 7000
	// mostBundles is how many a test may sign.
	mostBundles = 16
	// A port that no bundle opens.
	closedPort = 9999
)

// newReal founds a fleet whose controller runs on a database; "" is SQLite in its directory.
func newReal(t *testing.T, database string) *real {
	// Folders go once no process of the network is left to write to them.
	f := &real{T: t, dir: filepath.Join(memory(t), "controller"), repository: filepath.Join(memory(t), "repository"), keys: memory(t), floors: map[int64]int64{}}
	states := []string{memory(t), memory(t)}
	net := testnet.New(t)
	f.router, f.space = net.Namespace("router"), net.Namespace("controller")
	f.database = cmp.Or(database, "sqlite:"+filepath.Join(f.dir, "fleet.db"))
	f.audit = audit{rollouts: map[int64]rollout.Rollout{}, unheard: true}
	f.router.Forward()
	net.Join(testnet.End{In: f.router, Device: "controller", Addresses: []string{routerAddress + "/24"}}, testnet.End{In: f.space, Device: "eth0", Addresses: []string{"192.0.2.2/24"}})
	f.space.Route("default4", routerAddress)
	for i, state := range states {
		h := &machine{f: f, id: fmt.Sprint("web-", i+1), space: net.Namespace(fmt.Sprint("web-", i+1)), state: state}
		h.at = netip.AddrFrom4([4]byte{198, 51, byte(100 + i), 2})
		gateway := h.at.Prev().String()
		net.Join(testnet.End{In: f.router, Device: h.id, Addresses: []string{gateway + "/24"}}, testnet.End{In: h.space, Device: "eth0", Addresses: []string{h.at.String() + "/24"}})
		h.space.Route("default4", gateway)
		for n := range mostBundles {
			h.space.ServeTCP(fmt.Sprint("0.0.0.0:", firstPort+n+1))
		}
		h.space.ServeTCP(fmt.Sprint("0.0.0.0:", closedPort))
		h.clock = filepath.Join(h.state, "clock")
		check(os.WriteFile(h.clock, []byte("0s"), 0o600))
		f.machines = append(f.machines, h)
	}
	f.must("init", "--fleet", fleetName, "--repository", f.repository, "--keys", f.keys, "--dir", f.dir, "--no-passphrase")
	f.write("fleet.yaml", strings.Replace(fleetFile, "[1 per class, 50%, 100%], settle: 5s, confirm: 10s, probes: [controller, tcp 192.0.2.7:443]", "[1 per class, 100%], settle: 1s, confirm: 30s, probes: [controller]", 1))
	f.client = api.NewClient(f.dir)
	f.run()
	return f
}

func (f *real) write(path, text string) {
	check(os.WriteFile(filepath.Join(f.repository, path), []byte(text), 0o600))
}

// command is one of sluice-controller's, in this process.
func (f *real) command(args ...string) (out string, err error) {
	var said, failed bytes.Buffer
	switch args[0] {
	case "sign", "publish", "token":
		args = append(args, "--repository", f.repository)
	}
	switch args[0] {
	case "token", "publish", "revoke", "rollout", "hosts":
		args = append(args, "--dir", f.dir)
	case "audit":
		args = append(args, "--database", f.database)
	}
	if status := command.Run(cli.Root(), args, nil, &said, &failed); status != 0 {
		err = fmt.Errorf("%v ends with %d: %s", args, status, &failed)
	}
	return said.String(), err
}

func (f *real) must(args ...string) string {
	f.Helper()
	out, err := f.command(args...)
	if err != nil {
		f.Fatal(err)
	}
	return out
}

// run starts the controller, and waits until it answers.
func (f *real) run() {
	f.Helper()
	if f.clock == "" {
		args := append(f.env, "sluice-controller", "run", "--dir", f.dir, "--listen", controllerAddress)
		if !strings.HasPrefix(f.database, "sqlite:") {
			args = append(args, "--database", f.database)
		}
		f.controller = f.space.Start("env", args...)
	} else {
		f.controller = f.space.Start("controller-at", f.dir, controllerAddress, f.database, f.clock)
	}
	f.until("the controller answers", func() string {
		select {
		case <-f.controller.Done():
			f.Fatalf("the controller has ended: %s", f.controller.Output())
		default:
		}
		_, err := f.client.Status(f.Context())
		return why(err)
	})
}

func why(err error) string {
	if err != nil {
		return err.Error()
	}
	return ""
}

// patience is no bound of what is tested, but of who waits for it.
const patience = 3 * time.Minute

// until waits for something, which says why it is not so yet.
func (f *real) until(what string, not func() string) {
	f.Helper()
	for begun := time.Now(); ; time.Sleep(50 * time.Millisecond) {
		reason := not()
		switch {
		case reason == "":
			return
		case time.Since(begun) > patience:
			f.tell()
			f.Fatalf("it never comes that %s: %s", what, reason)
		}
	}
}

// tell logs what happened.
func (f *real) tell() {
	for _, e := range f.history.Events() {
		f.Log(e)
	}
	f.Logf("controller: %s", f.controller.Output())
	for _, h := range f.machines {
		if h.agent != nil {
			f.Logf("%s: %s", h.id, h.agent.Output())
		}
	}
}

// signal is sent to the controller.
func (f *real) signal(s syscall.Signal) { check(syscall.Kill(f.controller.Pid(), s)) }

// kill ends the controller at once, and says what it has committed.
func (f *real) kill() {
	f.controller.Stop()
	f.harvest()
}

// harvest writes the history of what was committed.
func (f *real) harvest() {
	s := must(store.OpenExisting(f.Context(), f.database))
	f.audit.harvest(&f.history, s, f.floors, f.ahead)
	check(s.Close())
}

// token makes one that is good for so many hosts.
func (f *real) token(uses int) string {
	f.Helper()
	var made struct{ Token, ID string }
	check(json.Unmarshal([]byte(f.must("token", "create", "--labels", "role=web", "--for", "1h", "--uses", fmt.Sprint(uses), "--json")), &made))
	f.history.Add(Event{Kind: Acknowledged, What: "token " + made.ID})
	file := filepath.Join(memory(f.T), made.ID)
	check(os.WriteFile(file, []byte(made.Token), 0o600))
	return file
}

// join has all hosts be of the fleet, with their agents, and enforce a first bundle.
func (f *real) join() {
	f.Helper()
	token := f.token(len(f.machines))
	for _, h := range f.machines {
		if err := h.enrol(token, len(f.machines)); err != nil {
			f.Fatal(err)
		}
		h.start()
	}
	f.watch()
	f.release()
	f.all(f.newest)
}

// watch has what hosts enforce and believe recorded from now on.
func (f *real) watch() {
	ctx, stop := context.WithCancel(context.Background())
	f.unwatch = stop
	for _, h := range f.machines {
		f.watching.Go(func() { h.watch(ctx) })
	}
	f.Cleanup(func() {
		stop()
		f.watching.Wait()
	})
}

// sign signs the next bundle. The one before it is the oldest that is still allowed.
func (f *real) sign(more ...string) {
	f.Helper()
	n := f.newest + 1
	f.ports.Store(n)
	f.write("parts/10-base.yaml", fmt.Sprintf("version: 1\ninput: {default: reject, rules: [allow tcp/%d]}\nexpect: [deny tcp/%d]\n", firstPort+n, closedPort))
	args := []string{"sign", "--key", filepath.Join(f.keys, "policy.pem")}
	if floor := f.newest; floor > 0 {
		args, f.floors[n] = append(args, "--floor", fmt.Sprint(floor)), floor
	}
	f.history.Add(Event{Kind: Signed, Bundle: n, Content: content(n), Floor: f.floors[n]})
	f.must(append(args, more...)...)
	f.newest = n
}

// content is what packets see of a bundle.
func content(bundle int64) string { return fmt.Sprint("tcp/", firstPort+bundle) }

// publish gives what was signed last to the controller.
func (f *real) publish() error {
	_, err := f.command("publish")
	if err == nil {
		f.history.Add(Event{Kind: Acknowledged, What: fmt.Sprint("bundle ", f.newest)})
	}
	return err
}

// release signs and publishes.
func (f *real) release(more ...string) {
	f.Helper()
	f.sign(more...)
	if err := f.publish(); err != nil {
		f.tell()
		f.Fatal(err)
	}
}

// all waits until each host enforces and proves a bundle.
func (f *real) all(bundle int64) {
	f.Helper()
	f.until(fmt.Sprintf("all prove bundle %d", bundle), func() string {
		for _, h := range f.machines {
			if h.left {
				continue
			}
			is, reason := h.how()
			if is != bundle {
				reason = cmp.Or(reason, "another one is desired")
			}
			if reason != "" {
				return fmt.Sprintf("%s enforces %d: %s", h.id, is, reason)
			}
		}
		return ""
	})
}

// end is behind the last fault: all hosts come to run what is desired, and after that the
// newest bundle, or one more; then the whole history is judged.
func (f *real) end() {
	f.Helper()
	f.history.Add(Event{Kind: Calm})
	for _, h := range f.machines {
		if h.left {
			continue
		}
		is, failed := h.how()
		for begun := time.Now(); failed != "" && time.Since(begun) < patience; is, failed = h.how() {
			time.Sleep(50 * time.Millisecond)
		}
		wants := must(f.client.Hosts(f.Context(), "host="+h.id)).Hosts[0].Desired
		if wants == 0 || failed == "" {
			wants = is // nobody told it anything since an older database was restored, or it says why not
		}
		f.history.Add(Event{Kind: Ended, Host: h.id, Bundle: is, Wants: wants, Error: failed})
	}
	if !testing.Short() || slices.ContainsFunc(f.machines, func(h *machine) bool { return !h.left && h.enforces() != f.newest }) {
		f.release()
		f.all(f.newest)
	}
	f.judge()
}

// judge ends the fleet, and holds its history against what was promised.
func (f *real) judge() {
	f.Helper()
	broken := f.judged()
	if len(broken) > 0 {
		f.tell()
	}
	for _, v := range broken {
		f.Error(v)
	}
}

func (f *real) judged() []Violation {
	if f.unwatch != nil {
		f.unwatch()
	}
	f.watching.Wait()
	f.harvest()
	s := must(store.OpenExisting(f.Context(), f.database))
	finds(f.Context(), &f.history, s)
	check(s.Close())
	sorting.StableBy(f.history.events, func(a, b Event) int { return a.At.Truncate(time.Microsecond).Compare(b.At.Truncate(time.Microsecond)) })
	return Check(&f.history)
}

// cut has the router lose what goes from one address to another.
func (f *real) cut(from, to netip.Addr) {
	f.router.Nft(fmt.Sprintf("table ip cut { chain forward { type filter hook forward priority 0; ip saddr %s ip daddr %s drop; }; }", from, to))
}

func (f *real) fix() { f.router.MustRun("nft", "delete", "table", "ip", "cut") }

var controllerHost = netip.MustParseAddrPort(controllerAddress).Addr()

func (f *real) key(h *machine) string { return wire.Hash(must(os.ReadFile(h.path("key.pem")))) }
