package drops

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"
	"github.com/cilium/ebpf/link"
)

// Watcher counts until it is closed.
type Watcher struct {
	counts, lost *ebpf.Map
	program      *ebpf.Program
	attached     link.Link
	reasons      map[uint32]string // nil: the kernel gives none
	meant        bool              // the kernel says the socket that a packet was meant for
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

// places is how many different ones are told apart; what comes after is counted by
// Missed.
const places = 2048

// Watch begins to count packets of some network namespaces (at most 64). It is
// ErrCannotTell on kernels without BTF. The caller closes it.
func Watch(namespaces ...uint32) (w *Watcher, err error) {
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
	w = &Watcher{meant: l.hasMeant}
	defer func() {
		if err != nil {
			w.Close()
			w, err = nil, fmt.Errorf("watch dropped packets: %w", err)
		}
	}()
	if l.hasReason {
		if w.reasons, err = reasons(types); err != nil {
			return w, err
		}
	}
	if w.counts, err = ebpf.NewMap(&ebpf.MapSpec{
		Name: "drops", Type: ebpf.PerCPUHash, KeySize: keySize, ValueSize: 8, MaxEntries: places,
	}); err != nil {
		return w, err
	}
	if w.lost, err = ebpf.NewMap(&ebpf.MapSpec{
		Name: "lost", Type: ebpf.Array, KeySize: 4, ValueSize: 8, MaxEntries: 1,
	}); err != nil {
		return w, err
	}
	if w.program, err = ebpf.NewProgram(&ebpf.ProgramSpec{
		Name: "count_drops", Type: ebpf.Tracing, AttachType: ebpf.AttachTraceRawTp, AttachTo: "kfree_skb",
		// The kernel lets its structures be read by programs alone that may be had
		// under the GPL; this one may.
		License:      "Dual BSD/GPL",
		Instructions: l.program(namespaces, w.counts.FD(), w.lost.FD()),
	}); err != nil {
		return w, err
	}
	w.attached, err = link.AttachTracing(link.TracingOptions{Program: w.program})
	return w, err
}

// Close ends the counting.
func (w *Watcher) Close() {
	if w.attached != nil {
		_ = w.attached.Close()
	}
	if w.program != nil {
		_ = w.program.Close()
	}
	if w.counts != nil {
		_ = w.counts.Close()
	}
	if w.lost != nil {
		_ = w.lost.Close()
	}
}

// Read gives the packets so far, by place.
func (w *Watcher) Read() (map[Place]uint64, error) {
	all := map[Place]uint64{}
	var (
		key    [keySize]byte
		values []uint64
	)
	for it := w.counts.Iterate(); ; {
		if !it.Next(&key, &values) {
			if err := it.Err(); err != nil {
				return nil, fmt.Errorf("read dropped packets: %w", err)
			}
			return all, nil
		}
		p := Place{
			Namespace: binary.NativeEndian.Uint32(key[0:]),
			Reason:    binary.NativeEndian.Uint32(key[4:]),
			Location:  binary.NativeEndian.Uint64(key[8:]),
		}
		for _, n := range values {
			all[p] += n
		}
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

func reasons(types *btf.Spec) (map[uint32]string, error) {
	var named *btf.Enum
	if err := types.TypeByName("skb_drop_reason", &named); err != nil {
		return nil, err
	}
	out := map[uint32]string{}
	for _, v := range named.Values {
		out[uint32(v.Value)] = strings.TrimPrefix(strings.TrimPrefix(v.Name, "SKB_DROP_REASON_"), "SKB_")
	}
	return out, nil
}
