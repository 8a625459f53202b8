package cli

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"sluice/internal/base/english"
	"sluice/internal/cli/command"
	"sluice/internal/engine"
	"sluice/internal/language/policy"
	"sluice/internal/prove/check"
	"sluice/internal/system/host"
)

func newLint() *cobra.Command {
	var described, explain string
	var offline, listCodes bool
	cmd := &cobra.Command{
		Use:   "lint [FILE]",
		Short: "Check a policy, and advise what to improve",
		Long: `Reports all that "sluice check" finds in a policy (the running one unless you give FILE,
standard input for -), and adds advice: rules that are partly hidden, rules and entries without
effect, replies to the host's own requests that a rule would decide on, bans of your own
networks, management ports open to everybody, what breaks path MTU discovery. Nothing changes.
Every finding has a code, a place, why it matters, the fix, and, where it helps, an example
packet.

The host is this one, or the one that "sluice facts --json" described (--host). The package
mirrors and time servers that it uses are read from the configuration of the programs; their
names are looked up in /etc/hosts and, on a terminal and without --offline, by the resolver for
at most 200 ms.

A comment on the line of a finding, or alone above it, allows it:
  - allow ssh # lint: allow open-management REASON

Exit status: 0 nothing found, or remarks only; 1 warnings, with --strict also remarks; 2 errors
or bad use.
Environment: SLUICE_STATE_DIR.
Files: /etc/sluice/policy.yaml, country data and lists in /var/lib/sluice.`,
		Example: `  sluice lint
  sluice lint policy.yaml --host gateway.json --json
  sluice lint --explain replies-cut
  sluice lint --list`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			o := optionsOf(cmd)
			switch {
			case listCodes:
				return printCodes(cmd.OutOrStdout(), o)
			case cmd.Flags().Changed("explain"):
				return printExplanation(cmd.OutOrStdout(), o, explain)
			}
			file, report, err := lint(cmd, args, described, offline)
			if err != nil {
				return err
			}
			return printReport(cmd, o, file, report)
		},
	}
	cmd.Flags().StringVar(&described, "host", "", "lint for the host described in `FACTS.json`")
	addLabels(cmd)
	cmd.Flags().BoolVar(&offline, "offline", false, "download no list, look up no name")
	cmd.Flags().Bool("strict", false, "exit with status 1 for remarks too")
	cmd.Flags().StringVar(&explain, "explain", "", "explain a `CODE`, and how to fix it")
	cmd.Flags().BoolVar(&listCodes, "list", false, "list all codes")
	cmd.MarkFlagsMutuallyExclusive("explain", "list")
	command.Must(cmd.RegisterFlagCompletionFunc("explain", completeCodes))
	return cmd
}

func completeCodes(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
	var codes []string
	for _, e := range check.Explanations() {
		codes = append(codes, string(e.Code)+"\t"+e.What)
	}
	return codes, cobra.ShellCompDirectiveNoFileComp
}

// lint finds all there is to say of a policy; the error is for what keeps it from
// being looked at.
func lint(cmd *cobra.Command, args []string, described string, offline bool) (file string, report check.Report, err error) {
	s, err := subject(cmd, sourcesOf(cmd, offline), args, described)
	if err != nil {
		report.Findings, err = engine.Findings(err)
		return command.PolicyArgument(args), report, err
	}
	file = s.Policy.File
	if s.Facts, err = readFacts(cmd.Context(), described, optionsOf(cmd)); err != nil {
		return file, report, err
	}
	if described == "" {
		var patience time.Duration
		if !offline && command.IsTerminal(cmd.OutOrStdout()) {
			patience = lintPatience
		}
		tellUnread(cmd.ErrOrStderr(), &s.Facts, func() { s.Facts.ReadServers(cmd.Context(), patience) })
	}
	report, err = s.Lint(cmd.Context())
	withRemedies(report.Findings)
	return file, report, err
}

// lintPatience is how long the resolver is asked for names.
const lintPatience = 200 * time.Millisecond

// tellUnread warns of what a reading of facts could not read.
func tellUnread(w io.Writer, facts *host.Facts, read func()) {
	before := len(facts.Unread)
	read()
	for _, text := range facts.Unread[before:] {
		warn(w, "not known: "+text)
	}
}

func printCodes(w io.Writer, o options) error {
	if o.json {
		return command.PrintJSON(w, explanationsJSON(check.Explanations()))
	}
	for _, e := range check.Explanations() {
		fmt.Fprintf(w, "%-18s %-5s %s\n", e.Code, map[bool]string{true: "lint", false: "check"}[e.Advice], e.What)
	}
	return nil
}

type explanationJSON struct {
	Code       check.Code       `json:"code"`
	Severities []check.Severity `json:"severities"`
	Check      bool             `json:"check"` // found by check too
	What       string           `json:"what"`
	Why        string           `json:"why"`
	Fix        string           `json:"fix"`
	Before     string           `json:"before,omitempty"`
	After      string           `json:"after,omitempty"`
}

func explanationsJSON(all []check.Explanation) []explanationJSON {
	var out []explanationJSON
	for _, e := range all {
		out = append(out, explanationJSON{e.Code, e.Severities, !e.Advice, e.What, e.Why, e.Fix, e.Before, e.After})
	}
	return out
}

