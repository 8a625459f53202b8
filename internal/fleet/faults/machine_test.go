package faults

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	agent "sluice/internal/agent/fleet"
	"sluice/internal/fleet/api"
	"sluice/internal/fleet/trust"
	"sluice/internal/fleet/wire"
	"sluice/internal/lab/testnet"
)

// machine is a host in a network namespace, with its agent and the rules of the kernel.
type machine struct {
	f     *real
	id    string
	space *testnet.Namespace
	at    netip.Addr
	state string
	clock string // the file of its clock
	env   []string
	left  bool // it is no more of the fleet, and nothing is asked of it
	agent *testnet.Process

	mutex   sync.Mutex
	runs    seen // by its packets
	before  seen
	trial   bool // what runs was not confirmed yet
	took    wire.Order
	floor   int64
	trusted time.Time // when the file of what it believes was written
}

// seen is what packets see.
type seen struct {
	bundle  int64 // 0: all ports are open; -1: it is not a bundle
	content string
}

// path is that of a file of the fleet's half.
func (h *machine) path(name string) string {
	return filepath.Join(h.state, "netns", h.space.Name(), "fleet", name)
}

// command is one of Sluice.
func (h *machine) command(args ...string) []string {
	out := append([]string{clockVariable + "=" + h.clock}, h.env...)
	if testing.Short() {
		out = append(out, hurryVariable+"=1")
	}
	out = append(out, "sluice")
	return append(append(out, args...), "--netns", h.space.Name(), "--state-dir", h.state)
}

func (h *machine) socket() string { return filepath.Join(h.state, "socket") }

// enrol has it be of the fleet by a token that is good for so many.
func (h *machine) enrol(token string, uses int) error {
	out, err := h.space.Run("env", h.command("agent", "enrol", "https://"+controllerAddress, "--token-file", token, "--name", h.id)...)
	if err != nil {
		return fmt.Errorf("%w\n%s", err, out)
	}
	h.f.history.Add(Event{Kind: Enrolled, Host: h.id, Token: filepath.Base(token), Uses: uses, Key: h.f.key(h)})
	h.f.history.Add(Event{Kind: Acknowledged, What: "host " + h.id})
	return nil
}

func (h *machine) start() {
	h.agent = h.f.router.Start("env", h.command("agent", "--socket", h.socket())...)
}

// setClock sets the clock of the host.
func (h *machine) setClock(ahead time.Duration) {
	check(os.WriteFile(h.clock+".new", []byte(ahead.String()), 0o600))
	check(os.Rename(h.clock+".new", h.clock))
}

// watch records what packets see, and what the agent believes and acts by.
func (h *machine) watch(ctx context.Context) {
	for ; ctx.Err() == nil; wait(ctx, 200*time.Millisecond) {
		h.look()
		h.read()
	}
}

// look has the host be asked in packets.
func (h *machine) look() {
	var now seen
	for range 5 { // it may have changed between two of the packets
		var known bool
		if now, known = h.ask(); known {
			break
		}
	}
	h.mutex.Lock()
	defer h.mutex.Unlock()
	switch {
	case now == h.runs, now.bundle == 0 && h.runs.bundle == 0:
		return
	case h.trial && now == h.before:
		h.trial = false
		h.f.history.Add(Event{Kind: WentBack, Host: h.id, Bundle: now.bundle, Content: now.content})
	default:
		h.before, h.trial = h.runs, true
		h.f.history.Add(Event{Kind: Enforced, Host: h.id, Bundle: now.bundle, Content: now.content})
	}
	h.runs = now
}

// ask makes a connection to each port that a bundle may have opened, and to one that none does.
func (h *machine) ask() (now seen, known bool) {
	var open []string
	for n := range h.f.ports.Load() + 1 {
		if h.opens(firstPort + n + 1) {
			open = append(open, content(n+1))
			now = seen{n + 1, content(n + 1)}
		}
	}
	switch {
	case h.opens(closedPort):
		return seen{0, "everything"}, true
	case len(open) == 1:
		return now, true
	}
	return seen{-1, "nothing but " + strings.Join(open, ", ")}, false
}

