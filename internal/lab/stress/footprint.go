package stress

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/procfs"
)

// footprint is what is held at a moment, by the name of what it is.
type footprint map[string]int64

// What a footprint counts, beside the objects of nf_tables by their kind.
const (
	elements    = "elements"         // of sets and maps, without those that packets put there
	descriptors = "file descriptors" // of the hand
	processes   = "processes"        // in the host, and children of the hand that it did not wait for
	sockets     = "netlink sockets"  // in the host
	held        = "kernel memory of the hand"
	machine     = "kernel memory of the machine" // Slab, VmallocUsed and Percpu of /proc/meminfo
	stateFiles  = "files in the state directory"
	stateBytes  = "bytes in the state directory"
)

// tolerance is by how much something may have grown and still counts as the
// same. What is not named may not grow at all. The kernel keeps some pages of
// its slabs for itself, and for the whole machine there is whatever else runs.
var tolerance = map[string]int64{
	held:       1 << 20,
	machine:    48 << 20,
	stateFiles: 8,        // what versions of a list have in common is kept once, and they differ in that
	stateBytes: 64 << 10, // numbers and times are now longer and now shorter

	// Of what a process holds, most is what the collector leaves between live objects:
	// with as much live, processes of one day held between 9.1 and 15.5 MB. Sixteen
	// bytes kept of each ban would be 64 MB.
	agentMemory:  10 << 20,
	agentLive:    1,       // it is rounded
	agentThreads: 4,       // of which Go keeps those that waited
	agentFiles:   2,       // of a connection that is kept
	journalBytes: 1 << 20, // rewritten when it is as long as that, without what is over
}

// taken is the footprint of now, when the kernel has freed what it frees by and
// by.
func (l *lab) footprint(h *hand) (footprint, error) {
	f := footprint{}
	if err := l.objects(f); err != nil {
		return nil, err
	}
	if err := errors.Join(h.descriptors(f), l.processes(f), files(h.state, f)); err != nil {
		return nil, err
	}
	return f, h.memory(f)
}

// object is one object of nf_tables, as nft lists it.
type object struct {
	kind        string
	Table, Name string
	Flags       json.RawMessage
	Elem        []json.RawMessage
}

// changing says that packets or time change what is in a set.
func (o object) changing() bool {
	return strings.Contains(string(o.Flags), `"dynamic"`) || strings.Contains(string(o.Flags), `"timeout"`)
}

// listObjects lists what nf_tables holds in the host, the watch apart.
func (l *lab) listObjects() (out []object, err error) {
	text, err := l.host.Run("nft", "-n", "-j", "list", "ruleset")
	if err != nil {
		return nil, err
	}
	var listing struct{ Nftables []map[string]json.RawMessage }
	if err := json.Unmarshal([]byte(text), &listing); err != nil {
		return nil, fmt.Errorf("list the ruleset: %w", err)
	}
	for _, entry := range listing.Nftables {
		for kind, body := range entry {
			o := object{kind: kind}
			if kind == "metainfo" || json.Unmarshal(body, &o) != nil || o.Table == "watch" || kind == "table" && o.Name == "watch" {
				continue
			}
			out = append(out, o)
		}
	}
	return out, nil
}

// objects counts them by their kind.
func (l *lab) objects(f footprint) error {
	list, err := l.listObjects()
	for _, o := range list {
		f[o.kind+"s"]++
		if !o.changing() {
			f[elements] += int64(len(o.Elem))
		}
	}
	return err
}

func (h *hand) descriptors(f footprint) error {
	list, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", h.pid()))
	f[descriptors] = int64(len(list))
	return err
}

func (l *lab) processes(f footprint) error {
	inside, err := l.host.Processes()
	if err != nil {
		return err
	}
	f[processes] = int64(len(inside))
	return l.host.Do(func() error {
		text, err := os.ReadFile("/proc/thread-self/net/netlink")
		f[sockets] = int64(strings.Count(string(text), "\n"))
		return err
	})
}

// files counts what is in a state directory.
func files(state string, f footprint) error {
	return filepath.WalkDir(state, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		info, err := d.Info()
		if err == nil {
			f[stateFiles]++
			f[stateBytes] += info.Size()
		}
		return err
	})
}

// memory waits until what the kernel holds goes down no more: rules and sets are
// freed behind the transaction, by a worker and after a grace period.
func (h *hand) memory(f footprint) error {
	read := func(into footprint) error {
		var err error
		if into[machine], err = machineMemory(); err != nil || h.group == nil {
			return err
		}
		into[held], err = h.group.Kernel()
		return err
	}
	steady := 0
	for lowest := (footprint{}); steady < 10; time.Sleep(100 * time.Millisecond) {
		now := footprint{}
		if err := read(now); err != nil {
			return err
		}
		steady++
		for name, n := range now {
			if old, known := lowest[name]; !known || n < old-(64<<10) {
				steady = 0
			}
			if old, known := lowest[name]; !known || n < old {
				lowest[name] = n
			}
		}
		f[machine] = lowest[machine]
		if h.group != nil {
			f[held] = lowest[held]
		}
	}
	return nil
}

func machineMemory() (int64, error) {
	proc, err := procfs.NewDefaultFS()
	if err != nil {
		return 0, err
	}
	m, err := proc.Meminfo()
	if err == nil && (m.SlabBytes == nil || m.VmallocUsedBytes == nil || m.PercpuBytes == nil) {
		err = errors.New("/proc/meminfo lacks what the kernel holds")
	}
	if err != nil {
		return 0, err
	}
	return int64(*m.SlabBytes + *m.VmallocUsedBytes + *m.PercpuBytes), nil
}

// growth is one line of a comparison.
type growth struct {
	What      string `json:"what"`
	Before    int64  `json:"before"`
	After     int64  `json:"after"`
	Tolerance int64  `json:"tolerance,omitempty"`
	Grown     bool   `json:"grown"`
}

// grown compares two footprints.
func grown(before, after footprint) (out []growth) {
	names := map[string]bool{}
	for name := range before {
		names[name] = true
	}
	for name := range after {
		names[name] = true
	}
	for name := range names {
		g := growth{What: name, Before: before[name], After: after[name], Tolerance: tolerance[name]}
		g.Grown = g.After > g.Before+g.Tolerance
		if _, counted := after[held]; name == machine && counted {
			g.Tolerance, g.Grown = 0, false // shown beside what is known better
		}
		out = append(out, g)
	}
	slices.SortFunc(out, func(a, b growth) int { return cmp.Compare(a.What, b.What) })
	return out
}