// otherCodes are those of findings that are not about what a policy says.
var otherCodes = map[check.Code]string{
	engine.BadPolicy:        "an error of the text of a policy, or of a file, list or name that it is made of\n\nFix: what the finding says. \"sluice check --text\" looks at the text alone.",
	engine.OldWord:          "a word that the language calls otherwise now\n\nFix: \"sluice fmt -w FILE\" writes the new word. The finding says when the old one becomes an error.",
	engine.UnmetExpectation: "a line of expect that the rules do not fulfil\n\nFix: the rules, or the line. \"sluice test\" names the packets.",
}

func printExplanation(w io.Writer, o options, code string) error {
	e, near := check.Explain(code)
	if text, other := otherCodes[check.Code(code)]; other && !o.json {
		severity := choice(check.Code(code) == engine.OldWord, string(check.Warning), string(check.Error))
		fmt.Fprintf(w, "%s (%s, found by check and lint)\n\n%s\n", code, severity, text)
		return nil
	}
	if e == nil {
		hint := "sluice lint --list shows the codes"
		if near != "" {
			hint = "did you mean " + near + "?"
		}
		return fmt.Errorf("%q is not a code of lint\nhint: %s", code, hint)
	}
	if o.json {
		return command.PrintJSON(w, explanationsJSON([]check.Explanation{*e})[0])
	}
	_, err := io.WriteString(w, e.Text())
	return err
}

// lintJSON is what "lint --json" prints.
type lintJSON struct {
	File     string          `json:"file"`
	Findings []check.Finding `json:"findings"`
	Silenced []silencedJSON  `json:"silenced"`
}

type silencedJSON struct {
	Finding check.Finding `json:"finding"`
	Reason  string        `json:"reason"`
}

func printReport(cmd *cobra.Command, o options, file string, report check.Report) error {
	count := map[check.Severity]int{}
	for _, f := range report.Findings {
		count[f.Severity]++
	}
	out := cmd.OutOrStdout()
	if o.json {
		value := lintJSON{File: file, Findings: report.Findings, Silenced: []silencedJSON{}}
		if value.Findings == nil {
			value.Findings = []check.Finding{}
		}
		for _, s := range report.Silenced {
			value.Silenced = append(value.Silenced, silencedJSON{s.Finding, s.Reason})
		}
		if err := command.PrintJSON(out, value); err != nil {
			return err
		}
	} else {
		told := map[check.Code]bool{}
		for i, f := range report.Findings {
			if i == shownFindings {
				fmt.Fprintf(out, "and %d more\n", len(report.Findings)-i)
				break
			}
			printFinding(out, f, !told[f.Code])
			told[f.Code] = true
		}
	}
	return reportSummary(cmd, o, file, count, len(report.Silenced))
}

func reportSummary(cmd *cobra.Command, o options, file string, count map[check.Severity]int, silenced int) error {
	strict, _ := cmd.Flags().GetBool("strict")
	var parts []string
	for _, s := range []check.Severity{check.Error, check.Warning, check.Remark} {
		if count[s] > 0 {
			parts = append(parts, english.Plural(count[s], string(s)))
		}
	}
	text := strings.Join(parts, ", ")
	if text == "" {
		text = "nothing found"
	}
	text = fileName(file) + ": " + text
	if silenced > 0 {
		text += fmt.Sprintf("; %d allowed by comments", silenced)
	}
	switch {
	case count[check.Error] > 0:
		return errors.New(text)
	case count[check.Warning] > 0 || strict && count[check.Remark] > 0:
		return command.Found(text)
	case !o.json:
		fmt.Fprintln(cmd.ErrOrStderr(), text)
	}
	return nil
}

// printFinding prints a finding as errors of a policy are, with its code behind
// the message, the packet that shows it and, for the first of its code, why.
func printFinding(w io.Writer, f check.Finding, why bool) {
	style := map[check.Severity]string{check.Error: "31", check.Warning: "33", check.Remark: "36"}[f.Severity]
	e := policy.Error{Pos: f.Pos, Message: fmt.Sprintf("%s: %s [%s]", f.Severity, f.Message, f.Code), Line: f.Line}
	text := e.Error()
	head := f.Pos.String() + ": " + string(f.Severity)
	if rest, ok := strings.CutPrefix(text, head); ok {
		text = f.Pos.String() + ": " + command.Paint(w, style, string(f.Severity)) + rest
	}
	fmt.Fprintln(w, text)
	if f.Witness != nil {
		fmt.Fprintf(w, "%s %s\n", command.Paint(w, "1", "example:"), f.Witness.Text())
	}
	if explained, _ := check.Explain(string(f.Code)); why && explained != nil {
		fmt.Fprintf(w, "%s %s\n", command.Paint(w, "1", "why:"), firstSentence(explained.Why))
	}
	if f.Hint != "" {
		fmt.Fprintf(w, "%s %s\n", command.Paint(w, "1", "hint:"), f.Hint)
	}
}

// firstSentence ends at the first full stop that a blank or nothing follows.
func firstSentence(text string) string {
	if at := strings.Index(text, ". "); at >= 0 {
		return text[:at]
	}
	return strings.TrimSuffix(text, ".")
}
