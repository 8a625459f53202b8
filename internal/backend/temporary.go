package backend

import (
	"context"
	"time"
)

// Temporaries is a backend that also loads what ends by itself, beside what it
// enforces.
type Temporaries interface {
	// Temporary is the backend for what another owner has in the kernel.
	Temporary(owner string) Temporary
}

// Temporary is the backend of one owner whose artifact goes with the process that
// loaded it. All is about the network namespace of the calling thread.
type Temporary interface {
	Backend
	// There says whether the kernel has anything of the owner's; it is quicker than
	// Read.
	There() (bool, error)
	// Clear removes what there is of the owner's.
	Clear(ctx context.Context) error
	// Guard starts what takes it away when this process ends, by whatever end, and
	// after life also while the process is stopped or stuck.
	Guard(life time.Duration) (Guard, error)
	// Expire is the transaction by which the kernel itself lets every packet pass at
	// the first rule of base chains, from life on.
	Expire(chains []string, life time.Duration) Step
	// Tracked says whether rules of anybody have connections tracked.
	Tracked(ctx context.Context) (bool, error)
}

// Guard removes what an owner has in the kernel.
type Guard interface {
	// Made says that it is there, so that nothing made later is taken for it.
	Made() error
	// Close takes it away now and waits until it is gone.
	Close() error
}
