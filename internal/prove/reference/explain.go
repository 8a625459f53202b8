package reference

import (
	"net/netip"

	"sluice/internal/base/addrset"
	"sluice/internal/base/packet"
	"sluice/internal/language/policy"
	"sluice/internal/language/resolve"
	"sluice/internal/system/host"
)

// Path is what happens to a packet, and on which way.
type Path struct {
	Hook    policy.Hook   // of the section that decides
	Verdict policy.Action // Allow, Drop or Reject
	// Stage of the section that decided, see [Stages].
	Stage string
	Rule  *policy.Rule // nil where no rule of the policy decided
	// Pos and Text are the line that decided: a rule, an entry of ban, a
	// default. Pos.Line is 0 where the policy has no such line: what always holds.
	Pos  policy.Pos
	Text string
	Why  string // why it decided, for a reader
	// Steps are the hooks and stages in the order in which the packet passed
	// them; nil where nobody asked for them.
	Steps []Step
	// Published says that a rule of another tool, which the facts name, has
	// rewritten the destination.
	Published bool
	// Packet is the packet as it leaves, or as it was when it was refused.
	Packet packet.Packet
	// Crowded says that the packet begins a flow that the kernel gives another port,
	// which nobody can know before: its own bypasses tracking, or, as [Flows] alone
	// says, another flow has its answers.
	Crowded bool
	// Answer is what happens to the reset that a rejected packet of no connection
	// gets, which output decides as any other; [Flows] alone follows it.
	Answer  *Path
	OverBan OverBan
	// Route is what routing said of the packet last, where it was asked.
	Route host.Way
}

// Step is one thing that a packet passes.
type Step struct {
	Hook    string // of netfilter: prerouting, input, forward, output, postrouting
	Stage   string // one of [Stages], or tracking, nat, routing, rewrite
	Reason  string // why it decides or does not, for a reader
	Pos     policy.Pos
	Text    string // the line that is asked; "" where none is written
	Decides bool
	Asked   []Membership
}

// Membership is what a set was asked, and what it answered.
type Membership struct {
	Set     string // its name in the policy; "" for addresses that are in the line itself, told where they hold it
	Address netip.Addr
	In      bool
	Element addrset.Range // that holds the address; zero where In is false
}

// Stages of a section, in the order in which they are asked; "open" stands for
// all behind bans where a section is left out. A packet that routing leads nowhere
// is dropped at stage "routing", before a section is asked.
var Stages = []string{"loopback", "held", "ban", "needed", "state", "invalid", "answers", "rules", "default", "open"}

// Explain follows a packet along its way. It is the packet as it arrives, or
// as a local socket sends it; its State is what connection tracking says of it,
// or "" for a packet of no known flow, of which Explain says itself what
// tracking makes: new, invalid, or untracked. The way is where its destination
// leads before rewriting; rewriting may turn input into forward and back. An
// interface that is "" is asked of the host's facts.
func Explain(r *resolve.Resolved, p packet.Packet, way packet.Way) Path {
	w := newWalk(r, p, way)
	return w.run()
}

// Follow is Explain without Steps, for those who ask many times.
func Follow(r *resolve.Resolved, p packet.Packet, way packet.Way) Path {
	w := newWalk(r, p, way)
	w.quiet = true
	return w.run()
}

// walk is a packet on its way.
type walk struct {
	*resolve.Resolved
	packet packet.Packet
	way    packet.Way
	hook   policy.Hook // of the section that is asked
	at     string      // hook of netfilter where the packet is
	quiet  bool        // no steps are wanted
	steps  []Step
	asked  []Membership // since the last step

	table   *Flows // nil: flows are not followed
	flow    *flow  // that the packet belongs to; nil: none that is known
	begins  bool   // the packet may begin a flow, so lines of nat are asked
	moved   bool   // the destination is another than that of the packet that came
	foreign bool   // another tool has rewritten the destination
	crowded bool   // the kernel chooses the port of its source
	over    OverBan
	decided *Path // nil: nothing has decided yet

	router host.Router // nil: the facts alone say where a packet goes
	routed host.Way    // its last answer
	choose func(of int) int
}

func newWalk(r *resolve.Resolved, p packet.Packet, way packet.Way) *walk {
	w := &walk{Resolved: r, packet: p, way: way, moved: p.DNAT}
	w.locate()
	return w
}

func (w *walk) run() Path {
	if w.decided == nil {
		w.pass()
	}
	out := *w.decided
	out.Crowded = w.crowded
	out.Steps, out.Packet, out.Published, out.Route, out.OverBan = w.steps, w.packet, w.foreign, w.routed, w.over
	return out
}

// pass leads the packet through the hooks.
func (w *walk) pass() {
	if w.way == packet.Out {
		w.send()
	} else {
		w.receive()
	}
}

// receive is the way of a packet that comes in.
func (w *walk) receive() {
	w.at = "prerouting"
	w.track()
	w.mapInward()
	w.rewriteDestination()
	if w.route(); w.decided != nil {
		return
	}
	w.hook = policy.Input
	if w.way == packet.Through {
		w.hook = policy.Forward
	}
	w.decide()
	if w.decided.Verdict != policy.Allow {
		return
	}
	if w.way == packet.Through {
		w.at = "postrouting"
		w.rewriteSource()
	} else if w.flow != nil {
		w.flow.rewriteSource(w) // of an answer that comes to the host itself
	}
}

// send is the way of a packet that a socket of the host sends. The kernel has
// routed it before output, and asks output by the interface of that route also
// where a line of nat leads the packet elsewhere.
func (w *walk) send() {
	w.at, w.hook = "output", policy.Output
	w.track()
	w.rewriteDestination()
	w.decide()
	if w.decided.Verdict != policy.Allow {
		return
	}
	if w.moved {
		if w.leaveBy(); w.decided.Verdict != policy.Allow {
			return
		}
	}
	w.at = "postrouting"
	w.rewriteSource()
}

// decide asks the hook's section, stage by stage.
func (w *walk) decide() {
	w.at = string(w.hook)
	for _, stage := range []func(){w.loopback, w.held, w.clamp, w.ban, w.policed, w.needed, w.state, w.invalid, w.answers, w.rules, w.fallback} {
		stage()
		if w.decided != nil {
			return
		}
	}
}

// ends notes what decided.
func (w *walk) ends(action policy.Action, stage string, pos policy.Pos, text, why string) {
	w.decided = &Path{Hook: w.hook, Verdict: action, Stage: stage, Pos: pos, Text: text, Why: why}
	w.step(stage, pos, text, why)
	if n := len(w.steps); n > 0 {
		w.steps[n-1].Decides = true
	}
}

// step notes what the packet has passed.
func (w *walk) step(stage string, pos policy.Pos, text, reason string) {
	if w.quiet {
		return
	}
	w.steps = append(w.steps, Step{Hook: w.at, Stage: stage, Reason: reason, Pos: pos, Text: text, Asked: w.asked})
	w.asked = nil
}
