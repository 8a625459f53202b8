package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"strings"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"sluice/internal/backend"
	"sluice/internal/base/packet"
	"sluice/internal/cli/command"
	"sluice/internal/engine/apply"
	"sluice/internal/engine/trace"
	"sluice/internal/language/policy"
	"sluice/internal/prove/reference"
)

// liveHelp is the part of explain's help that is about --live.
const liveHelp = `
With --live, the packet is also sent through the firewall that is loaded: through a
copy of this network namespace, with all rules of all tools (nftables, iptables over
it and legacy iptables), what their sets hold now, interfaces, addresses, routes and
settings. Nothing reaches the host itself or anybody else, no counter and no limit of
the host's changes, and the copy is gone when the command ends. It shows every chain
and rule that the packet met, and where the two answers differ, who decides otherwise:
another tool, a ban by command, a rule that was changed by hand, another text of the
policy that is loaded. It needs root.`

// addExplainLive adds the flag that asks the loaded firewall too.
func addExplainLive(cmd *cobra.Command) {
	cmd.Flags().Bool("live", false, "send the packet through a copy of this host's loaded firewall too, and compare")
}

// liveView is what the loaded firewall does with a packet, beside what the policy
// says.
type liveView struct {
	Same bool `json:"same"` // verdict and rewriting are what the policy says
	// Sentence is the answer in one sentence, and Because, of answers that differ,
	// why that may be.
	Sentence string      `json:"sentence"`
	Because  string      `json:"because,omitempty"`
	Hint     string      `json:"hint,omitempty"`
	Becomes  *packetView `json:"becomes,omitempty"` // what it was rewritten to
	*trace.Result
}

// askLoaded asks the loaded firewall the same and compares. It is for a command line
// with --live, after the policy has been read and asked.
func (e *explained) askLoaded(ctx context.Context, cmd *cobra.Command) (*liveView, error) {
	h, err := hostOf(cmd)
	if err != nil {
		return nil, err
	}
	asked := e.packet
	if !cmd.Flags().Changed("out") {
		asked.Out = "" // what the facts say is not what routing has to do
	}
	verbs := [trace.Steps]backend.Purpose{"read", "copy", "send"}
	r, err := trace.Ask(ctx, trace.Question{Packet: asked, Way: e.way, Progress: func(step int, what string) {
		h.Progress(apply.Progress{Done: step, Total: trace.Steps, Name: what, Purpose: verbs[step]})
	}})
	h.Progress(apply.Progress{Done: trace.Steps, Total: trace.Steps})
	switch {
	case errors.Is(err, fs.ErrPermission) && !errors.Is(err, trace.ErrQuestion):
		return nil, fmt.Errorf("--live: %w", withHint(err, "it needs root"))
	case err != nil:
		return nil, fmt.Errorf("--live: %w", err)
	}
	v := &liveView{Result: r, Same: true}
	if r.Verdict == trace.Allow && !sameTuple(e.packet, r.Packet) {
		becomes := viewOf(r.Packet, r.State)
		v.Becomes = &becomes
	}
	if e.packet.Out != "" && r.Packet.Out != "" && e.packet.Out != r.Packet.Out {
		r.Notes = append(r.Notes, fmt.Sprintf("the routes of this host lead the packet out by %s, not by %s", r.Packet.Out, e.packet.Out))
	}
	if rule := e.path.Rule; rule != nil && (rule.Limit != nil || rule.Max != nil) && r.Verdict == trace.Allow {
		r.Notes = append(r.Notes, fmt.Sprintf("the kernel does not tell how much of %s is left: in the copy nothing of it is used up", limitWords(rule, "a rate", "a number of connections")))
	}
	v.compare(e.path)
	if !v.Same && v.ofBannedFlow(e.path) {
		if err := e.askWithoutFlow(ctx, v); err != nil {
			return nil, err
		}
	}
	if !v.Same {
		v.Because, v.Hint = e.whyDifferent(ctx, cmd, v)
	}
	return v, nil
}

// ofBannedFlow says that the packet passes only since it was said to be of a known flow,
// of an address that the policy bans.
func (v *liveView) ofBannedFlow(path reference.Path) bool {
	d := v.Decider()
	return path.Stage == "ban" && v.Verdict == trace.Allow && (v.State == packet.Established || v.State == packet.Related) && (d == nil || !d.Foreign)
}

// askWithoutFlow asks anew about a packet of no flow. Rules may ask bans behind known
// flows, since loading a policy ends those of the addresses that it bans; so a packet
// of such a flow is none that can come, if no packet can begin one.
func (e *explained) askWithoutFlow(ctx context.Context, v *liveView) error {
	p := e.packet
	p.State, p.Flags = "", 0
	if p.Protocol == packet.TCP {
		p.Flags = packet.SYN
	}
	r, err := trace.Ask(ctx, trace.Question{Packet: p, Way: e.way})
	if err != nil {
		return fmt.Errorf("--live: %w", err)
	}
	if r.Verdict == trace.Drop {
		v.Same = true
		v.Sentence = "The loaded firewall has no such packet: loading a policy ends the flows of the addresses that it bans, and it drops what would begin one" + deciderText(r.Decider()) + "."
	}
	return nil
}

