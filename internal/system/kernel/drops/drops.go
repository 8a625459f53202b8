package drops

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"sync"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"
)

// Watcher counts until it is closed.
type Watcher struct {
	held
	program  *ebpf.Program
	attached link.Link
	reasons  map[uint32]string // nil: the kernel gives none
	meant    bool              // the kernel says the socket that a packet was meant for
	blind    bool
	closing  chan struct{}
	copying  sync.Mutex // is held by Sample
	bounding sync.Mutex // is held by Bound, and for attached

	flood float64 // see Flood; tests have another

	mutex    sync.Mutex
	reckoned map[Place]uint64 // by Bound
	failed   error            // the program is off the tracepoint
}

// held are the maps that the program writes to, and sampling what it reads.
type held struct {
	places, counts, lost *ebpf.Map
	sampling, copies     *ebpf.Map // nil where it is blind
}

// Place is where packets were dropped.
type Place struct {
	// Namespace is the inode's number of its file, as stat(2) gives it; 0 where a
	// packet does not say.
	Namespace uint32
	Reason    uint32 // see Watcher.Reason
	Location  uint64 // an address in the kernel, see Functions
}

// ErrCannotTell is the error of a kernel that does not describe its types.
var ErrCannotTell = errors.New("cannot tell which packets this kernel drops: it has no type information (BTF)")

// ErrRights is the error of who is not root.
var ErrRights = errors.New("only root sees which packets the kernel drops")

// places is how many different ones are told apart; what comes after is counted by
// Missed.
const places = 2048

// Watch begins to count packets of some network namespaces (at most 64). It is
// ErrCannotTell on kernels without BTF. The caller closes it.
func Watch(namespaces ...uint32) (*Watcher, error) {
	if len(namespaces) > 64 {
		return nil, fmt.Errorf("watch dropped packets: %d namespaces, at most 64", len(namespaces))
	}
	types, err := btf.LoadKernelSpec()
	if errors.Is(err, btf.ErrNotFound) || errors.Is(err, os.ErrNotExist) {
		return nil, ErrCannotTell
	}
	if err != nil {
		return nil, fmt.Errorf("read the kernel's types: %w", err)
	}
	l, err := ask(types)
	if err != nil {
		return nil, fmt.Errorf("find dropped packets in the kernel's types: %w", err)
	}
	var names map[uint32]string
	if l.hasReason {
		if names, err = reasons(types); err != nil {
			return nil, fmt.Errorf("find the reasons of drops in the kernel's types: %w", err)
		}
	}
	return l.watch(names, namespaces)
}

// WatchBlind begins to count all packets of the machine by function and reason, where the
// kernel has no BTF: whose a packet is cannot be told then, nor what it is. The caller closes
// it.
func WatchBlind() (*Watcher, error) {
	names, hasReason := tracedReasons()
	w, err := layout{blind: true, hasReason: true}.watch(names, nil)
	if errors.Is(err, unix.EINVAL) && !hasReason { // Linux before 5.17 gives no reason
		w, err = layout{blind: true}.watch(nil, nil)
	}
	return w, err
}

func (l layout) watch(reasons map[uint32]string, namespaces []uint32) (w *Watcher, err error) {
	w = &Watcher{reasons: reasons, meant: l.hasMeant, blind: l.blind, closing: make(chan struct{}), flood: Flood}
	defer func() {
		if err != nil {
			w.Close()
			if errors.Is(err, unix.EPERM) {
				err = ErrRights
			}
			w, err = nil, fmt.Errorf("watch dropped packets: %w", err)
		}
	}()
	for to, spec := range map[**ebpf.Map]ebpf.MapSpec{
		&w.places:   {Name: "places", Type: ebpf.PerCPUArray, KeySize: 4, ValueSize: countSize, MaxEntries: slots},
		&w.counts:   {Name: "drops", Type: ebpf.PerCPUHash, KeySize: keySize, ValueSize: countSize, MaxEntries: places},
		&w.lost:     {Name: "lost", Type: ebpf.Array, KeySize: 4, ValueSize: 8, MaxEntries: 1},
		&w.sampling: {Name: "sampling", Type: ebpf.Array, KeySize: 4, ValueSize: samplingSize, MaxEntries: 1},
		&w.copies:   {Name: "copies", Type: ebpf.RingBuf, MaxEntries: copiesBytes},
	} {
		if l.blind && spec.Type == ebpf.RingBuf {
			continue
		}
		if *to, err = ebpf.NewMap(&spec); err != nil {
			return w, err
		}
	}
	spec := &ebpf.ProgramSpec{
		Name: "count_drops", Type: ebpf.Tracing, AttachType: ebpf.AttachTraceRawTp, AttachTo: "kfree_skb",
		// The kernel lets its structures be read by programs alone that may be had
		// under the GPL; this one may.
		License:      "Dual BSD/GPL",
		Instructions: l.program(namespaces, &w.held),
	}
	if l.blind {
		spec.Type, spec.AttachType, spec.AttachTo = ebpf.RawTracepoint, ebpf.AttachNone, ""
	}
	if w.program, err = ebpf.NewProgram(spec); err != nil {
		return w, err
	}
	return w, w.attach()
}

