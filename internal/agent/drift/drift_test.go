package drift

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"sluice/internal/agent/alert"
	"sluice/internal/base/addrset"
	"sluice/internal/engine"
	"sluice/internal/engine/apply"
	"sluice/internal/lab/peers"
	"sluice/internal/lab/testnet"
	"sluice/internal/language/bans"
	"sluice/internal/system/kernel/netns"
)

// host is a namespace with a policy that lets in tcp/80, and tcp/7000 from one address.
type host struct {
	*engine.Host
	t            testing.TB
	net          *testnet.Namespace
	client       *testnet.Namespace
	file         string
	restores     bool
	keeps        atomic.Bool  // though it restores
	busy         atomic.Int32 // so many looks find somebody at work
	alerts       chan apply.Alert
	duringVerify func()
	verifyFails  func() error
	stop         func()
}

const policy = `version: 1
sets:
  friends: [10.0.0.2, 10.0.0.9, 10.0.1.0/24]
tracking: { table: { timeouts: { generic: 77s } } }
input:
  default: drop
  rules:
    - allow tcp/80
    - allow tcp/7000 from friends
output: { default: allow }
`

func newHost(t testing.TB) *host {
	t.Helper()
	testnet.Require(t, testnet.Nftables)
	lab := testnet.New(t)
	h := &host{t: t, net: lab.Unnamed("host"), client: lab.Unnamed("client"), alerts: make(chan apply.Alert, 1000)}
	lab.Join(testnet.End{In: h.net, Device: "eth0", Addresses: []string{"10.0.0.1/24"}}, testnet.End{In: h.client, Device: "eth0", Addresses: []string{"10.0.0.2/24"}})
	h.net.ServeTCP("10.0.0.1:80", "10.0.0.1:7000", "10.0.0.1:81")
	var err error
	if h.Host, err = engine.NewHost(t.TempDir(), "", "test"); err != nil {
		t.Fatal(err)
	}
	h.Watcher = []string{"/bin/sh", "-c", "echo armed >&3; while sleep 1; do :; done"}
	h.Wait = 10 * time.Minute
	if h.Netns, err = netns.Open(h.net.Path()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = h.Netns.Close() })
	h.file = filepath.Join(t.TempDir(), "policy.yaml")
	h.apply(policy)
	t.Cleanup(func() { h.end() })
	return h
}

func (h *host) apply(text string) {
	h.t.Helper()
	if err := os.WriteFile(h.file, []byte(text), 0o600); err != nil {
		h.t.Fatal(err)
	}
	if _, err := h.Apply(h.t.Context(), engine.Request{File: h.file}, apply.Options{Keep: true, Verify: true}); err != nil {
		h.t.Fatal(err)
	}
}

// begin has a Watcher look, with a restart where one did.
func (h *host) begin() {
	h.end()
	ctx, stop := context.WithCancel(context.Background())
	// What the test changes of its host is not the agent's.
	own, inner := *h.Host, *h.Host.Host
	own.Host = &inner
	w := &Watcher{
		Host: &own, Look: h.glimpse(own.Glimpse), poll: time.Second, rest: 100 * time.Millisecond,
		Verify: func(ctx context.Context) (*engine.Verified, error) {
			beside, inner := own, inner
			beside.Host, inner.Beside = &inner, true
			v, err := beside.Verify(ctx, nil, false)
			if h.duringVerify != nil {
				h.duringVerify()
			}
			if h.verifyFails != nil {
				err = errors.Join(err, h.verifyFails())
			}
			return v, err
		},
		Restores: func() bool { return !h.keeps.Load() },
		Alert:    func(a apply.Alert) { h.alerts <- a },
		Note:     func(err error) { h.t.Log("noted:", err) },
	}
	if h.restores {
		w.Restore = func(ctx context.Context, _ string) error {
			as, inner := own, inner
			as.Host, inner.By = &inner, apply.Author{Via: "agent"}
			_, err := as.Restore(ctx, apply.Restoring{})
			h.busy.Store(2)
			return err
		}
	}
	var running sync.WaitGroup
	running.Go(func() { _ = w.Run(ctx) })
	h.stop = func() { stop(); running.Wait() }
	for deadline := time.Now().Add(enough); ; time.Sleep(20 * time.Millisecond) {
		if found, err := h.Watched(); err == nil && found != nil && !found.Proved.IsZero() {
			return // what other tools had at first is known
		}
		if time.Now().After(deadline) {
			h.t.Fatal("nothing is looked at")
		}
	}
}

