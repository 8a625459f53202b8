package cli

import (
	"fmt"
	"io"
	"net/netip"
	"slices"
	"strings"
	"unicode/utf8"

	"sluice/internal/base/packet"
	"sluice/internal/cli/command"
	"sluice/internal/language/policy"
)

// verdictWords say a verdict, and the style of it.
var verdictWords = map[policy.Action]struct{ word, style string }{
	policy.Allow: {"allowed", "1;32"}, policy.Drop: {"dropped", "1;31"}, policy.Reject: {"rejected", "1;31"},
}

// alwaysHolds says of a stage that decides without a line of the policy what it
// lets through or refuses.
var alwaysHolds = map[string]string{
	"loopback": "what the host says to itself passes",
	"needed":   "ICMP that the network cannot work without passes",
	"state":    "packets of known connections pass, replies among them",
	"invalid":  "what belongs to no connection and opens none is dropped",
	"answers":  "answers pass that no connection covers: those of DHCP, and of what bypasses tracking",
	"open":     "a section that is left out is not policed",
}

// sentence is the answer in one sentence.
func (e *explained) sentence(v explainView) string {
	word := verdictWords[v.Verdict].word
	about := []string{packetSubject(e.packet, e.path.Packet.State), endsText(e.packet), e.routeText()}
	if v.Verdict == unknownVerdict {
		return strings.Join(append(about, "has no verdict that holds on every way it may go:"), " ")
	}
	text := strings.Join(append(about, "is", word), " ")
	if v.Verdict == policy.Reject {
		text += map[bool]string{true: " with a reset", false: " with ICMP port unreachable"}[e.packet.Protocol == packet.TCP]
	}
	switch {
	case v.Banned != "" && e.path.Pos.Line == 0:
		text += fmt.Sprintf(" by a ban by command. Without the ban the policy allows it: %s.", e.path.Why)
	case v.Banned != "":
		text += " by a ban by command. Without the ban the policy allows it by this line:"
	case v.Stage == "routing":
		text += " by routing, before any rule is asked: " + v.Why + "."
	case v.Line == nil:
		text += ": " + v.Why + "."
	case v.Limited != "":
		text += " by this line, " + v.Limited + ":"
	default:
		text += " by this line:"
	}
	return text
}

func packetSubject(p packet.Packet, state packet.State) string {
	kind := map[uint8]string{
		packet.TCP: "TCP packet", packet.UDP: "UDP packet", packet.SCTP: "SCTP packet",
		packet.ICMP: "ICMP message", packet.ICMPv6: "ICMPv6 message",
	}[p.Protocol]
	switch word, known := policy.ICMPWord(p.Protocol == packet.ICMPv6, uint64(p.ICMPType)); {
	case kind == "":
		kind = fmt.Sprintf("packet of protocol %d", p.Protocol)
	case p.Protocol != packet.ICMP && p.Protocol != packet.ICMPv6:
	case known:
		kind += " (" + strings.TrimPrefix(word, "icmp ") + ")"
	default:
		kind += fmt.Sprintf(" of type %d", p.ICMPType)
	}
	about := strings.TrimSpace(string(state) + " " + kind) // what routing refuses is never tracked
	article := "A"
	if strings.ContainsRune("aeiouI", rune(about[0])) {
		article = "An"
	}
	return article + " " + about
}

func endsText(p packet.Packet) string {
	source := p.Source.String()
	if !p.Source.IsValid() {
		source = "the address of its interface, which is not known"
	}
	switch {
	case !p.HasPorts():
		return fmt.Sprintf("from %s to %s", source, p.Destination)
	case p.SourcePort == 0:
		source += " (and a port that the kernel chooses)"
	case p.Source.IsValid():
		source = netip.AddrPortFrom(p.Source, p.SourcePort).String()
	}
	return fmt.Sprintf("from %s to %s", source, netip.AddrPortFrom(p.Destination, p.Port))
}

