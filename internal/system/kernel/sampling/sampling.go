// Package sampling says where the processors are in the kernel, by looking at each of them
// some thousand times a second. The doctor calls it.
//
// The clock is PERF_COUNT_SW_CPU_CLOCK of perf_event_open(2), which virtual machines have
// too, with the stack of calls. It needs CAP_PERFMON, and a kernel with CONFIG_PERF_EVENTS.
package sampling

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"
)

// Period is between two looks at a processor. It is not part of a scheduler's tick, so that
// what happens at ticks is not met each time.
const Period = time.Second / 999

const (
	pages      = 32 // of each processor's ring, a power of two: half a second of stacks
	drainEvery = 100 * time.Millisecond
	mostStacks = 1 << 16 // different ones
	mostCalls  = 48      // of a stack, the innermost
)

// Stack is one that processors were in, the innermost function first. The first address is
// where one was, the others are where calls return to.
type Stack struct {
	Addresses []uint64
	Samples   uint64
}

// Profile is what was seen of all processors.
type Profile struct {
	Stacks     []Stack // in the kernel alone
	Processors int
	Took       time.Duration
	Lost       uint64 // samples that found no room
}

// Sampler looks until it is stopped.
type Sampler struct {
	rings  []*ring
	counts map[string]uint64 // by the addresses, 8 bytes each
	begun  time.Time
	lost   uint64
	stop   chan struct{}
	done   chan struct{}
}

type ring struct {
	fd   int
	mem  []byte
	page *unix.PerfEventMmapPage
	data []byte
}

// Start begins to look at all processors. Who may not is told so by unix.EPERM or
// unix.EACCES; the caller stops what was started.
func Start() (s *Sampler, err error) {
	s = &Sampler{counts: map[string]uint64{}, stop: make(chan struct{}), done: make(chan struct{})}
	n, err := ebpf.PossibleCPU()
	if err != nil {
		return nil, fmt.Errorf("count the processors: %w", err)
	}
	for cpu := range n {
		r, err := open(cpu)
		if errors.Is(err, unix.ENODEV) { // it is off
			continue
		}
		if err != nil {
			s.close()
			return nil, fmt.Errorf("sample processor %d: %w", cpu, err)
		}
		s.rings = append(s.rings, r)
	}
	s.begun = time.Now()
	go s.drain()
	return s, nil
}

func open(cpu int) (*ring, error) {
	attributes := unix.PerfEventAttr{
		Type: unix.PERF_TYPE_SOFTWARE, Config: unix.PERF_COUNT_SW_CPU_CLOCK,
		Sample: uint64(Period), Sample_type: unix.PERF_SAMPLE_CALLCHAIN, Sample_max_stack: mostCalls,
		Bits: unix.PerfBitExcludeUser | unix.PerfBitExcludeCallchainUser,
	}
	attributes.Size = uint32(unsafe.Sizeof(attributes))
	fd, err := unix.PerfEventOpen(&attributes, -1, cpu, -1, unix.PERF_FLAG_FD_CLOEXEC)
	if err != nil {
		return nil, os.NewSyscallError("perf_event_open", err)
	}
	r := &ring{fd: fd}
	if r.mem, err = unix.Mmap(fd, 0, (1+pages)*os.Getpagesize(), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED); err != nil {
		_ = unix.Close(fd)
		return nil, os.NewSyscallError("mmap", err)
	}
	r.page = (*unix.PerfEventMmapPage)(unsafe.Pointer(&r.mem[0])) //nolint:gosec // the kernel has made it one
	r.data = r.mem[os.Getpagesize():]
	return r, nil
}

func (s *Sampler) close() {
	for _, r := range s.rings {
		_ = unix.Munmap(r.mem)
		_ = unix.Close(r.fd)
	}
}

func (s *Sampler) drain() {
	defer close(s.done)
	ticker := time.NewTicker(drainEvery)
	defer ticker.Stop()
	for {
		select {
		case <-s.stop:
			s.readAll()
			return
		case <-ticker.C:
			s.readAll()
		}
	}
}

// Stop ends it, and gives what was seen.
func (s *Sampler) Stop() Profile {
	close(s.stop)
	<-s.done
	p := Profile{Processors: len(s.rings), Took: time.Since(s.begun), Lost: s.lost}
	s.close()
	for stack, n := range s.counts {
		addresses := make([]uint64, len(stack)/8)
		for i := range addresses {
			addresses[i] = binary.NativeEndian.Uint64([]byte(stack[8*i:]))
		}
		p.Stacks = append(p.Stacks, Stack{addresses, n})
	}
	return p
}

func (s *Sampler) readAll() {
	var record []byte
	for _, r := range s.rings {
		head, tail := atomic.LoadUint64(&r.page.Data_head), r.page.Data_tail
		for head-tail >= header {
			record = r.copy(record[:0], tail, header)
			size := uint64(binary.NativeEndian.Uint16(record[6:]))
			if size < header || size > head-tail {
				break // the kernel writes no such record
			}
			record = r.copy(record[:0], tail, size)
			s.take(record)
			tail += size
		}
		atomic.StoreUint64(&r.page.Data_tail, head)
	}
}

// copy appends what the ring has at a place, which may go on at its beginning.
func (r *ring) copy(to []byte, at, size uint64) []byte {
	begin := at % uint64(len(r.data))
	first := min(size, uint64(len(r.data))-begin)
	to = append(to, r.data[begin:begin+first]...)
	return append(to, r.data[:size-first]...)
}

const header = 8 // struct perf_event_header: type, misc, size

// take counts one record, as perf_event_open(2) lays it out.
func (s *Sampler) take(record []byte) {
	body := record[header:]
	switch binary.NativeEndian.Uint32(record) {
	case unix.PERF_RECORD_LOST: // id, lost
		if len(body) >= 16 {
			s.lost += binary.NativeEndian.Uint64(body[8:])
		}
	case unix.PERF_RECORD_SAMPLE: // how many addresses, the addresses
		if len(body) < 8 {
			return
		}
		n := min(binary.NativeEndian.Uint64(body), uint64(len(body)-8)/8)
		var stack []byte
		for i := range n {
			address := body[8+8*i:][:8]
			if binary.NativeEndian.Uint64(address) < firstContext {
				stack = append(stack, address...)
			}
		}
		if _, known := s.counts[string(stack)]; !known && len(s.counts) >= mostStacks {
			s.lost++
			return
		}
		s.counts[string(stack)]++
	}
}

// firstContext begins the values that say whose the addresses behind them are
// (PERF_CONTEXT_MAX of include/uapi/linux/perf_event.h).
const firstContext = ^uint64(4095) + 1
