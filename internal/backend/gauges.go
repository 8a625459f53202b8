package backend

import (
	"context"

	"sluice/internal/program"
)

// Gauged is a backend that can tell what was counted without reading a rule.
type Gauged interface {
	// Gauges says where the kernel has what the rules of an artifact count.
	Gauges(a Artifact) (Gauges, error)
	// DecodeGauges reads what Gauges.Encode wrote.
	DecodeGauges(data []byte) (Gauges, error)
}

// Gauges are where the kernel has what is counted. To read it, neither the artifact nor its
// program is needed.
type Gauges interface {
	// Encode writes them as JSON.
	Encode() ([]byte, error)
	// Read reads them in the network namespace of the calling thread. Bans is where the rules
	// look up what commands ban; nil where that is not known.
	Read(ctx context.Context, bans BanStore) (*Readings, error)
}

// Readings are the values at one moment; of what the kernel has not, there is none.
type Readings struct {
	Gone     bool             // the kernel has nothing of the artifact
	Counters map[string]Count // by the counter's name, as of State.Counters
	Sets     []SetSize        // in the order of the artifact's, those of bans apart
	// Bans are the elements of the sets of bans: addresses, prefixes and ranges.
	ByCommand, ByLimit int
}

// SetSize is how many elements a set has, of all families together. Those that have expired
// may be among them for a while.
type SetSize struct {
	ID      string // in the program
	Origin  program.Origin
	Entries int
	Most    int // of a set that packets fill, in each family; 0 is unbounded
}