// glimpse is a look that finds somebody at work as often as busy says, as "sluice status"
// is for a moment.
func (h *host) glimpse(look func(context.Context) (*apply.Glimpse, error)) func(context.Context) (*apply.Glimpse, error) {
	return func(ctx context.Context) (*apply.Glimpse, error) {
		if h.busy.Add(-1) >= 0 {
			return nil, &apply.BusyError{Holder: "a test"}
		}
		return look(ctx)
	}
}

func (h *host) end() {
	if h.stop != nil {
		h.stop()
		h.stop = nil
	}
}

// enough is more than anything takes.
const enough = 5 * time.Minute

// next is the next alert, which has to be of an event.
func (h *host) next(event string) apply.Alert {
	h.t.Helper()
	select {
	case a := <-h.alerts:
		h.t.Logf("%s: %s", a.Event, a.Text)
		if a.Event != event {
			h.t.Fatalf("an alert of %q, want %q: %s", a.Event, event, a.Text)
		}
		return a
	case <-time.After(enough):
		h.t.Fatalf("there is no alert of %q", event)
	}
	return apply.Alert{}
}

// wantDrift awaits an alert of one kind that says something.
func (h *host) wantDrift(kind apply.FindingKind, text string) apply.Finding {
	h.t.Helper()
	a := h.next(alert.Drift)
	at := slices.IndexFunc(a.Findings, func(f apply.Finding) bool { return f.Kind == kind && strings.Contains(f.Text, text) })
	if at < 0 {
		h.t.Fatalf("nothing is found of %s with %q: %+v", kind, text, a.Findings)
	}
	return a.Findings[at]
}

// settled waits until all that was done is looked at: what comes next is seen then.
func (h *host) settled() {
	h.t.Helper()
	h.net.Nft("add table inet settled; add chain inet settled c { type filter hook input priority 7; policy drop; }")
	h.wantDrift(apply.FoundChain, "chain c of table inet settled")
	h.net.Nft("delete table inet settled")
	h.next(alert.Over)
}

// wantPorts tries which ports are open to the client.
func (h *host) wantPorts(ports ...uint16) {
	h.t.Helper()
	for _, port := range []uint16{80, 81, 7000} {
		open := slices.Contains(ports, port)
		try := testnet.TCPTry{To: netip.AddrPortFrom(netip.MustParseAddr("10.0.0.1"), port), Patience: enough}
		if !open {
			try.Patience = 500 * time.Millisecond
		}
		if r := h.client.TryTCP(try); (r.Outcome == testnet.Answered) != open {
			h.t.Errorf("port %d: %s", port, r)
		}
	}
}

// element is the name of the set that the friends are in.
func (h *host) set() string {
	h.t.Helper()
	for line := range strings.Lines(h.net.MustRun("nft", "-t", "list", "sets")) {
		if name, is := strings.CutPrefix(strings.TrimSpace(line), "set "); is && strings.Contains(name, "friends") {
			return strings.Fields(name)[0]
		}
	}
	h.t.Fatal("there is no set of friends")
	return ""
}

