package doctor

import (
	"fmt"
	"io"
	"strings"

	"sluice/internal/base/english"
	"sluice/internal/prove/check"
)

// Summary is how the examination ended, in a line.
func (r *Report) Summary() string {
	counts := map[check.Severity]int{}
	for _, f := range r.Findings {
		counts[f.Severity]++
	}
	var words []string
	for _, s := range []check.Severity{check.Error, check.Warning, check.Remark} {
		if n := counts[s]; n > 0 {
			words = append(words, english.Plural(n, string(s)))
		}
	}
	what := english.List(words)
	if len(words) == 0 {
		what = "nothing found"
	}
	return fmt.Sprintf("%s by %s over %.1f s", what, english.Plural(r.Checks, "check"), r.Window)
}

// Markdown is the report for a ticket.
func (r *Report) Markdown(w io.Writer) {
	fmt.Fprintf(w, "# %s\n", english.Sentence(r.Summary()))
	for _, f := range r.Findings {
		fmt.Fprintf(w, "\n## %s: %s\n\n%s.\n\n", f.Severity, f.Check, literal(english.Sentence(f.Text)))
		for _, e := range f.Evidence {
			fmt.Fprintf(w, "- %s (%s)\n", literal(e.Text), literal(e.From))
		}
		if f.Cost != "" {
			fmt.Fprintf(w, "\nCost: %s\n", literal(f.Cost))
		}
		for _, part := range []struct {
			name  string
			lines []string
		}{{"Fix", f.Fix}, {"Undo", f.Undo}} {
			if len(part.lines) > 0 {
				fmt.Fprintf(w, "\n%s:\n\n    %s\n", part.name, strings.Join(part.lines, "\n    "))
			}
		}
	}
	if times := r.Times(); len(times) > 0 {
		fmt.Fprintf(w, "\n## Processor time that packets took\n\n    %s\n", strings.Join(times, "\n    "))
	}
	if chains := r.Chains(); len(chains) > 0 {
		fmt.Fprintf(w, "\n## %s\n\n    %s\n", english.Sentence(ChainsHead), strings.Join(chains, "\n    "))
	}
	if len(r.Unread) > 0 {
		fmt.Fprintf(w, "\n## Not read\n\n")
	}
	for _, u := range r.Unread {
		fmt.Fprintf(w, "- %s\n", literal(u))
	}
}

var markdown = strings.NewReplacer(`\`, `\\`, "`", "\\`", "*", `\*`, "_", `\_`, "<", "&lt;", "[", `\[`, "|", `\|`, "\n", " ")

// literal keeps what a host says from being Markdown.
func literal(text string) string { return markdown.Replace(text) }
