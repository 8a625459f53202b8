package drift

import (
	"context"
	"errors"
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
	"sluice/internal/lab/testnet"
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

// settledAt takes the alert of what over saw recorded.
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