// What others change is told of in packets, with who did it, and once; and once when it is
// over.
func TestFound(t *testing.T) {
	h := newHost(t)
	h.begin()
	h.settled()
	h.wantPorts(80, 7000)
	for _, c := range []struct {
		name  string
		needs []testnet.Feature
		do    func()
		kind  apply.FindingKind
		text  string
		line  string
		ports []uint16
		undo  func() // nil: Restore
	}{
		{"flush", nil, func() { h.net.Nft("flush ruleset") }, apply.FoundGone, "every packet passes", "", []uint16{80, 81, 7000}, nil},
		{"rules of a chain", nil, func() { h.net.Nft("flush chain inet sluice input") }, apply.FoundPacket, "the kernel", "", nil, nil},
		{"element of a set", nil, func() { h.net.Nft("delete element inet sluice " + h.set() + " { 10.0.0.2 }") }, apply.FoundPacket, "10.0.0.2", "policy.yaml:9", []uint16{80}, nil},
		{"mark", nil, func() { h.net.Nft("delete table inet sluice_generation") }, apply.FoundMark, "sluice_generation", "", []uint16{80, 7000}, nil},
		{"sysctl", nil, func() { h.net.Sysctl("net.netfilter.nf_conntrack_generic_timeout", "78") }, apply.FoundSysctl, "is 78 and should be 77", "", []uint16{80, 7000}, nil},
		{"lifted exception", nil, h.loseException, apply.FoundException, "10.0.0.2 to tcp/81 is let in by the rules", "", []uint16{80, 81, 7000}, nil},
		{"foreign chain", nil, func() {
			h.net.Nft("table ip foreign { chain c { type filter hook input priority -5; tcp dport 80 drop; }; }")
		}, apply.FoundChain, "can drop", "", []uint16{7000}, func() { h.net.Nft("delete table ip foreign") }},
		{"legacy iptables", []testnet.Feature{testnet.Program("iptables-legacy"), testnet.IPTablesLegacy("filter")}, func() {
			h.net.MustRun("iptables-legacy", "-A", "INPUT", "-p", "tcp", "--dport", "80", "-j", "DROP")
		}, apply.FoundChain, "legacy iptables", "", []uint16{7000}, func() { h.net.MustRun("iptables-legacy", "-F", "INPUT") }},
		{"filter of tc", []testnet.Feature{testnet.Program("tc")}, func() {
			h.net.MustRun("tc", "qdisc", "add", "dev", "eth0", "clsact")
			if _, err := h.net.Run("tc", "filter", "add", "dev", "eth0", "ingress", "protocol", "ip", "u32", "match", "ip", "dport", "7000", "0xffff", "classid", "1:1"); err != nil {
				h.net.MustRun("tc", "qdisc", "del", "dev", "eth0", "clsact")
				testnet.Lacks(h.t, "filter u32 of tc", err)
			}
		}, apply.FoundBeside, "eth0", "", []uint16{80, 7000}, func() { h.net.MustRun("tc", "qdisc", "del", "dev", "eth0", "clsact") }},
	} {
		t.Run(c.name, func(t *testing.T) {
			testnet.Require(t, c.needs...)
			h.t = t
			c.do()
			f := h.wantDrift(c.kind, c.text)
			if !strings.Contains(f.Line, c.line) {
				t.Errorf("it is of %q, want %s", f.Line, c.line)
			}
			if byNft := strings.HasPrefix(f.By, "nft (process "); f.Since.IsZero() || byNft != (c.kind == apply.FoundGone || c.kind == apply.FoundPacket || c.kind == apply.FoundMark) && c.kind != apply.FoundChain {
				t.Errorf("%+v", f)
			}
			h.wantPorts(c.ports...)
			if c.undo == nil {
				c.undo = func() {
					if _, err := h.Restore(t.Context(), apply.Restoring{}); err != nil {
						t.Fatal(err)
					}
				}
			}
			c.undo()
			h.next(alert.Over)
			h.wantPorts(80, 7000)
		})
	}
	h.t = t
	// Another agent knows what was told.
	h.net.Nft("flush chain inet sluice input")
	h.wantDrift(apply.FoundPacket, "")
	h.begin()
	h.settled()
}