func (h *machine) opens(port int64) bool {
	return h.f.router.TryTCP(testnet.TCPTry{To: netip.AddrPortFrom(h.at, uint16(port)), Patience: 10 * time.Second}).Outcome == testnet.Answered //nolint:gosec // one of ours
}

// read reads what the agent keeps.
func (h *machine) read() {
	var is agent.State
	text, err := os.ReadFile(h.path("state.json"))
	if err == nil {
		err = json.Unmarshal(text, &is)
	}
	if err != nil {
		return // it is not of a fleet yet
	}
	h.mutex.Lock()
	defer h.mutex.Unlock()
	if order := is.Report.Order; order != h.took {
		h.took = order
		h.f.history.Add(Event{Kind: Took, Host: h.id, Order: order})
	}
	if r := is.Report; h.trial && r.State == wire.StateConfirmed && r.Running == h.runs.bundle {
		h.trial = false
		h.f.history.Add(Event{Kind: Final, Host: h.id})
	}
	file, err := os.Stat(h.path("trust.json"))
	if err != nil || file.ModTime().Equal(h.trusted) {
		return
	}
	h.trusted = file.ModTime()
	believed, err := trust.OpenHost(filepath.Dir(h.path("trust.json")))
	if err != nil {
		h.f.history.Add(Event{Kind: Audited, Error: err.Error()})
		return
	}
	if floor := believed.State().Floor; floor != h.floor {
		h.floor = floor
		h.f.history.Add(Event{Kind: Heard, Host: h.id, Floor: floor})
	}
}

// enforces is the bundle that packets see.
func (h *machine) enforces() int64 {
	h.mutex.Lock()
	defer h.mutex.Unlock()
	return h.runs.bundle
}

// how is what it enforces, and why that is not how it shall be: "" where it is.
func (h *machine) how() (bundle int64, reason string) {
	bundle = h.enforces()
	hosts, err := h.f.client.Hosts(h.f.Context(), "host="+h.id)
	if err != nil {
		return bundle, err.Error()
	}
	if len(hosts.Hosts) != 1 {
		return bundle, "the controller does not know it"
	}
	is := hosts.Hosts[0]
	switch {
	case is.State == api.None && is.Online:
		return bundle, "" // nobody told it anything since the database was restored
	case is.State != api.Proved && is.State != api.Refused:
		return bundle, fmt.Sprintf("it is %s: %s", is.State, is.Reason)
	case is.State == api.Refused:
		return bundle, "" // it says why, and keeps what it had
	case is.Desired != bundle:
		return bundle, cmp.Or(is.Reason, fmt.Sprintf("bundle %d is desired", is.Desired))
	}
	return bundle, ""
}

// hears waits until "sluice status" says something of the fleet there.
func (h *machine) hears(text string) {
	h.f.Helper()
	h.f.until(fmt.Sprintf("%s says %q", h.id, text), func() string {
		out, err := h.space.Run("env", h.command("status")...)
		if err != nil {
			return err.Error()
		}
		if !strings.Contains(out, text) {
			time.Sleep(time.Second) // a command costs more than a look
			return out
		}
		return ""
	})
}

// fill has the file system of a folder take so many pages more; what it returns makes room
// again.
func fill(t *testing.T, dir string, room int64) (empty func()) {
	t.Helper()
	ballast := filepath.Join(dir, "ballast")
	file := must(os.Create(ballast))
	page := make([]byte, 4096)
	var err error
	pages := int64(-1) // the last one does not fit
	for ; err == nil; pages++ {
		_, err = file.Write(page)
	}
	check(file.Truncate((pages - room) * int64(len(page))))
	check(file.Close())
	if !errors.Is(err, syscall.ENOSPC) {
		t.Fatal(err)
	}
	return func() { check(os.Remove(ballast)) }
}
