package backend

import (
	"context"

	"sluice/internal/program"
)

// Lifter is a backend that can say in a program's words what the kernel holds, so
// that it can be held against the program that was meant, packet by packet.
type Lifter interface {
	// ReadWhole is Read with all contents: those of the sets that commands fill
	// too, which are not read once more.
	ReadWhole(ctx context.Context, bans ReadBans) (State, error)
	// Complete reads what of a state was left unread: what commands ban. Sets whose
	// names say what is in them, and that somebody has read before, are taken to
	// hold what the artifact has.
	Complete(ctx context.Context, have State, loaded Artifact, bans ReadBans) (State, error)
	// Lift makes the program that a state is; the state was read by ReadWhole or is
	// from Complete.
	Lift(have State) (*Lifted, error)
	// Expected is a program in the words of Lift, where the backend has others than
	// the program: rates in the kernel's units, names as they can be read back,
	// nothing that this kernel lacks. What commands ban is taken from the state, as far
	// as rules ask what those of the store do; nil is none of it.
	Expected(p *program.Program, can Capabilities, have State, bans BanStore) (*program.Program, error)
}

// Lifted is what a state means.
type Lifted struct {
	Program *program.Program
	// Unlifted is what nobody knows the meaning of; the program is then not all
	// that the kernel does.
	Unlifted []Unlifted
	// Strange is elements that somebody put into sets which packets fill, other than
	// a rule makes them: they switch off what the rule limits.
	Strange  []StrangeElement
	Rules    int // read
	Elements int // read, of all sets
	Banned   int // ranges of addresses that commands banned, in the sets that rules ask
}

// Unlifted is a rule, or another thing in the kernel, whose meaning is not known.
type Unlifted struct {
	Chain  string `json:"chain,omitempty"`  // "" for what is in no chain
	Rule   int    `json:"rule,omitempty"`   // from 1 in its chain; 0 for the chain itself
	Number uint64 `json:"handle,omitempty"` // by which the backend's own tools know the rule; 0 is unknown
	Text   string `json:"text"`             // the statement or object
	Why    string `json:"why"`
}

// StrangeElement is an element of a set that packets fill, which no rule made.
type StrangeElement struct {
	Set  string // of the program
	Want string // what the rules make: "limit rate 10/minute burst 10 packets, for 2m0s"
	Have string // the element, with the same of it
}
