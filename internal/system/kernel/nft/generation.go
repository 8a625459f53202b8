package nft

import (
	"encoding/binary"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"sluice/internal/system/kernel/netns"
)

// counters has one for each network namespace that this process was in, by its identity.
var counters sync.Map // string to *Counter

// Counter counts the transactions that this process has brought into a network namespace.
type Counter struct{ n atomic.Uint64 }

// Here is the counter of the calling thread's network namespace.
func Here() *Counter {
	id, _ := netns.ID() // where it cannot be told, all have one
	c, _ := counters.LoadOrStore(id, new(Counter))
	return c.(*Counter)
}

// Committed counts a transaction that went another way than Run.
func (c *Counter) Committed() { c.n.Add(1) }

// Commits is how many transactions this process has brought into the network namespace of
// the calling thread. Where the generation has risen by as many since, nobody else made
// one; a transaction that turned out to be empty makes it rise less.
func Commits() uint64 { return Here().n.Load() }

// Generation is the number of the ruleset's state in the network namespace of
// the calling thread. Every transaction of anybody raises it, so an equal
// number means an untouched ruleset; what the kernel itself adds to dynamic
// sets does not count.
func Generation() (uint32, error) {
	var id []byte
	err := ask(unix.NFT_MSG_GETGEN, unix.AF_UNSPEC, 0, func(attribute func(kind uint16) []byte) { id = attribute(unix.NFTA_GEN_ID) })
	if err == nil && len(id) != 4 {
		err = errors.New("the kernel gave none")
	}
	if err != nil {
		return 0, fmt.Errorf("ask for the ruleset's generation: %w", err)
	}
	return binary.BigEndian.Uint32(id), nil
}
