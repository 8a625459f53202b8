package answers

import (
	"fmt"
	"io"
	"strconv"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"sluice/internal/base/english"
	"sluice/internal/cli/command"
	"sluice/internal/engine"
	"sluice/internal/program"
	"sluice/internal/prove/query"
)

// QueryFlags are what the words of a question are called.
var QueryFlags = map[string]string{"service": "--service", "from": "--from", "to": "--to", "in": "--in", "out": "--out", "hook": "--hook"}

// Query is a question about all packets that fit some words.
type Query struct {
	query.Words
	Verdicts []program.Verdict // that are asked for; none: all

	allowed, dropped bool
	states           string
}

// Add gives a command the flags of the question.
func (q *Query) Add(cmd *cobra.Command) {
	q.Called = QueryFlags
	flags := cmd.Flags()
	flags.BoolVar(&q.allowed, "allowed", false, "show only what is allowed")
	flags.BoolVar(&q.dropped, "dropped", false, "show only what is dropped or rejected")
	flags.StringVar(&q.Service, "service", "", "only packets of `SERVICE`")
	flags.StringVar(&q.From, "from", "", "only packets from `WHO`")
	flags.StringVar(&q.To, "to", "", "only packets to `WHO`")
	flags.StringVar(&q.In, "in", "", "only packets that come in by `ZONE`")
	flags.StringVar(&q.Out, "out", "", "only packets that go out by `ZONE`")
	flags.StringVar(&q.Hook, "hook", "", "only packets of `HOOK`: input, forward or output")
	flags.StringVar(&q.states, "state", "new", "only packets in this connection tracking `STATE`: new, established, related, invalid, untracked, any")
	cmd.MarkFlagsMutuallyExclusive("allowed", "dropped")
	command.Must(cmd.RegisterFlagCompletionFunc("hook", command.Words("input", "forward", "output")))
	command.Must(cmd.RegisterFlagCompletionFunc("state", command.Words("new", "established", "related", "invalid", "untracked", "any")))
}

// Read reads the question from the flags.
func (q *Query) Read(cmd *cobra.Command) error {
	// A shell variable that is not set must not ask about everybody.
	for _, name := range []string{"service", "from", "to", "in", "out", "hook"} {
		if f := cmd.Flags().Lookup(name); f.Changed && strings.TrimSpace(f.Value.String()) == "" {
			return fmt.Errorf("--%s is empty\nhint: omit it to mean anything", name)
		}
	}
	var err error
	if q.States, err = query.States(q.states); err != nil {
		return fmt.Errorf("--state: %w", err)
	}
	switch q.Hook {
	case "", "input", "forward", "output":
	default:
		return fmt.Errorf("--hook %q: unknown hook\nhint: use input, forward or output", q.Hook)
	}
	q.Verdicts = verdictsAsked(q.allowed, q.dropped)
	return nil
}

func verdictsAsked(allowed, dropped bool) []program.Verdict {
	switch {
	case allowed:
		return []program.Verdict{program.Accept}
	case dropped:
		return []program.Verdict{program.Drop, program.Reject}
	}
	return nil
}

// Print prints the answer, as JSON where that is asked for. The error is command.ErrFound where
// there are packets of the verdicts that were asked for.
func (q *Query) Print(cmd *cobra.Command, out *engine.Queried) error {
	var err error
	if command.JSON(cmd) {
		err = command.PrintJSON(cmd.OutOrStdout(), out)
	} else {
		for _, text := range out.Notes {
			fmt.Fprintln(cmd.ErrOrStderr(), "note: "+text)
		}
		err = printAnswers(cmd.OutOrStdout(), q.Words, q.Verdicts, out.Classes)
	}
	if err == nil && len(q.Verdicts) > 0 && len(out.Classes) > 0 {
		err = command.ErrFound
	}
	return err
}

// verdictColours by the words of verdicts.
var verdictColours = map[string]string{"allowed": "32", "dropped": "31", "rejected": "31"}

func printAnswers(w io.Writer, asked query.Words, verdicts []program.Verdict, answers []query.Answer) error {
	if len(answers) == 0 {
		what := "there is none"
		switch {
		case len(verdicts) == 1:
			what = "none is allowed"
		case len(verdicts) > 1:
			what = "none is dropped"
		}
		_, err := fmt.Fprintf(w, "of all %s, %s\n", asked, command.Paint(w, "1", what))
		return err
	}
	rest, collapsed := map[query.Decider]int{}, map[query.Decider]bool{}
	for i := range answers {
		a := &answers[i]
		if len(verdicts) == 0 && strings.HasPrefix(a.By.Text, "default: ") {
			rest[a.By]++
		}
	}
	for i := range answers {
		a := &answers[i]
		if n := rest[a.By]; n > shownDefaults {
			continue
		}
		fmt.Fprintf(w, "%s on %s %s %s %s, %s\n", command.Paint(w, "1", a.Service()), a.Hook, choice(a.Many(), "are", "is"),
			command.Paint(w, verdictColours[a.Verdict], a.Verdict), a.Place(), deciders(a))
	}
	for i := range answers {
		a := &answers[i]
		if n := rest[a.By]; n > shownDefaults {
			fmt.Fprintf(w, "%s on %s is %s, by %s %s\n", command.Paint(w, "1", "everything else"), a.Hook,
				command.Paint(w, verdictColours[a.Verdict], a.Verdict), a.By, command.Paint(w, "2", fmt.Sprintf("(%d classes, which %s shows)", n, choice(a.Verdict == "allowed", "--allowed", "--dropped"))))
			collapsed[a.By] = true
			delete(rest, a.By)
		}
	}
	fmt.Fprintln(w)
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintf(t, "for example\tverdict\tline\n")
	for i := range answers {
		a := &answers[i]
		if collapsed[a.By] {
			continue
		}
		row := fmt.Sprintf("%s\t%s\t%s", a.Example, a.Verdict, a.By)
		if a.By.Line != 0 {
			row += "\t" + a.By.Text
		}
		fmt.Fprintln(t, row)
	}
	return t.Flush()
}

// deciders names the line, and those that decide on some of the packets instead.
func deciders(a *query.Answer) string {
	var lines, others []string
	builtIn := false
	for _, d := range a.Also {
		switch {
		case d.Line == 0:
			builtIn = true
		case d.File != a.By.File:
			others = append(others, d.String())
		case d.Line != a.By.Line:
			lines = append(lines, strconv.Itoa(d.Line))
		}
	}
	if len(lines) > 0 {
		others = append([]string{choice(len(lines) == 1, "line ", "lines ") + english.List(lines)}, others...)
	}
	if builtIn {
		others = append(others, "a built-in rule")
	}
	text := a.By.Phrase()
	if len(others) > 0 {
		text += " (partly by " + strings.Join(others, ", and by ") + ")"
	}
	return text
}

// shownDefaults is up to how many classes of a default are told apart where
// nobody asked for them.
const shownDefaults = 2