// routeText says how the packet goes.
func (e *explained) routeText() string {
	by := func(word string, of func(wayTaken) string) string {
		names := e.names(of)
		if len(names) == 0 || len(names) > shownDevices {
			return word + " by an unknown interface"
		}
		return word + " by " + strings.Join(names, " or ")
	}
	switch {
	case e.path.Stage == "routing" && e.path.Hook == policy.Output:
		return "that this host sends"
	case e.path.Hook == policy.Output:
		return "that this host sends " + by("out", wayTaken.out)
	case e.path.Hook == policy.Forward && e.path.Stage != "routing":
		return "that comes " + by("in", wayTaken.in) + " and goes " + by("out", wayTaken.out)
	}
	return "that comes " + by("in", wayTaken.in)
}

// shownDevices is up to how many interfaces are named of which a packet uses one.
const shownDevices = 4

func (e *explained) print(w io.Writer, v explainView) {
	if v.Verdict == unknownVerdict {
		fmt.Fprintln(w, v.Sentence)
		e.printWays(w, v.Ways)
		for _, why := range v.Unsure {
			fmt.Fprintf(w, "why: %s\n", why)
		}
		e.printEnd(w, v)
		return
	}
	style := verdictWords[v.Verdict]
	fmt.Fprintln(w, strings.Replace(v.Sentence, " is "+style.word, " is "+command.Paint(w, style.style, style.word), 1))
	if e.path.Pos.Line > 0 {
		e.quote(w, e.path.Pos, e.path.Text)
	} else if v.Stage != "routing" && v.Banned == "" {
		fmt.Fprintln(w, command.Paint(w, "2", "  not written in the policy, it always holds: "+alwaysHolds[v.Stage]))
	}
	if v.Live != nil {
		printLiveAnswer(w, v.Live)
	}
	if b := v.Becomes; b != nil {
		fmt.Fprintf(w, "\nIt becomes a packet %s%s.\n", command.Paint(w, "1", endsText(e.path.Packet)), map[bool]string{true: ", out by " + b.Out, false: ""}[b.Out != ""])
	}
	fmt.Fprintln(w, "\n"+command.Paint(w, "1", "What it passes"))
	e.printSteps(w, v.Steps)
	if len(v.Sets) > 0 {
		fmt.Fprintln(w, "\n"+command.Paint(w, "1", "Sets that were asked"))
		for _, s := range v.Sets {
			printSet(w, s)
		}
	}
	e.printEnd(w, v)
}

// printEnd prints what stands behind every answer.
func (e *explained) printEnd(w io.Writer, v explainView) {
	if len(v.Assumed) > 0 {
		fmt.Fprintln(w, "\nTaken for granted, since nothing else was said: "+strings.Join(v.Assumed, ", ")+".")
	}
	for _, note := range v.Notes {
		fmt.Fprintln(w, "\nNote: "+note+".")
	}
	switch a := v.Program.Agrees; {
	case v.Stage == "routing":
	case a == nil:
		fmt.Fprintln(w, "\n"+command.Paint(w, "33", "The compiled rules were not compared")+": "+v.Program.Says+".")
	case *a && v.Banned != "":
		fmt.Fprintln(w, "\n"+command.Paint(w, "2", "The compiled rules do what the policy says without the ban."))
	case *a:
		fmt.Fprintln(w, "\n"+command.Paint(w, "2", "The compiled rules do the same."))
		if v.Cost != nil {
			fmt.Fprintf(w, "They cost this packet about %.0f ns %s.\n", v.Cost.NS, e.costs.words())
		}
	default:
		fmt.Fprintln(w, "\n"+command.Paint(w, "1;31", "The compiled rules do otherwise")+": "+v.Program.Says+".")
	}
	if v.Live != nil {
		printLive(w, v.Live)
	}
}