// loseException leaves an exception in the rules that nobody holds.
func (h *host) loseException() {
	h.t.Helper()
	what, err := addrset.ParseRange("10.0.0.2")
	if err == nil {
		_, err = h.Allow(h.t.Context(), engine.Allowing{What: what, Service: "tcp/81"})
	}
	if err == nil {
		err = os.Remove(filepath.Join(h.Dir, "exceptions.json"))
	}
	if err != nil {
		h.t.Fatal(err)
	}
}

// What Sluice's own commands do is no drift, whatever they do.
func TestCommandsAreNoDrift(t *testing.T) {
	h := newHost(t)
	h.begin()
	h.settled()
	ctx := t.Context()
	ban := func(text string) []bans.Named {
		r, err := addrset.ParseRange(text)
		if err != nil {
			t.Fatal(err)
		}
		return []bans.Named{{What: r}}
	}
	steps := map[string]func() error{
		"0 another policy":  func() error { h.apply(strings.ReplaceAll(policy, "tcp/80", "tcp/81")); return nil },
		"1 ban":             func() error { _, err := h.Ban(ctx, apply.Banning{List: ban("198.51.100.1")}); return err },
		"2 ban of a prefix": func() error { _, err := h.Ban(ctx, apply.Banning{List: ban("198.51.100.0/24")}); return err },
		"3 unban":           func() error { _, err := h.Unban(ctx, ban("198.51.100.1")); return err },
		"4 sync":            func() error { _, err := h.Sync(ctx); return err },
		"5 back":            func() error { _, err := h.Rollback(ctx, apply.Before, apply.Options{Keep: true}); return err },
		"6 not read back": func() error {
			if err := os.WriteFile(h.file, []byte(policy+"# again\n"+"forward: { default: drop }\n"), 0o600); err != nil {
				return err
			}
			_, err := h.Apply(ctx, engine.Request{File: h.file}, apply.Options{Keep: true})
			return err
		},
		"7 trial": func() error {
			if err := os.WriteFile(h.file, []byte(policy), 0o600); err != nil {
				return err
			}
			_, err := h.Apply(ctx, engine.Request{File: h.file}, apply.Options{Confirm: time.Hour, Verify: true})
			return err
		},
		"8 confirm": func() error { _, err := h.Confirm(ctx); return err },
		"9 remove":  func() error { _, err := h.Remove(ctx); return err },
	}
	var names []string
	for name := range steps {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		if err := steps[name](); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if name == "4 sync" || name == "8 confirm" {
			h.settled()
		}
	}
	h.apply(policy)
	h.settled()
	if n := len(h.alerts); n > 0 {
		t.Errorf("%d alerts: %s", n, (<-h.alerts).Text)
	}
}

// What another tool does while a command changes the rules, or while they are proved, is
// not taken for the command's.
func TestChangeMeanwhile(t *testing.T) {
	h := newHost(t)
	h.begin()
	h.settled()
	n := 0
	foreign := func() {
		n++
		h.net.Nft(fmt.Sprintf("table ip foreign%d { chain c { type filter hook input priority -5; tcp dport 81 drop; }; }", n))
	}
	gone := func() {
		h.t.Helper()
		h.net.Nft(fmt.Sprintf("delete table ip foreign%d", n))
		h.next(alert.Over)
	}
	told := false
	h.Progress = func(apply.Progress) {
		if !told {
			told = true
			foreign()
		}
	}
	h.apply(strings.ReplaceAll(policy, "tcp/80", "tcp/81"))
	h.Progress = nil
	if !told {
		t.Fatal("nothing happened meanwhile")
	}
	h.wantDrift(apply.FoundChain, "foreign1")
	gone()

	once := sync.OnceFunc(func() { h.net.Nft("flush chain inet sluice input") })
	h.end()
	h.duringVerify = once
	h.begin()
	foreign()
	h.wantDrift(apply.FoundPacket, "")
}

