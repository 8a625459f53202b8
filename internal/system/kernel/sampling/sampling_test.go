package sampling

import (
	"encoding/binary"
	"errors"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"sluice/internal/lab/testnet"
	"sluice/internal/system/kernel/drops"
)

// TestSampler: what the processors do in the kernel is seen, by the functions' names.
func TestSampler(t *testing.T) {
	s, err := Start()
	if errors.Is(err, unix.EACCES) || errors.Is(err, unix.EPERM) || errors.Is(err, unix.ENOSYS) {
		testnet.Lacks(t, "perf_event_open", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	const calls = 200_000 // some 100 ms of processor time
	for range calls {
		_, _ = unix.Getpriority(unix.PRIO_USER, 0) // goes through all processes
	}
	time.Sleep(drainEvery)
	p := s.Stop()
	if p.Processors == 0 || p.Took <= 0 || len(p.Stacks) == 0 {
		t.Fatalf("%+v", p)
	}
	var addresses []uint64
	var samples uint64
	for _, stack := range p.Stacks {
		samples += stack.Samples
		if len(stack.Addresses) > mostCalls {
			t.Errorf("a stack of %d calls", len(stack.Addresses))
		}
		addresses = append(addresses, stack.Addresses...)
	}
	names, err := drops.Functions(addresses...)
	if err != nil {
		t.Fatal(err)
	}
	found := false
	for _, name := range names {
		found = found || name == "__x64_sys_getpriority" || name == "__arm64_sys_getpriority" || name == "__do_sys_getpriority"
	}
	if !found {
		t.Errorf("of %d samples none is in getpriority", samples)
	}
}

// FuzzTake: no record is trusted in what it says of its size.
func FuzzTake(f *testing.F) {
	record := func(kind uint32, body ...uint64) []byte {
		out := make([]byte, header)
		binary.NativeEndian.PutUint32(out, kind)
		for _, n := range body {
			out = binary.NativeEndian.AppendUint64(out, n)
		}
		return out
	}
	f.Add(record(unix.PERF_RECORD_SAMPLE, 3, firstContext, 0xffffffff81000001, 0xffffffff81000002))
	f.Add(record(unix.PERF_RECORD_SAMPLE, 1<<63, 1))
	f.Add(record(unix.PERF_RECORD_LOST, 1, 7))
	f.Add(record(unix.PERF_RECORD_LOST))
	f.Fuzz(func(t *testing.T, record []byte) {
		if len(record) < header {
			return
		}
		s := &Sampler{counts: map[string]uint64{}}
		s.take(record)
		for stack := range s.counts {
			if len(stack)%8 != 0 || len(stack) > len(record) {
				t.Errorf("%d bytes of addresses", len(stack))
			}
		}
	})
}
