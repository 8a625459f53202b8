package answers

import (
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"sluice/internal/base/english"
	"sluice/internal/cli/command"
	"sluice/internal/engine"
	"sluice/internal/language/policy"
	"sluice/internal/prove/explain"
)

// verdictStyles are the colours of verdicts.
var verdictStyles = map[policy.Action]string{policy.Allow: "1;32", policy.Drop: "1;31", policy.Reject: "1;31"}

// alwaysHolds says of a stage that decides without a line of the policy what it
// lets through or refuses.
var alwaysHolds = map[string]string{
	"loopback": "traffic of the host to itself passes",
	"needed":   "ICMP that the network needs to work passes",
	"state":    "packets of known connections pass, including replies",
	"held":     "guests may only use their own addresses",
	"invalid":  "a packet that belongs to no connection and begins none is dropped",
	"answers":  "replies without a connection pass: of DHCP, and of services that bypass tracking",
	"open":     "a section that is missing from the policy allows everything",
}

// Explained prints what a policy does with one packet, and why; with everyRule also rules that
// many in a row do not fit for one reason.
func Explained(w io.Writer, v *engine.Explained, everyRule bool) {
	if v.Verdict == explain.Unknown {
		fmt.Fprintln(w, v.Sentence)
		printWays(w, v.Ways)
		for _, why := range v.Unsure {
			fmt.Fprintf(w, "why: %s\n", why)
		}
		printEnd(w, v)
		return
	}
	word := v.Verdict.Done()
	fmt.Fprintln(w, strings.Replace(v.Sentence, " is "+word, " is "+command.Paint(w, verdictStyles[v.Verdict], word), 1))
	if v.Excerpt != nil {
		quote(w, v.Excerpt)
	} else if v.Stage != "routing" && v.Banned == "" {
		fmt.Fprintln(w, command.Paint(w, "2", "  built-in rule: "+alwaysHolds[v.Stage]))
	}
	if v.Live != nil {
		printLiveAnswer(w, v.Live)
	}
	if b := v.Becomes; b != nil {
		fmt.Fprintf(w, "\nIt becomes a packet %s%s.\n", command.Paint(w, "1", b.Ends), choice(b.Out != "", ", out by "+b.Out, ""))
	}
	fmt.Fprintln(w, "\n"+command.Paint(w, "1", "Path through the policy"))
	printSteps(w, v.Steps, everyRule)
	if len(v.Sets) > 0 {
		fmt.Fprintln(w, "\n"+command.Paint(w, "1", "Sets looked up"))
		for _, s := range v.Sets {
			printSet(w, s)
		}
	}
	printEnd(w, v)
}

// printEnd prints what is behind every answer.
func printEnd(w io.Writer, v *engine.Explained) {
	if len(v.Assumed) > 0 {
		fmt.Fprintln(w, "\nAssumed, because not given: "+strings.Join(v.Assumed, ", ")+".")
	}
	for _, note := range v.Notes {
		fmt.Fprintln(w, "\nNote: "+note+".")
	}
	switch a := v.Program.Agrees; {
	case v.Stage == "routing":
	case a == nil:
		fmt.Fprintln(w, "\n"+command.Paint(w, "33", "The compiled rules were not compared")+": "+v.Program.Says+".")
	case *a && v.Banned != "":
		printAgreement(w, "Without bans, the compiled rules agree", "; with them, they cost", v)
	case *a:
		printAgreement(w, "The compiled rules agree", "; they cost", v)
	default:
		fmt.Fprintln(w, "\n"+command.Paint(w, "1;31", "The compiled rules differ")+": "+v.Program.Says+".")
	}
	if v.Live != nil {
		printLive(w, v.Live)
	}
}

// printAgreement prints that the compiled rules agree, and what they cost the packet.
func printAgreement(w io.Writer, agree, cost string, v *engine.Explained) {
	if v.Cost != nil {
		measured := "estimated, not measured on this machine"
		switch c := v.Cost.CostsView; {
		case c.Elsewhere:
			measured = "estimated"
		case !c.Measured.IsZero() && len(c.Warnings) > 0:
			measured = "measured on " + c.Measured.Format(time.DateOnly) + ", when this machine was busy"
		case !c.Measured.IsZero():
			measured = "measured on this machine on " + c.Measured.Format(time.DateOnly)
		}
		agree += fmt.Sprintf("%s this packet about %.0f ns (%s)", cost, v.Cost.NS, measured)
	}
	fmt.Fprintln(w, "\n"+command.Paint(w, "2", agree+"."))
}

