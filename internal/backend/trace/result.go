package trace

import (
	"fmt"
	"strings"

	"sluice/internal/base/packet"
)

// Verdict is what happened to a packet.
type Verdict string

// Verdicts.
const (
	Allow  Verdict = "allow"  // it would have come to a socket, or has left
	Drop   Verdict = "drop"   // a chain dropped it
	Reject Verdict = "reject" // a chain dropped it and answered
	Lost   Verdict = "lost"   // the kernel let it fall between chains: routing, reassembly
	Queue  Verdict = "queue"  // a program in user space decides
)

// Result is what the loaded firewall does with a packet.
type Result struct {
	Verdict Verdict `json:"verdict"`
	// Way is where the packet went, which rewriting and routing decide.
	Way packet.Way `json:"way"`
	// State is what connection tracking said; "" where it was not asked.
	State packet.State `json:"state,omitempty"`
	Steps []Step       `json:"steps"`
	// Decided is the index of the step that decided, -1 where none of the chains did.
	Decided int    `json:"decided"`
	Why     string `json:"why,omitempty"`    // of Lost
	Answer  string `json:"answer,omitempty"` // what the sender got: a TCP reset
	// Packet is the packet as it left or arrived, or as it was last seen.
	Packet packet.Packet `json:"-"`
	Notes  []string      `json:"notes,omitempty"` // what is not as on the host
	// Loaded says that a table of Sluice is there.
	Loaded bool `json:"loaded"`
}

// Step is one rule that the packet fulfilled, or the end of a chain.
type Step struct {
	Hook     string `json:"hook"`
	Priority int32  `json:"priority"`
	Family   string `json:"family"`
	Table    string `json:"table"`
	Chain    string `json:"chain"`
	Handle   uint64 `json:"handle,omitempty"` // 0: the chain's policy, or legacy iptables
	Number   int    `json:"-"`                // of the rule in its chain, from 1; 0: not known, or no rule
	Rule     string `json:"rule"`             // as nft prints it, without its comment
	Comment  string `json:"comment,omitempty"`
	Line     string `json:"line,omitempty"`   // of the policy that the rule is made of: "policy.yaml:12 allow ssh"
	Counter  string `json:"-"`                // whose comment Line is, which may be of an older policy; "": it is the rule's own
	Verdict  string `json:"verdict"`          // accept, drop, jump CHAIN, …
	Foreign  bool   `json:"foreign"`          // of another tool's table
	Legacy   bool   `json:"legacy,omitempty"` // of legacy iptables
}

// Place names a step: "chain input of table inet sluice, handle 12".
func (s Step) Place() string {
	var b strings.Builder
	if s.Legacy {
		fmt.Fprintf(&b, "chain %s of table %s of legacy %s", s.Chain, s.Table, legacyName(s.Family))
		return b.String()
	}
	fmt.Fprintf(&b, "chain %s of table %s %s", s.Chain, s.Family, s.Table)
	if s.Handle != 0 {
		fmt.Fprintf(&b, ", handle %d", s.Handle)
	}
	return b.String()
}

func legacyName(family string) string {
	if family == "ip6" {
		return "ip6tables"
	}
	return "iptables"
}

// Decider is the step that decided; nil where none did.
func (r *Result) Decider() *Step {
	if r.Decided < 0 || r.Decided >= len(r.Steps) {
		return nil
	}
	return &r.Steps[r.Decided]
}
