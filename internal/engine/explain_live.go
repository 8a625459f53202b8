package engine

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"

	"sluice/internal/backend"
	"sluice/internal/backend/trace"
	"sluice/internal/base/packet"
	"sluice/internal/engine/apply"
	"sluice/internal/language/policy"
	"sluice/internal/program"
	"sluice/internal/prove/explain"
	"sluice/internal/prove/reference"
)

// Live is what the loaded firewall does with a packet, beside what the policy says.
type Live struct {
	Same bool `json:"same"` // verdict and rewriting are what the policy says
	// Sentence is the answer in one sentence, and Because, of answers that differ,
	// why that may be.
	Sentence string `json:"sentence"`
	Because  string `json:"because,omitempty"`
	Cause    Cause  `json:"cause,omitempty"` // of answers that differ
	// Hint is what one can do about it, by Cause; it is for whoever shows the answer to
	// fill in, in the words of their users.
	Hint    string          `json:"hint,omitempty"`
	Becomes *explain.Packet `json:"becomes,omitempty"` // what it was rewritten to
	*trace.Result
}

// askLoaded asks the loaded firewall the same and compares. With out the packet was said
// to leave by an interface; else that is what the facts say, which is not what routing has
// to do. The error is a *LiveError.
func askLoaded(ctx context.Context, h *apply.Host, e *explain.Followed, out bool) (*Live, error) {
	asked := e.Packet
	if !out {
		asked.Out = ""
	}
	progress := func(p apply.Progress) {
		if h.Progress != nil {
			h.Progress(p)
		}
	}
	called := func(word string) string { return e.Words.Name(explain.Field(word)) }
	tracer, can := h.Backend.(trace.Tracer)
	if !can {
		return nil, &LiveError{fmt.Errorf("backend %s tells nothing of a packet", h.Backend.Name())}
	}
	verbs := [trace.Steps]backend.Purpose{"read", "copy", "send"}
	r, err := tracer.Trace(ctx, trace.Question{Packet: asked, Way: e.Way, Called: called, Progress: func(step int, what string) {
		progress(apply.Progress{Done: step, Total: trace.Steps, Name: what, Purpose: verbs[step]})
	}})
	progress(apply.Progress{Done: trace.Steps, Total: trace.Steps})
	if err != nil {
		return nil, &LiveError{err}
	}
	if lines, err := h.Lines(); err == nil { // an old line is better than none
		linesNow(lines.Counters, r.Steps)
	}
	v := &Live{Result: r, Same: true}
	if r.Verdict == trace.Allow && e.Packet.Tuple() != r.Packet.Tuple() {
		becomes := explain.PacketOf(r.Packet, r.State)
		v.Becomes = &becomes
	}
	if e.Packet.Out != "" && r.Packet.Out != "" && e.Packet.Out != r.Packet.Out {
		r.Notes = append(r.Notes, fmt.Sprintf("by the routes of this host, the packet leaves by %s, not by %s", r.Packet.Out, e.Packet.Out))
	}
	if rule := e.Path.Rule; rule != nil && (rule.Limit != nil || rule.Max != nil) && r.Verdict == trace.Allow {
		r.Notes = append(r.Notes, fmt.Sprintf("the kernel does not show how much of %s is left: the copy begins with all of it", limitWords(rule, "a rate", "a number of connections")))
	}
	v.compare(e)
	if !v.Same && v.ofBannedFlow(e.Decided()) {
		if err := v.askWithoutFlow(ctx, tracer, e); err != nil {
			return nil, err
		}
	}
	if !v.Same {
		v.whyDifferent(ctx, h, e)
	}
	return v, nil
}

// linesNow names the lines of the policy that runs where a counter, which loads leave alone, may
// name one of an older policy.
func linesNow(counters map[string]program.Origin, steps []trace.Step) {
	for i := range steps {
		s := &steps[i]
		if o := counters[s.Counter]; s.Counter != "" && o.Line > 0 {
			s.Line = fmt.Sprintf("%s:%d %s", filepath.Base(o.File), o.Line, o.Text)
		}
	}
}

// LiveError says that the loaded firewall could not be asked.
type LiveError struct{ Err error }

func (e *LiveError) Error() string { return "ask the loaded firewall: " + e.Err.Error() }

func (e *LiveError) Unwrap() error { return e.Err }

// ofBannedFlow says that the packet passes only since it was said to be of a known flow,
// of an address that the policy bans.
func (v *Live) ofBannedFlow(path reference.Path) bool {
	d := v.Decider()
	return path.Stage == "ban" && v.Verdict == trace.Allow && (v.State == packet.Established || v.State == packet.Related) && (d == nil || !d.Foreign)
}

// askWithoutFlow asks again about a packet of no flow. Rules may ask bans behind known
// flows, since loading a policy ends those of the addresses that it bans; so a packet
// of such a flow is none that can come, if no packet can begin one.
func (v *Live) askWithoutFlow(ctx context.Context, tracer trace.Tracer, e *explain.Followed) error {
	p := e.Packet
	p.State, p.Flags = "", 0
	if p.Protocol == packet.TCP {
		p.Flags = packet.SYN
	}
	r, err := tracer.Trace(ctx, trace.Question{Packet: p, Way: e.Way})
	if err != nil {
		return &LiveError{err}
	}
	if r.Verdict == trace.Drop {
		v.Same = true
		v.Sentence = "The loaded firewall has no such packet: loading a policy ends the flows of the addresses that it bans, and it drops what would begin one" + deciderText(r.Decider()) + "."
	}
	return nil
}