func (w *Watcher) attach() (err error) {
	if w.blind {
		w.attached, err = link.AttachRawTracepoint(link.RawTracepointOptions{Name: "kfree_skb", Program: w.program})
	} else {
		w.attached, err = link.AttachTracing(link.TracingOptions{Program: w.program})
	}
	return err
}

// Close ends the counting, Sample and Bound. It is called once.
func (w *Watcher) Close() {
	close(w.closing)
	w.copying.Lock() // what works with it has ended
	defer w.copying.Unlock()
	w.bounding.Lock()
	defer w.bounding.Unlock()
	if w.attached != nil {
		_ = w.attached.Close()
	}
	if w.program != nil {
		_ = w.program.Close()
	}
	for _, m := range []*ebpf.Map{w.places, w.counts, w.lost, w.sampling, w.copies} {
		if m != nil {
			_ = m.Close()
		}
	}
}

// Read gives the packets so far, by place, with what Bound reckons.
func (w *Watcher) Read() (map[Place]uint64, error) {
	w.mutex.Lock() // of what was counted all or nothing has been reckoned with
	defer w.mutex.Unlock()
	if w.failed != nil {
		return nil, w.failed
	}
	all, err := w.counted()
	for p, n := range w.reckoned {
		if all != nil {
			all[p] += n
		}
	}
	return all, err
}

// Reckoned is how many of them are not counted, but reckoned.
func (w *Watcher) Reckoned() (n uint64) {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	for _, r := range w.reckoned {
		n += r
	}
	return n
}

// counted gives the packets that the program has counted.
func (w *Watcher) counted() (map[Place]uint64, error) {
	all := map[Place]uint64{}
	add := func(values []count) {
		for _, c := range values {
			if c.Packets > 0 {
				all[Place{c.Namespace, c.Reason, c.Location}] += c.Packets
			}
		}
	}
	for key := range uint32(slots) {
		var values []count
		if err := w.places.Lookup(key, &values); err != nil {
			return nil, fmt.Errorf("read dropped packets: %w", err)
		}
		add(values)
	}
	var (
		key    [keySize]byte
		values []count
	)
	for it := w.counts.Iterate(); ; {
		if !it.Next(&key, &values) {
			if err := it.Err(); err != nil {
				return nil, fmt.Errorf("read dropped packets: %w", err)
			}
			return all, nil
		}
		for i := range values { // of a processor that has had none, all is 0
			values[i].Namespace = binary.NativeEndian.Uint32(key[0:])
			values[i].Reason = binary.NativeEndian.Uint32(key[4:])
			values[i].Location = binary.NativeEndian.Uint64(key[8:])
		}
		add(values)
	}
}

// Missed is how many packets were dropped that no place counts: there are too many
// places, or one packet was dropped while the program counted another.
func (w *Watcher) Missed() (uint64, error) {
	var n uint64
	if err := w.lost.Lookup(uint32(0), &n); err != nil {
		return 0, fmt.Errorf("read dropped packets: %w", err)
	}
	stats, err := w.program.Stats()
	if err != nil {
		return n, fmt.Errorf("read dropped packets: %w", err)
	}
	return n + stats.RecursionMisses, nil
}

// Reason is the kernel's name of a reason without its prefix, such as
// NETFILTER_DROP; "" on kernels that give none.
func (w *Watcher) Reason(number uint32) string {
	if w.reasons == nil {
		return ""
	}
	if name := w.reasons[number]; name != "" {
		return name
	}
	return fmt.Sprintf("%#x", number) // of a subsystem that has its own (enum skb_drop_reason_subsys)
}

// Reasons are the names of all reasons; none on kernels that give none.
func (w *Watcher) Reasons() []string { return slices.Sorted(maps.Values(w.reasons)) }

// Blind says that neither namespaces nor packets are known.
func (w *Watcher) Blind() bool { return w.blind }

// Measure has the kernel measure the time of all BPF programs until it is closed, which costs
// each of them some time (BPF_ENABLE_STATS, Linux 5.8).
func Measure() (io.Closer, error) { return ebpf.EnableStats(unix.BPF_STATS_RUN_TIME) }

// RunTime is the mean of what the program took for a packet while it was measured, in
// nanoseconds; 0 where it was not.
func (w *Watcher) RunTime() (float64, error) {
	s, err := w.program.Stats()
	if err != nil || s.RunCount == 0 {
		return 0, err
	}
	return float64(s.Runtime) / float64(s.RunCount), nil
}
