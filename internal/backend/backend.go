package backend

import (
	"context"
	"fmt"
	"strings"
	"time"

	"sluice/internal/program"
)

// Answer is what the kernel said when it was asked for a feature.
type Answer string

// Answers.
const (
	Yes        Answer = "yes"
	No         Answer = "no"
	CannotTell Answer = "cannot tell"
)

// Feature is something that a kernel or its nft may lack.
type Feature string

// Features that backends ask for, each by trying it (Prober).
const (
	Flowtable          Feature = "flowtable"
	InetIngress        Feature = "inet-ingress"         // base chains of family inet at ingress
	InetNAT            Feature = "inet-nat"             // NAT chains of family inet
	ConnectionCount    Feature = "ct-count"             // ct count in a dynamic set
	NATPrefix          Feature = "nat-prefix"           // dnat prefix to
	SetElementCounters Feature = "set-element-counters" // counters of interval set elements
	TCPReset           Feature = "reject-inet"
	FIB                Feature = "fib"
	// Handshakes is what it takes to tell a handshake that the host's own stack has
	// completed: the socket of a packet, and labels of connections.
	Handshakes Feature = "handshakes"
	MSSClamp   Feature = "tcp-option-mss"
)

// Capabilities is what a host can do; a feature that is not in it cannot be told.
type Capabilities map[Feature]Answer

// Backend turns programs into what one kernel facility runs.
type Backend interface {
	Name() string
	Marker
	Prober
	// Passes says what of the optimizer suits the backend, on a host that can do so
	// much; Lower is given what comes of it.
	Passes(can Capabilities) Passes
	// Lower makes the artifact of a program. What the backend cannot do is a
	// *RefusedError that names every rule; what it does in another way than
	// the policy asks is a note of the artifact.
	Lower(p *program.Program, can Capabilities) (Artifact, error)
	// Decode reads what Artifact.Encode wrote.
	Decode(data []byte) (Artifact, error)
	// Read reads what this backend has in the caller's network namespace; an
	// empty state when it has nothing. Without contents, the elements of
	// static sets are left out (their names carry a hash of them).
	Read(ctx context.Context, contents bool) (State, error)
	// ReadSince is Read with contents where they may have changed since before
	// was read, by transactions of the caller alone: what no transaction of
	// Steps edits and before has too is left out.
	ReadSince(ctx context.Context, before State) (State, error)
	// Steps says how to come from have to want without a gap; a nil want takes
	// everything away.
	Steps(want Artifact, have State) ([]Step, error)
	// Change says what have takes, which was read with contents, and what Steps
	// put beside it before anything of it goes.
	Change(want Artifact, have State) (before, added Cost, err error)
	// Compare says by meaning where the kernel's state differs from the artifact.
	Compare(want Artifact, have State) ([]Difference, error)
}

// Passes is what a backend wants of the passes of package optimize.
type Passes struct {
	Without []string // these are left out, by name
	// NoElementCounters says that elements of sets cannot be counted, so that rules
	// with counters of their own stay apart.
	NoElementCounters bool
}

// Editor is a backend that can tell by what two artifacts are written as that a few
// elements are all in which they differ.
type Editor interface {
	// Edits is Steps from a kernel that holds one artifact to the letter to want,
	// with the parts (Join) of both, each behind one byte that is the same in both.
	// A part that both have may be left empty in both. It is false where they
	// differ in more.
	Edits(want Artifact, from, to [][]byte) ([]Step, bool)
}

// Knower is a backend that can tell what the kernel has where it holds an artifact to
// the letter.
type Knower interface {
	// Known is Read without contents of a kernel that holds an artifact to the letter,
	// enough for Steps to want. It reads what is in sets that are edited; nil where more
	// has to be read.
	Known(ctx context.Context, holds, want Artifact) (State, error)
}

// Artifact is a program ready for one backend.
type Artifact interface {
	Backend() string
	// Text is the whole artifact for a reader, the same for the same program.
	Text() string
	// Encode writes the artifact so that Decode gives the same one.
	Encode() ([]byte, error)
	Cost() Cost
	Notes() []program.Note
}

// Written is an artifact whose text the backend's own tools read.
type Written interface {
	Artifact
	Extension() string // of a file with such a text: "nft"
	// TextError says why they would read something else than the artifact.
	TextError() error
}

// Passing is an artifact whose rules ask connection tracking. Flows that ran before
// their packets were tracked have no entry, so such rules refuse them.
type Passing interface {
	Artifact
	// Begins says which flows the steps from have to the artifact begin to track that
	// its rules may refuse: those of this host's own sockets, and those that it
	// forwards.
	Begins(have State) (own, forwarded bool)
	// Passing is the artifact, such that the switch to it lets flows pass without an
	// entry, which the kernel ends after the given time, or Grace where that is less.
	Passing(own, forwarded bool, most time.Duration) Artifact
	// Grace is the policy's.
	Grace() time.Duration
}

// Transitional is a state that may be in such a time.
type Transitional interface {
	State
	// Grace is how long flows without an entry still pass; 0: they do not.
	Grace() time.Duration
	// Passes says which do: those of this host's own sockets, and those that it
	// forwards.
	Passes() (own, forwarded bool)
}

// State is what a backend read from the kernel.
type State interface {
	// Empty says that nothing of Sluice is there.
	Empty() bool
	// Counters is packets and bytes by the counter's name.
	Counters() map[string]Count
}

// Count is the value of a counter.
type Count struct {
	Packets uint64 `json:"packets"`
	Bytes   uint64 `json:"bytes"`
}

// Difference is one thing in which the kernel is not what was meant.
type Difference struct {
	Kind   string         `json:"kind"`           // "chain", "rule", "set", "element", "counter", "flowtable", "table"
	Name   string         `json:"name"`           // "input", "served", …
	Want   string         `json:"want,omitempty"` // one line each; "" is absent
	Have   string         `json:"have,omitempty"`
	Origin program.Origin `json:"origin,omitzero"`
	// Longer says that connections which nobody knows pass for longer than the
	// artifact gives (Passing), which no rule of the state tells.
	Longer bool `json:"longer,omitempty"`
}

// RefusedError says what a backend cannot do, by rule.
type RefusedError struct {
	Backend  string
	Refusals []Refusal
}

// Refusal is one rule that a backend cannot carry.
type Refusal struct {
	Origin program.Origin
	Why    string
	Hint   string
}

func (e *RefusedError) Error() string {
	var b strings.Builder
	for i, r := range e.Refusals {
		if i > 0 {
			b.WriteByte('\n')
		}
		fmt.Fprintf(&b, "%s:%d:%d: backend %s refuses: %s", r.Origin.File, r.Origin.Line, r.Origin.Column, e.Backend, r.Why)
		if r.Hint != "" {
			fmt.Fprintf(&b, "\n  hint: %s", r.Hint)
		}
	}
	return b.String()
}