// What a command fixes while it is proved is no drift, also where that command is still at
// work behind the proof: what was read then is of two rulesets.
func TestFixedMeanwhile(t *testing.T) {
	h := newHost(t)
	h.begin()
	h.settled()
	h.end()
	fixed := make(chan struct{})
	h.duringVerify = sync.OnceFunc(func() {
		if _, err := h.Restore(t.Context(), apply.Restoring{}); err != nil {
			t.Error(err)
		}
		h.busy.Store(1)
		close(fixed)
	})
	h.begin()
	h.net.Nft("flush chain inet sluice input")
	select {
	case <-fixed:
	case <-time.After(enough):
		t.Fatal("nothing was proved")
	}
	h.settled()
}

// With restore, what should run is put back and proved, whoever is at work just then; three
// times in ten minutes, and no more until somebody restores it.
func TestRestore(t *testing.T) {
	h := newHost(t)
	h.restores = true
	h.begin()
	h.settled()
	ctx := t.Context()
	element := h.set()
	for i, do := range []func(){
		func() { h.net.Nft("flush ruleset") },
		func() { h.net.Nft("delete element inet sluice " + element + " { 10.0.0.2 }") },
		h.loseException,
	} {
		do()
		h.next(alert.Drift)
		h.next(alert.Restored)
		h.wantPorts(80, 7000)
		v, err := h.Verify(ctx, nil, true)
		if err != nil || !v.Proved {
			t.Fatalf("%d: %+v %v", i, v, err)
		}
		if i == 0 {
			h.begin() // it is remembered
		}
	}
	h.next(alert.Stopped)
	h.begin()
	h.net.Nft("flush ruleset")
	h.next(alert.Drift)
	h.begin()
	found, err := h.Watched()
	if err != nil || found.Stopped.IsZero() || len(found.Findings) != 1 {
		t.Errorf("%+v %v", found, err)
	}
	h.wantPorts(80, 81, 7000)
	if _, err := h.Restore(ctx, apply.Restoring{}); err != nil {
		t.Fatal(err)
	}
	h.next(alert.Over)
	h.net.Nft("flush ruleset")
	h.next(alert.Drift)
	h.next(alert.Restored)
	h.wantPorts(80, 7000)

	// Where nothing is put back, drift is reported all the same.
	h.keeps.Store(true)
	h.net.Nft("flush ruleset")
	h.next(alert.Drift)
	h.wantPorts(80, 81, 7000)
	if _, err := h.Restore(ctx, apply.Restoring{}); err != nil {
		t.Fatal(err)
	}
	h.next(alert.Over)
	h.keeps.Store(false)

	// A trial is not ended by it.
	if err := os.WriteFile(h.file, []byte(strings.ReplaceAll(policy, "tcp/80", "tcp/81")), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := h.Apply(ctx, engine.Request{File: h.file}, apply.Options{Confirm: time.Hour, Verify: true}); err != nil {
		t.Fatal(err)
	}
	h.net.Nft("flush chain inet sluice input")
	h.wantDrift(apply.FoundPacket, "")
	h.settled()
	if s, err := h.Status(ctx, false); err != nil || s.Pending == nil {
		t.Errorf("%+v %v", s, err)
	}
}

// Other firewalls that are started and stopped beside it.
func TestOthers(t *testing.T) {
	h := newHost(t)
	h.begin()
	h.settled()
	t.Run("firewalld", func(t *testing.T) {
		testnet.Require(t, testnet.Program("firewalld"), testnet.Program("firewall-cmd"), testnet.Program("dbus-daemon"))
		h.t = t
		f, err := peers.StartFirewalld(t.Context(), h.net, peers.FirewalldFiles(peers.Meaning{}))
		if err != nil {
			t.Fatal(err)
		}
		found := h.wantDrift(apply.FoundChain, "table inet firewalld")
		if !strings.Contains(found.By, "firewalld") {
			t.Errorf("by %q", found.By)
		}
		if err := f.Stop(); err != nil {
			t.Fatal(err)
		}
		h.net.Nft("delete table inet firewalld")
		h.over("firewalld")
		h.wantPorts(80, 7000)
	})
	t.Run("ufw", func(t *testing.T) {
		named, err := peers.Named("ufw")
		if err != nil {
			t.Fatal(err)
		}
		testnet.Require(t, named[0].Needs()...)
		h.t = t
		if err := named[0].Load(t.Context(), h.net, peers.Meaning{}); err != nil {
			t.Fatal(err)
		}
		h.wantDrift(apply.FoundChain, "chain INPUT")
		for _, program := range []string{"iptables", "ip6tables"} {
			h.net.MustRun(program, "-P", "INPUT", "ACCEPT")
			h.net.MustRun(program, "-P", "FORWARD", "ACCEPT")
			h.net.MustRun(program, "-F")
		}
		h.over("chain INPUT")
		h.wantPorts(80, 7000)
	})
	t.Run("docker", func(t *testing.T) {
		testnet.Require(t, peers.DockerNeeds()...)
		h.t = t
		docker, err := peers.StartDocker(t.Context(), h.net)
		if err != nil {
			t.Fatal(err)
		}
		running := true
		defer func() {
			if running {
				_ = docker.Stop()
			}
		}()
		h.wantDrift(apply.FoundChain, "FORWARD")
		h.wantPorts(80, 7000)
		if err := docker.Publish(t.Context(), 8081); err != nil {
			t.Fatal(err)
		}
		published := testnet.TCPTry{To: netip.MustParseAddrPort("10.0.0.1:8081"), Patience: enough}
		if r := h.client.TryTCP(published); r.Outcome != testnet.Answered {
			t.Errorf("the published port, where nothing says who is forwarded: %s", r)
		}
		h.wantPorts(80, 7000)
		running = false
		if err := docker.Stop(); err != nil {
			t.Fatal(err)
		}
		h.net.MustRun("iptables", "-P", "FORWARD", "ACCEPT")
		for _, table := range []string{"nat", "filter"} {
			h.net.MustRun("iptables", "-t", table, "-F")
			h.net.MustRun("iptables", "-t", table, "-X")
		}
		h.over("FORWARD")
		h.wantPorts(80, 7000)
	})
}

// over awaits that nothing is found any more that says something.
func (h *host) over(text string) {
	h.t.Helper()
	for deadline := time.Now().Add(enough); time.Now().Before(deadline); {
		select {
		case a := <-h.alerts:
			h.t.Logf("%s: %s", a.Event, a.Text)
		case <-time.After(100 * time.Millisecond):
		}
		found, err := h.Watched()
		if err != nil {
			h.t.Fatal(err)
		}
		if !slices.ContainsFunc(found.Findings, func(f apply.Finding) bool { return strings.Contains(f.Text, text) }) {
			h.settledAt(text)
			return
		}
	}
	h.t.Fatalf("%s is not over", text)
}

// settledAt takes the alert of what over saw written down.
func (h *host) settledAt(text string) {
	for {
		select {
		case a := <-h.alerts:
			h.t.Logf("%s: %s", a.Event, a.Text)
		case <-time.After(time.Second):
			return
		}
	}
}

// What cannot be proved is told of, and no reason to put anything back.
func TestUnproved(t *testing.T) {
	h := newHost(t)
	h.restores = true
	h.begin()
	h.settled()
	h.end()
	var fails atomic.Bool
	fails.Store(true)
	h.verifyFails = func() error {
		if fails.Load() {
			return errors.New("no memory")
		}
		return nil
	}
	h.begin()
	h.net.Nft("add table inet settled; add chain inet settled c { type filter hook input priority 7; policy drop; }")
	h.wantDrift(apply.FoundUnproved, "no memory")
	fails.Store(false)
	h.net.Nft("add table inet again")
	h.wantDrift(apply.FoundChain, "chain c of table inet settled")
	if a := h.next(alert.Over); !strings.Contains(a.Text, "no memory") {
		t.Error(a.Text)
	}
}