// quote shows the line of the policy with a mark under what decides.
func (e *explained) quote(w io.Writer, pos policy.Pos, text string) {
	excerpt := e.policy.Errorf(pos, "", "")
	fmt.Fprintln(w, "  "+command.Paint(w, "1", pos.String()))
	line, marker := excerpt.Excerpt()
	if line == "" {
		fmt.Fprintln(w, "    "+text)
		return
	}
	fmt.Fprintln(w, "    "+line)
	fmt.Fprintln(w, "    "+command.Paint(w, "1", marker))
}

// stepRow is a line of the table.
type stepRow struct{ cells [4]string }

func (e *explained) printSteps(w io.Writer, steps []stepView) {
	var rows []stepRow
	var decides []bool
	for i := 0; i < len(steps); i++ {
		s := steps[i]
		place, reason := placeText(s.Line), s.Reason
		if alike := e.alike(steps[i:]); alike > 1 {
			last := steps[i+alike-1]
			place = fmt.Sprintf("%s-%d", place, last.Line.Line)
			reason = fmt.Sprintf("%s do not fit: %s", plural(alike, "rule"), strings.Replace(s.Reason, "it is about", "they are about", 1))
			i += alike - 1
		} else if s.Line != nil && strings.Contains(s.Line.Text, ": ") {
			reason = s.Line.Text + " (" + s.Reason + ")"
		} else if s.Line != nil {
			reason = s.Line.Text + ": " + s.Reason
		} else if s.Decides {
			place = "not written"
		}
		rows = append(rows, stepRow{[4]string{s.Hook, s.Stage, place, reason}})
		decides = append(decides, s.Decides)
	}
	var width [3]int
	for _, r := range rows {
		for i := range width {
			width[i] = max(width[i], utf8.RuneCountInString(r.cells[i]))
		}
	}
	for i, r := range rows {
		text := fmt.Sprintf("%-*s  %-*s  %-*s  %s", width[0], r.cells[0], width[1], r.cells[1], width[2], r.cells[2], r.cells[3])
		if decides[i] {
			fmt.Fprintln(w, command.Paint(w, "1", "> "+text))
		} else {
			fmt.Fprintln(w, "  "+text)
		}
	}
}

// manyAlike is from how many rules in a row that do not fit for one reason one
// line stands for all.
const manyAlike = 4

// alike is how many rules at the beginning do not fit for the same reason, in
// one file.
func (e *explained) alike(steps []stepView) int {
	n := 0
	for n < len(steps) && !steps[n].Decides && steps[n].Stage == "rules" && steps[n].Line != nil &&
		steps[n].Reason == steps[0].Reason && steps[n].Line.File == steps[0].Line.File {
		n++
	}
	if e.everyRule || n < manyAlike {
		return 1
	}
	return n
}

func printSet(w io.Writer, s setView) {
	in := "is in"
	if !s.In {
		in = "is not in"
	}
	from := ""
	byCountry := func(e entryView) bool { return e.Country != "" }
	if !s.In && s.Country != "" && !slices.ContainsFunc(s.Entries, byCountry) {
		from = fmt.Sprintf("; it is of %s in %s", nameOfCountry(s.Country, s.Name), s.Data)
	}
	fmt.Fprintf(w, "  %s %s %s%s\n", s.Address, in, command.Paint(w, "1", s.Set), from)
	for _, e := range s.Entries {
		what := e.Range
		if e.Country != "" {
			what = fmt.Sprintf("%s is %s in %s", e.Range, nameOfCountry(e.Country, e.Name), e.Data)
		}
		if len(e.Sets) > 1 {
			what += ", by way of " + strings.Join(e.Sets[1:], ", ")
		}
		if e.Out {
			what += ", which is taken out"
		}
		if e.URL != "" {
			what += ", from " + e.URL
		}
		place := ""
		if e.Line != nil {
			place = fmt.Sprintf("%s:%d:%d: ", e.Line.File, e.Line.Line, e.Line.Column)
		}
		fmt.Fprintln(w, command.Paint(w, "2", "    "+place+what))
	}
}

func nameOfCountry(code, name string) string {
	if name == "" {
		return code
	}
	return fmt.Sprintf("%s (%s)", code, name)
}
