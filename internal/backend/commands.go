package backend

import "sluice/internal/base/addrset"

// Commanded is an artifact with sets that commands fill: bans. As it was
// lowered, its rules ask none of them, so that a set that is empty costs no
// packet anything.
type Commanded interface {
	Artifact
	// Commands says how the sets are filled and asked; nil where there is none.
	Commands() *Commands
	// Asking is the artifact with rules that ask these sets.
	Asking(a Asked) Artifact
}

// Commander is a backend of such artifacts.
type Commander interface {
	// Asked says which of the artifact's sets the rules in the kernel ask.
	Asked(a Artifact, have State) Asked
	// Ask is a transaction that makes rules ask other sets; nil where nothing
	// changes. The rules are those of Commands.
	Ask(rules []byte, from, to Asked) (Transaction, error)
}

// Commands is the sets that commands fill. There are two for ranges in each
// family, of which one is asked at most: the other one is filled anew, and then
// the rules turn to it.
type Commands struct {
	Table string       `json:"table"`
	Sets  []CommandSet `json:"sets"`
	Limit []LimitSet   `json:"limit,omitempty"` // what limits ban
	Never addrset.Set  `json:"-"`               // wins over every ban
	Rules []byte       `json:"rules"`           // for Commander.Ask
}

// CommandSet is one set in the kernel.
type CommandSet struct {
	Name    string `json:"name"`
	Family  int    `json:"family"` // 4 or 6
	Ranges  Side   `json:"ranges"` // "": of single addresses
	Counted bool   `json:"counted,omitempty"`
}

// LimitSet is a set of the sources that limits banned. In IPv6 an element is the
// first address of a network of 64 bits and stands for all of it.
type LimitSet struct {
	Name    string `json:"name"`
	Family  int    `json:"family"`
	Counted bool   `json:"counted,omitempty"`
	Rule    string `json:"rule"` // the first one that bans, with its place
}

// Side is one of the two sets of ranges.
type Side string

// Sides.
const (
	Neither Side = ""
	SideA   Side = "a"
	SideB   Side = "b"
)

// Other is where the next ranges go.
func (s Side) Other() Side {
	if s == SideA {
		return SideB
	}
	return SideA
}

// Asked says which sets rules ask.
type Asked struct {
	Exact4  bool `json:"exact4,omitempty"`
	Exact6  bool `json:"exact6,omitempty"`
	Ranges4 Side `json:"ranges4,omitempty"`
	Ranges6 Side `json:"ranges6,omitempty"`
}

// Asks says whether a set is asked.
func (a Asked) Asks(s CommandSet) bool {
	exact, ranges := a.Exact4, a.Ranges4
	if s.Family == 6 {
		exact, ranges = a.Exact6, a.Ranges6
	}
	if s.Ranges == Neither {
		return exact
	}
	return s.Ranges == ranges
}