func withHint(err error, hint string) error {
	if strings.Contains(err.Error(), "\nhint: ") {
		return err
	}
	return fmt.Errorf("%w\nhint: %s", err, hint)
}

// liveWords say what the loaded firewall does.
var liveWords = map[trace.Verdict]string{
	trace.Allow: "lets the packet pass", trace.Drop: "drops the packet", trace.Reject: "rejects the packet",
	trace.Queue: "hands the packet to a program, which decides (queue)",
}

// policyWords say what a policy does.
var policyWords = map[policy.Action]string{policy.Allow: "allows", policy.Drop: "drops", policy.Reject: "rejects"}

// compare makes the sentence.
func (v *liveView) compare(path reference.Path) {
	does := liveWords[v.Verdict]
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
		v.Sentence = fmt.Sprintf("The policy %s the packet, but the loaded firewall %s%s.", policyWords[path.Verdict], strings.Replace(does, "the packet", "it", 1), decider)
	case v.Verdict == trace.Allow && !sameRewriting(path.Packet, v.Packet) && (v.State == packet.Established || v.State == packet.Related):
		v.Sentence = fmt.Sprintf("The loaded firewall does the same: it %s%s, rewritten as the first packet of its flow would be: %s.", does, decider, endsText(v.Packet))
	case v.Verdict == trace.Allow && !sameRewriting(path.Packet, v.Packet):
		v.Same = false
		v.Sentence = fmt.Sprintf("Both let the packet pass, but the policy has it leave %s, and the loaded firewall %s.", endsText(path.Packet), endsText(v.Packet))
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
	case s.Comment != "":
		return fmt.Sprintf(", by a rule that no line of the policy stands for (%s)", s.Comment)
	}
	return ", by the rule in " + s.Place()
}

// tools are the beginnings of names of tables and chains, by who makes them.
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

// printLiveAnswer prints the answer of the loaded firewall, without the way to it.
func printLiveAnswer(w io.Writer, v *liveView) {
	style := "1;32"
	if !v.Same {
		style = "1;31"
	}
	fmt.Fprintln(w, "\n"+command.Paint(w, style, v.Sentence))
	if v.Because != "" {
		fmt.Fprintf(w, "  %s\n", v.Because)
	}
	if v.Hint != "" {
		fmt.Fprintf(w, "  hint: %s\n", v.Hint)
	}
	if v.Becomes != nil && !v.Same {
		text := endsText(v.Packet)
		if v.Packet.Out != "" {
			text += ", out by " + v.Packet.Out
		}
		fmt.Fprintf(w, "  There it becomes a packet %s.\n", command.Paint(w, "1", text))
	}
}

// printLive prints what the packet met in the loaded firewall.
func printLive(w io.Writer, v *liveView) {
	title := "What it meets in the loaded firewall"
	if v.State != "" {
		title += fmt.Sprintf(", as a packet that is %s there", v.State)
	}
	fmt.Fprintln(w, "\n"+command.Paint(w, "1", title))
	if len(v.Steps) == 0 {
		fmt.Fprintln(w, "  no chain of any tool")
	}
	printLiveSteps(w, v)
	for _, note := range v.Notes {
		fmt.Fprintln(w, "\nNote: "+note+".")
	}
}

// printLiveSteps is the table of the chains and rules that the packet met.
func printLiveSteps(w io.Writer, v *liveView) {
	var rows [][4]string
	var width [3]int
	for _, s := range v.Steps {
		row := [4]string{fmt.Sprintf("%s %d", s.Hook, s.Priority), s.Family + " " + s.Table + " " + s.Chain, s.Verdict, liveRule(s)}
		if s.Legacy {
			row[1] = "legacy " + row[1]
		}
		for i := range width {
			width[i] = max(width[i], utf8.RuneCountInString(row[i]))
		}
		rows = append(rows, row)
	}
	for i, row := range rows {
		text := fmt.Sprintf("%-*s  %-*s  %-*s  %s", width[0], row[0], width[1], row[1], width[2], row[2], row[3])
		if i == v.Decided {
			fmt.Fprintln(w, command.Paint(w, "1", "> "+text))
		} else {
			fmt.Fprintln(w, "  "+text)
		}
	}
}

// liveRule is what the table says of a rule: its line of the policy, what Sluice says of
// it, or its text.
func liveRule(s trace.Step) string {
	switch {
	case s.Rule == "policy":
		return "no rule decided: the chain's policy"
	case s.Line != "":
		return s.Line
	case !s.Foreign && s.Comment != "":
		return s.Comment
	case s.Handle == 0:
		return s.Rule
	}
	return fmt.Sprintf("%s # handle %d", s.Rule, s.Handle)
}

// askLive asks the loaded firewall where the command line wants it.
func (e *explained) askLive(cmd *cobra.Command, described string) error {
	if wanted, _ := cmd.Flags().GetBool("live"); !wanted {
		return nil
	}
	if described != "" {
		return errors.New("--live asks this host, --host another one\nhint: leave one of them away")
	}
	ctx, stop := command.Interruptible(cmd)
	defer stop()
	var err error
	e.live, err = e.askLoaded(ctx, cmd)
	return err
}
