package trace

import "context"

// Sampler is a backend that can follow packets of the host itself through what is loaded,
// by whomever, and say which rule drops them.
type Sampler interface {
	// Sample follows packets of the calling thread's network namespace until the context
	// ends. Until then a table that marks some of them is there, which goes with the
	// process, however that ends.
	Sample(ctx context.Context, q Sampling) error
}

// Sampling is what to follow, and who is told.
type Sampling struct {
	// Rate is how many packets are followed each second of those that arrive, and how
	// many of those that local sockets send.
	Rate uint64
	// Read is called in the namespace when its rules were read, and again when they changed:
	// the numbers of rules in steps are those of this moment, or 0.
	Read func()
	// Begun is told when packets are followed, and what of them is not.
	Begun func(notes []string)
	// Dropped is told of each packet that a chain of nf_tables dropped or rejected. Its
	// State is not known.
	Dropped func(*Result)
	// Counted is told what was followed so far.
	Counted func(Sampled)
}

// Sampled is what was followed.
type Sampled struct {
	Followed uint64 `json:"followed"` // packets
	Lost     uint64 `json:"lost"`     // of these: the kernel had more to tell than was read
}
