package work

import (
	"fmt"
	"runtime/debug"
	"time"

	"golang.org/x/sys/unix"

	"sluice/internal/agent/api"
)

// What a bounded process may take. The time is that of processors, which a busy machine does not
// shorten.
const (
	mostTime   = 30 * time.Second
	mostMemory = 768 << 20 // of data
	nearMemory = mostMemory / 4 * 3
)

// Bounded are the operations that take what the texts and questions of their callers make them
// take, and leave nothing behind where they are killed.
var Bounded = map[string]bool{"check": true, "diff": true, "map": true, "reach": true, "query": true, "plan": true}

// Bound holds this process to what it may take: the kernel kills it, or gives it no more memory.
func (o Order) Bound() error {
	if !o.Bounded {
		return nil
	}
	debug.SetMemoryLimit(nearMemory) // it collects more before it gets none
	debug.SetTraceback("none")
	for which, most := range map[int]uint64{unix.RLIMIT_CPU: uint64(mostTime / time.Second), unix.RLIMIT_DATA: mostMemory} {
		if err := unix.Setrlimit(which, &unix.Rlimit{Cur: most, Max: most}); err != nil {
			return fmt.Errorf("bound what is asked: %w", err)
		}
	}
	return nil
}

// tooMuch is why such a process has ended before it had an answer.
func tooMuch(ended error) error {
	return &api.Failure{Text: fmt.Sprintf("it takes more than %s of a processor, or more than %d MB: ask about less, or with a shorter policy; root has no such limit (%v)", mostTime, mostMemory>>20, ended), Exit: 2}
}
