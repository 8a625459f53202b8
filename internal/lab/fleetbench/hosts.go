package fleetbench

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/fsnotify/fsnotify"
	"github.com/prometheus/procfs"

	"sluice/internal/fleet/wire"
	"sluice/internal/lab/product"
	"sluice/internal/lab/stats"
	"sluice/internal/lab/testnet"
)

// host is one with an agent and a kernel.
type host struct {
	name   string
	sluice product.Sluice
	space  *testnet.Namespace
	agent  *program
	dir    string // what it is in the fleet

	mutex  sync.Mutex
	report wire.Report
	when   map[wire.State]time.Time // of the bundle of report
	back   int                      // how often it went back
	live   time.Duration            // what a ban took
}

// Took is how long a host took for a bundle.
type Took struct {
	Load    time.Duration `json:"load"`    // until the kernel was proved to do it
	Confirm time.Duration `json:"confirm"` // from there until it was confirmed
	// Live is what a ban took from the request until it was proved, of this host alone.
	Live time.Duration `json:"live"`
}

// host makes one, without an agent.
func (f *fleet) host(label string) *host {
	h := &host{name: label, sluice: product.Sluice{Binary: f.Sluice, State: f.path(label)}, space: f.net.Namespace(label), when: map[wire.State]time.Time{}}
	h.dir = filepath.Join(h.sluice.State, "netns", h.space.Name(), "fleet")
	return h
}

// serve has an agent run on a host, in a group.
func (f *fleet) serve(h *host) error {
	h.agent = f.program(f.agents, f.Sluice, "agent", "--socket", h.sluice.State+".socket", "--netns", h.space.Name(), "--state-dir", h.sluice.State)
	f.done = append(f.done, h.agent.stop)
	return h.agent.Start()
}

// enrol has the hosts be of the fleet.
func (f *fleet) enrol() error {
	var err error
	if f.agents, err = f.group("agents"); err != nil {
		return err
	}
	watcher, err := fsnotify.NewWatcher()
	if err != nil {
		return err
	}
	f.done = append(f.done, watcher.Close)
	go f.observe(watcher)
	for i, h := range f.hosts {
		if err := f.serve(h); err != nil {
			return err
		}
		if _, err := h.sluice.Must(f, h.space, "agent", "enrol", "https://"+controllerAt, "--token-file", f.tokenFile(), "--name", fmt.Sprintf("host-%d", i)); err != nil {
			return err
		}
		if err := watcher.Add(h.dir); err != nil {
			return err
		}
	}
	return nil
}

// observe follows what the agents record of what they do.
func (f *fleet) observe(watcher *fsnotify.Watcher) {
	for e := range watcher.Events {
		if filepath.Base(e.Name) != "state.json" {
			continue
		}
		now := time.Now()
		i := slices.IndexFunc(f.hosts, func(h *host) bool { return h.dir == filepath.Dir(e.Name) })
		var is struct {
			Report wire.Report `json:"report"`
		}
		text, err := os.ReadFile(e.Name)
		if i < 0 || err != nil || json.Unmarshal(text, &is) != nil {
			continue // it is rewritten
		}
		f.hosts[i].saw(is.Report, now)
	}
}

func (h *host) saw(r wire.Report, now time.Time) {
	h.mutex.Lock()
	defer h.mutex.Unlock()
	if r.Bundle != h.report.Bundle || r.Rollout != h.report.Rollout {
		clear(h.when)
	}
	if _, known := h.when[r.State]; !known {
		h.when[r.State] = now
		if r.State == wire.StateReverted || r.State == wire.StateRefused {
			h.back++
		}
	}
	h.report = r
}

// has says whether a bundle is confirmed.
func (h *host) has(bundle int64) bool {
	h.mutex.Lock()
	defer h.mutex.Unlock()
	return h.report.Bundle == bundle && h.report.State == wire.StateConfirmed
}

func (h *host) failed() error {
	h.mutex.Lock()
	defer h.mutex.Unlock()
	if s := h.report.State; s == wire.StateRefused || s == wire.StateReverted {
		return fmt.Errorf("%s has %s bundle %d: %s", h.name, s, h.report.Bundle, h.report.Error)
	}
	return nil
}

func (h *host) reverted() int {
	h.mutex.Lock()
	defer h.mutex.Unlock()
	return h.back
}

// took is what its last bundle took. A step that was over before anybody could look counts
// to the next one.
func (h *host) took() Took {
	h.mutex.Lock()
	defer h.mutex.Unlock()
	at := h.when[wire.StateConfirmed]
	step := func(from wire.State) time.Duration {
		until := at
		if t, seen := h.when[from]; seen {
			at = t
		}
		return until.Sub(at)
	}
	return Took{Confirm: step(wire.StatePending), Load: step(wire.StateNone), Live: h.live}
}

// alone is how many agents of no fleet others are held against.
const alone = 5

// stayAlone has agents run that have the same policy from a file.
func (f *fleet) stayAlone() error {
	for i := range alone {
		h := f.host(fmt.Sprintf("alone-%d", i))
		file, err := f.policyOf(h)
		if err != nil {
			return err
		}
		if _, err := h.sluice.Must(f, h.space, "apply", file, "--no-confirm"); err != nil {
			return err
		}
		if err := f.serve(h); err != nil {
			return err
		}
		if err := f.until(time.Minute, "an agent has a socket", func() (bool, error) {
			_, err := os.Stat(h.sluice.State + ".socket")
			return err == nil, nil
		}); err != nil {
			return err
		}
		// It proves a change as those of the fleet have proved theirs.
		if _, err := h.sluice.Must(f, h.space, "apply", file, "--no-confirm"); err != nil {
			return err
		}
		f.alone = append(f.alone, h)
	}
	return nil
}

// ownHalf is what agents of the fleet have resident beyond those that stay alone, MiB.
func (f *fleet) ownHalf() (added stats.Series, err error) {
	var without stats.Series
	for _, h := range f.alone {
		n, err := resident(h.agent.Process.Pid)
		if err != nil {
			return nil, err
		}
		without = append(without, n)
	}
	base := without.Estimate().Median
	for _, h := range f.hosts {
		n, err := resident(h.agent.Process.Pid)
		if err != nil {
			return nil, err
		}
		added = append(added, n-base)
	}
	return added, nil
}

// resident is what a process has in memory, MiB.
func resident(pid int) (float64, error) {
	p, err := procfs.NewProc(pid)
	if err != nil {
		return 0, err
	}
	s, err := p.NewStatus()
	return float64(s.VmRSS) / (1 << 20), err
}

// policyOf writes the policy of a host that is of no fleet.
func (f *fleet) policyOf(h *host) (string, error) {
	dir := h.sluice.State + ".policy"
	if err := os.MkdirAll(filepath.Join(dir, "parts"), 0o700); err != nil {
		return "", err
	}
	for name, text := range map[string]string{
		"fleet.yaml": fmt.Sprintf(fleetFile, ""), "parts/10-base.yaml": basePart, "parts/50-web.yaml": fmt.Sprintf(webPart, 8000),
		"host.yaml": "version: 1\nfleet: fleet.yaml\nhost: " + h.name + "\nlabels: {role: web, env: prod}\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			return "", err
		}
	}
	return filepath.Join(dir, "host.yaml"), nil
}

// said is what a program has written, for errors.
func (p *program) said() string { return strings.TrimSpace(p.told.String()) }