// liveWords say what the loaded firewall does.
var liveWords = map[trace.Verdict]string{
	trace.Allow: "lets the packet pass", trace.Drop: "drops the packet", trace.Reject: "rejects the packet",
	trace.Queue: "hands the packet to a program, which decides (queue)",
}

// policyWords say what a policy does.
var policyWords = map[policy.Action]string{policy.Allow: "allows", policy.Drop: "drops", policy.Reject: "rejects"}

// compare makes the sentence.
func (v *Live) compare(e *explain.Followed) {
	path, does := e.Decided(), liveWords[v.Verdict]
	if v.Verdict == trace.Reject && v.Answer != "" {
		does += " with " + v.Answer
	}
	decider := deciderText(v.Decider())
	switch {
	case v.Verdict == trace.Lost:
		v.Same = path.Verdict != policy.Allow
		subject := "The packet"
		if !v.Same {
			subject = "The policy allows the packet, but it"
		}
		v.Sentence = fmt.Sprintf("%s gets lost in the kernel, whatever the rules say: %s.", subject, lostAs(v.Why, path.Packet))
	case string(v.Verdict) != string(path.Verdict):
		v.Same = false
		by := "The policy"
		if e.Banned() {
			by = "The ban"
		}
		v.Sentence = fmt.Sprintf("%s %s the packet, but the loaded firewall %s%s.", by, policyWords[path.Verdict], strings.Replace(does, "the packet", "it", 1), decider)
	case v.Verdict == trace.Allow && !sameRewriting(path.Packet, v.Packet) && (v.State == packet.Established || v.State == packet.Related):
		v.Sentence = fmt.Sprintf("The loaded firewall does the same: it %s%s, rewritten as the first packet of its flow would be: %s.", does, decider, explain.Ends(v.Packet))
	case v.Verdict == trace.Allow && !sameRewriting(path.Packet, v.Packet):
		v.Same = false
		v.Sentence = fmt.Sprintf("Both let the packet pass, but the policy has it leave %s, and the loaded firewall %s.", explain.Ends(path.Packet), explain.Ends(v.Packet))
	default:
		v.Sentence = fmt.Sprintf("The loaded firewall does the same: it %s%s.", does, decider)
	}
}

// lostAs says why a packet is lost, by the address to which it was led.
func lostAs(why string, p packet.Packet) string {
	if rest, is := strings.CutPrefix(why, p.Original.Destination.String()+" is not "); is && p.DNAT && p.Original.Destination != p.Destination {
		return fmt.Sprintf("%s, to which it is led, is not %s", p.Destination, rest)
	}
	return why
}

// sameRewriting compares what a packet was rewritten to; what the policy's answer leaves open
// (an address of masquerade that nobody knows, a port that the kernel chooses) is not
// compared.
func sameRewriting(said, found packet.Packet) bool {
	return (!said.Source.IsValid() || said.Source == found.Source) && (!said.Destination.IsValid() || said.Destination == found.Destination) &&
		(!said.HasPorts() || said.Port == found.Port && (said.SourcePort == 0 || said.SourcePort == found.SourcePort))
}

// deciderText says who decides.
func deciderText(s *trace.Step) string {
	switch {
	case s == nil:
		return ""
	case s.Line != "":
		return ", by " + s.Line
	case s.Foreign:
		return ": " + toolText(*s) + " decides, in " + s.Place()
	case s.Rule == "policy":
		return ", as " + s.Place() + " does where no rule decides"
	case strings.HasSuffix(s.Comment, ofCommand):
		return ", as it drops what is banned by command"
	case s.Comment != "":
		return fmt.Sprintf(", by a rule that no line of the policy stands for (%s)", s.Comment)
	}
	return ", by the rule in " + s.Place()
}

// tools are the beginnings of names of tables and chains, by whoever makes them.
var tools = []struct{ prefix, name string }{
	{"DOCKER", "Docker"},
	{"docker", "Docker"},
	{"ufw", "ufw"},
	{"firewalld", "firewalld"},
	{"LIBVIRT_", "libvirt"},
	{"libvirt", "libvirt"},
	{"f2b", "fail2ban"},
	{"crowdsec", "CrowdSec"},
	{"KUBE-", "Kubernetes"},
	{"kube-", "Kubernetes"},
	{"CNI-", "a container network"},
	{"cali-", "Calico"},
	{"CILIUM_", "Cilium"},
	{"ts-", "Tailscale"},
	{"NETAVARK", "Podman"},
	{"netavark", "Podman"},
}

// toolText names the tool that a table or chain of another is by.
func toolText(s trace.Step) string {
	for _, name := range []string{s.Chain, s.Table} {
		for _, t := range tools {
			if strings.HasPrefix(name, t.prefix) {
				return t.name
			}
		}
	}
	return "another tool"
}
