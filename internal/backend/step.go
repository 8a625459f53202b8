package backend

import (
	"context"
	"errors"
)

// Purpose is what a step is for.
type Purpose string

// Purposes, in the order in which steps come.
const (
	Fill   Purpose = "fill"   // objects and set contents, used by nobody yet
	Track  Purpose = "track"  // none of a backend's: entries for connections that run already
	Switch Purpose = "switch" // the one small transaction after which the new rules hold
	Edit   Purpose = "edit"   // elements of living sets
	Sweep  Purpose = "sweep"  // what nobody uses any more
)

// Step is one transaction on the way to an artifact.
type Step struct {
	Purpose Purpose
	Name    string // for progress: "set served-1f3a (48665 ranges)"
	Transaction
}

// Transaction is what the kernel takes as a whole or not at all; elements of sets
// may take several of the kernel's own. What it is made of is the backend's.
type Transaction interface {
	// Take loads it, in the network namespace of the calling thread. The error is
	// ErrChanged where another tool was quicker. After an error elements may be
	// there in part, where they fill what no rule uses.
	Take(ctx context.Context) error
	// Text is the same for a reader, as the backend's own tools have it.
	Text() string
}

// ErrChanged says that another tool changed the rules between a look at them and a
// transaction, of which nothing was done; asking again helps.
var ErrChanged = errors.New("the ruleset changed meanwhile")

// ErrNotThere says that the kernel does not have what was asked for.
var ErrNotThere = errors.New("the kernel does not have it")

// Checked is a transaction whose elements can be looked up one by one behind Take.
type Checked interface {
	// Touches is how many elements they are; few is false where Holds cannot tell.
	Touches() (n int, few bool)
	// Holds says whether the kernel has each of them as Take left it.
	Holds(ctx context.Context) (bool, error)
}
