package backend

import (
	"context"
	"slices"

	"sluice/internal/program"
)

// Following is an artifact with sets that hold what the host is, and change with it
// while the rules stay, as far as they do not name what a set holds alone.
type Following interface {
	Artifact
	// Follows says which sets these are.
	Follows() []FollowedSet
	// Held is what these sets hold.
	Held() map[string]program.Held
	// Named are the rules that name what a set holds, for Turned; nil where none does.
	Named() []byte
	// Holding is the artifact with these sets holding what the host is now; what is
	// not named stays as it was.
	Holding(now map[string]program.Held) Artifact
}

// FollowedSet is one such set of a program, as the kernel has it.
type FollowedSet struct {
	ID    string            `json:"id"`    // of the program's set
	Place string            `json:"table"` // where it is in the kernel, as the backend calls it
	Sets  []FamilySet       `json:"sets"`  // that rules ask
	Of    program.Following `json:"of"`
}

// FamilySet is a set in the kernel.
type FamilySet struct {
	Name   string `json:"name"`
	Family int    `json:"family,omitempty"` // of addresses, 4 or 6; 0: of names of interfaces
}

// Part is what of the contents rules ask for.
func (f FollowedSet) Part(h program.Held) program.Held {
	var out program.Held
	for _, k := range f.Sets {
		if k.Family == 0 {
			out.Names = h.Names
		}
	}
	for _, a := range h.Addresses {
		if slices.ContainsFunc(f.Sets, func(k FamilySet) bool { return a.Is4() && k.Family == 4 || !a.Is4() && k.Family == 6 }) {
			out.Addresses = append(out.Addresses, a)
		}
	}
	return out
}

// Follower is a backend that edits such sets in place.
type Follower interface {
	// Holds reads what the kernel has in a set, in the network namespace of the
	// calling thread. The error is ErrNotThere where it has no such set.
	Holds(ctx context.Context, f FollowedSet) (program.Held, error)
	// Follow is the transaction that brings sets from one to the other; nil where
	// nothing changes. All of it comes at once.
	Follow(sets []FollowedSet, from, to map[string]program.Held) Transaction
	// Turned is the transaction that makes rules in the kernel name what their sets hold;
	// nil where they do.
	Turned(ctx context.Context, rules []byte) (Transaction, error)
}