// quote shows the line of the policy with a mark under what decides.
func quote(w io.Writer, e *explain.Excerpt) {
	fmt.Fprintln(w, "  "+command.Paint(w, "1", e.Place))
	fmt.Fprintln(w, "    "+e.Line)
	if e.Marker != "" {
		fmt.Fprintln(w, "    "+command.Paint(w, "1", e.Marker))
	}
}

func printSteps(w io.Writer, steps []explain.Step, everyRule bool) {
	var rows [][4]string
	var decides []bool
	for i := 0; i < len(steps); i++ {
		s := steps[i]
		place, reason := placeText(s.Line), s.Reason
		if alike := alike(steps[i:]); alike >= manyAlike && !everyRule {
			last := steps[i+alike-1]
			place = fmt.Sprintf("%s-%d", place, last.Line.Line)
			reason = fmt.Sprintf("%s do not match: %s", english.Plural(alike, "rule"), strings.Replace(s.Reason, "it is ", "they are ", 1))
			i += alike - 1
		} else if s.Line != nil && strings.Contains(s.Line.Text, ": ") {
			reason = s.Line.Text + " (" + s.Reason + ")"
		} else if s.Line != nil {
			reason = s.Line.Text + ": " + s.Reason
		} else if s.Decides {
			if place = "built in"; s.Stage == "ban" {
				place = "a ban now"
			}
		}
		rows = append(rows, [4]string{s.Hook, s.Stage, place, reason})
		decides = append(decides, s.Decides)
	}
	printRows(w, rows, func(i int) bool { return decides[i] })
}

// printRows prints a table, with a mark at the rows that decide.
func printRows(w io.Writer, rows [][4]string, decides func(i int) bool) {
	var width [3]int
	for _, r := range rows {
		for i := range width {
			width[i] = max(width[i], utf8.RuneCountInString(r[i]))
		}
	}
	for i, r := range rows {
		text := fmt.Sprintf("%-*s  %-*s  %-*s  %s", width[0], r[0], width[1], r[1], width[2], r[2], r[3])
		if decides(i) {
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
func alike(steps []explain.Step) int {
	n := 0
	for n < len(steps) && !steps[n].Decides && steps[n].Stage == "rules" && steps[n].Line != nil &&
		steps[n].Reason == steps[0].Reason && steps[n].Line.File == steps[0].Line.File {
		n++
	}
	return n
}

func printSet(w io.Writer, s explain.Set) {
	in := "is in"
	if !s.In {
		in = "is not in"
	}
	from := ""
	if s.Others {
		from = ", which another program fills"
	}
	byCountry := func(e explain.Entry) bool { return e.Country != "" }
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
			what += ", via " + strings.Join(e.Sets[1:], ", ")
		}
		if e.Out {
			what += ", which is excepted"
		}
		if e.URL != "" {
			what += ", from " + e.URL
		}
		if e.Added {
			what += ", added by sluice set"
		}
		if !e.Until.IsZero() {
			what += ", until " + e.Until.Local().Format(time.DateTime)
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

// printWays prints how a packet ends on each of its ways.
func printWays(w io.Writer, ways []explain.WayView) {
	var said []string
	for _, v := range ways {
		end := ": " + v.Why
		if v.Line != nil {
			end = fmt.Sprintf(" by %s:%d:%d: %s", v.Line.File, v.Line.Line, v.Line.Column, v.Line.Text)
		}
		plain := v.Label + ": " + string(v.Verdict) + end
		if slices.Contains(said, plain) {
			continue
		}
		said = append(said, plain)
		fmt.Fprintf(w, "  %s: %s%s\n", v.Label, command.Paint(w, verdictStyles[v.Verdict], v.Verdict.Done()), end)
	}
}

// placeText is a place as the table shows it: a file's own name and the line.
func placeText(l *explain.Line) string {
	if l == nil {
		return ""
	}
	return fmt.Sprintf("%s:%d", filepath.Base(l.File), l.Line)
}
