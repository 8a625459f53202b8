package answers

import (
	"fmt"
	"io"

	"sluice/internal/backend/trace"
	"sluice/internal/cli/command"
	"sluice/internal/engine"
)

// printLiveAnswer prints the answer of the loaded firewall, without the way to it.
func printLiveAnswer(w io.Writer, v *engine.Live) {
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
		text := v.Becomes.Ends
		if v.Becomes.Out != "" {
			text += ", out by " + v.Becomes.Out
		}
		fmt.Fprintf(w, "  There it becomes a packet %s.\n", command.Paint(w, "1", text))
	}
}

// printLive prints what the packet met in the loaded firewall.
func printLive(w io.Writer, v *engine.Live) {
	title := "Path through the loaded firewall"
	if v.State != "" {
		title += fmt.Sprintf(", where the packet is %s", v.State)
	}
	fmt.Fprintln(w, "\n"+command.Paint(w, "1", title))
	if len(v.Steps) == 0 {
		fmt.Fprintln(w, "  no chain of any tool sees it")
	}
	printLiveSteps(w, v)
	for _, note := range v.Notes {
		fmt.Fprintln(w, "\nNote: "+note+".")
	}
}

// printLiveSteps is the table of the chains and rules that the packet met.
func printLiveSteps(w io.Writer, v *engine.Live) {
	var rows [][4]string
	for _, s := range v.Steps {
		row := [4]string{fmt.Sprintf("%s %d", s.Hook, s.Priority), s.Family + " " + s.Table + " " + s.Chain, s.Verdict, liveRule(s)}
		if s.Legacy {
			row[1] = "legacy " + row[1]
		}
		rows = append(rows, row)
	}
	printRows(w, rows, func(i int) bool { return i == v.Decided })
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
