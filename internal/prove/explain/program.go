package explain

import (
	"fmt"
	"strings"

	"sluice/internal/base/packet"
	"sluice/internal/language/policy"
	"sluice/internal/program"
	"sluice/internal/prove/reach"
	"sluice/internal/prove/reference"
)

// Agreement is what the compiled program says of a packet.
type Agreement struct {
	// Agrees is nil where the program cannot be compared; then Says is why.
	Agrees *bool  `json:"agrees"`
	Says   string `json:"says"`
}

// Differs says that the program does otherwise than the policy.
func (a Agreement) Differs() bool { return a.Agrees != nil && !*a.Agrees }

// DiffersError says what the program does otherwise. It is a bug in Sluice.
type DiffersError struct{ Says string }

func (e *DiffersError) Error() string {
	return "trust neither answer: the compiled rules differ: " + e.Says
}

// OfSluice says that the bug is not in the policy.
func (*DiffersError) OfSluice() {}

// compare asks the program that the policy is compiled to about every way of the
// packet.
func (e *Followed) compare(compiled *program.Program) (said Agreement) {
	for _, w := range e.ways {
		if said = compareProgram(compiled, w.packet, e.Way, w.path); said.Differs() {
			break
		}
	}
	return said
}

// AsAsked is the packet as a program is asked about it: behind the rewriting of other
// tools, and of states that the kernel gives by itself.
func (e *Followed) AsAsked() (packet.Packet, packet.Way) { return askedOf(e.Packet, e.Way, e.Path) }

func askedOf(p packet.Packet, way packet.Way, path reference.Path) (packet.Packet, packet.Way) {
	asked := p
	asked.Mark = 0 // the rules' own are another thing than those of routing
	if !path.Packet.DNAT {
		switch path.Hook {
		case policy.Input:
			asked.In, way = path.Packet.In, packet.In
		case policy.Forward:
			asked.In, asked.Out, way = path.Packet.In, path.Packet.Out, packet.Through
		}
	}
	state, _ := reference.Begins(p)
	switch {
	case p.State == "" && state != packet.New && path.Packet.State == state:
		asked.State = state // of the kernel's own, whatever the program does
	case p.State == packet.Untracked:
		asked.State = ""
	}
	if path.Published || path.Packet.DNAT && path.Packet.DestinationLocal == packet.Yes {
		// The program knows neither another tool's rules nor the host's
		// addresses: it is asked behind the rewriting.
		asked = path.Packet
		asked.Source, asked.SourcePort, asked.SNAT = p.Source, p.SourcePort, false
		if way = packet.In; path.Hook == policy.Forward {
			way = packet.Through
		}
	}
	return asked, way
}

// compareProgram holds what a program does with a packet against the reference's
// answer.
func compareProgram(prog *program.Program, p packet.Packet, way packet.Way, path reference.Path) Agreement {
	yes := true
	loaded := prog
	prog = prog.BehindRouting()
	if path.Stage == "routing" {
		return Agreement{&yes, "they are not evaluated"}
	}
	if p.State == packet.Untracked {
		tracked := p
		tracked.State = ""
		if got := reach.Evaluate(prog, tracked, way); got.Packet.State != packet.Untracked {
			return Agreement{Says: "the packet was given as untracked, but the policy has it tracked"}
		}
	}
	asked, way := askedOf(p, way, path)
	if p.State == packet.Untracked && asked.State == "" {
		asked.State = packet.Untracked
	}
	got := reach.Evaluate(prog, asked, way)
	if !got.Certain {
		return Agreement{Says: "it depends on facts outside the compiled rules: " + strings.Join(got.Doubts, ", ")}
	}
	known := p.State == packet.Established || p.State == packet.Related
	if path.Stage == "ban" && known && reach.Evaluate(loaded, asked, way).Verdict == program.Accept {
		return Agreement{Says: "the connections of a banned address are deleted when it is banned, so no such packet can arrive"}
	}
	verdict := map[program.Verdict]policy.Action{program.Accept: policy.Allow, program.Drop: policy.Drop, program.Reject: policy.Reject}[got.Verdict]
	says := fmt.Sprintf("%s (%s)", verdict, got.Describe())
	if verdict == policy.Allow {
		says = string(verdict)
	}
	agrees := verdict == path.Verdict && (len(got.Doubts) > 0 || leavesAs(got.Packet, path.Packet))
	if verdict == path.Verdict && !agrees {
		says += ", as " + Ends(got.Packet)
	}
	return Agreement{&agrees, says}
}

// leavesAs says whether a packet leaves as the reference has it, as far as a
// program knows: the addresses that masquerade and a redirect to the host give
// are the kernel's to choose.
func leavesAs(got, want packet.Packet) bool {
	chosen := want.SNAT && got.Source != want.Source
	here := want.DNAT && want.DestinationLocal == packet.Yes
	return (chosen || got.Source == want.Source) && (here || got.Destination == want.Destination) && got.Port == want.Port
}
