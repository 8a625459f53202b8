package query

import (
	"fmt"
	"strings"

	"sluice/internal/base/english"
	"sluice/internal/prove/reach"
)

// Words is what a sentence about the change begins with.
func (k Kind) Words() string {
	switch k {
	case Opened:
		return "newly allowed"
	case Reached:
		return "newly reachable"
	case Loosened:
		return "less limited"
	case Closed:
		return "no longer allowed"
	case Tightened:
		return "limited otherwise"
	case Rejected:
		return "rejected instead of dropped"
	case Silenced:
		return "dropped instead of rejected"
	case Rewritten:
		return "rewritten otherwise"
	case Tracked:
		return "tracked otherwise"
	case Handled:
		return "handled otherwise"
	}
	return "logged otherwise"
}

// Short is what an example differs in from others: its far end.
func (e Example) Short(hook string) string {
	if hook == string(reach.Out) {
		return "to " + e.Destination.String()
	}
	text := "from " + e.Source.String()
	if hook == string(reach.Through) {
		text += " to " + e.Destination.String()
	}
	return text
}

// String is what a policy does with packets, and by which lines.
func (s Side) String() string {
	text := s.Verdict
	if len(s.How) > 0 {
		text += ", " + english.List(s.How)
	}
	for i, by := range s.By {
		if i == mostDeciders {
			return text + ", and " + english.Plural(len(s.By)-i, "more line")
		}
		text += choose(i == 0, " ", ", or ") + choose(i == 0, by.Phrase(), by.String())
		if by.Line > 0 && by.Text != "" {
			text += " (" + by.Text + ")"
		}
	}
	return text
}

// mostDeciders is up to how many lines a sentence names.
const mostDeciders = 3

// Rows are the changes as a report shows them: of what neither opens nor closes,
// all classes of the same lines are one row, the largest class before.
func (d *Diff) Rows() []Row {
	var out []Row
	at := map[string]int{}
	for i := range d.Changes {
		c := &d.Changes[i]
		key := strings.Join([]string{string(c.Kind), c.Hook, c.Old.String(), c.New.String()}, "\n")
		if n, known := at[key]; known && !c.Kind.moves() {
			out[n].More++
			continue
		}
		at[key] = len(out)
		out = append(out, Row{Change: c})
	}
	return out
}

// Row is a change, and how many more classes of packets it is true of.
type Row struct {
	*Change
	More int
}

// moves says whether the change lets more or less pass.
func (k Kind) moves() bool { return k.Opens() || k == Closed || k == Tightened }

// What is the packets that a row is about, behind where they arrive if that is new.
func (r *Row) What() string {
	if r.Reaches != "" {
		return r.Reaches + " by " + r.Service()
	}
	return r.Service()
}

// Rest says of how many more classes the row is true; "" of none.
func (r *Row) Rest() string {
	if r.More == 0 {
		return ""
	}
	return ", and " + english.Plural(r.More, "more class")
}

// Summary says how much opens and closes.
func (d *Diff) Summary() string {
	counts := map[Kind]int{}
	for _, c := range d.Changes {
		counts[c.Kind]++
	}
	var parts []string
	for _, k := range order {
		if n := counts[k]; n > 0 {
			parts = append(parts, fmt.Sprintf("%s: %d", k.Words(), n))
		}
	}
	if n := len(d.Settings); n > 0 {
		parts = append(parts, fmt.Sprintf("settings: %d", n))
	}
	return strings.Join(parts, ", ")
}

// Markdown is the whole for a comment on a pull request.
func Markdown(d *Diff, old, next string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "### What %s changes against %s\n\n", code(next), code(old))
	return b.String() + d.Markdown()
}

// Markdown is what a comment says below its heading.
func (d *Diff) Markdown() string {
	var b strings.Builder
	switch {
	case len(d.Changes)+len(d.Settings) == 0:
		return "No difference: both treat every packet the same.\n"
	case d.Opens():
		b.WriteString("**It opens something.** ")
	default:
		b.WriteString("It opens nothing. ")
	}
	b.WriteString("In all: " + d.Summary() + ".\n")
	for i, l := range d.Brief() {
		if i == 0 {
			b.WriteString("\n")
		}
		b.WriteString("- " + cell(l.String()) + "\n")
	}
	if len(d.Changes) > 0 {
		b.WriteString("\n| what | packets | for example | old | new |\n|---|---|---|---|---|\n")
	}
	rows := d.Rows()
	for i := range rows {
		c := &rows[i]
		what := c.Kind.Words()
		if c.Kind.Opens() {
			what = "**" + what + "**"
		}
		fmt.Fprintf(&b, "| %s | %s on %s %s | %s | %s | %s |\n", what, code(c.What()), c.Hook, cell(c.Place()+c.Rest()), cell(c.Example.String()), cell(c.Old.String()), cell(c.New.String()))
	}
	if len(d.Settings) > 0 {
		b.WriteString("\nSettings of the kernel:\n\n")
	}
	for _, s := range d.Settings {
		b.WriteString("- " + cell(s) + "\n")
	}
	return b.String()
}

// code is text that Markdown leaves alone.
func code(text string) string {
	return "`" + strings.NewReplacer("`", "'", "|", `\|`, "\n", " ").Replace(text) + "`"
}

// cell is text in a table of Markdown, with all that it would obey escaped.
func cell(text string) string {
	return strings.NewReplacer("|", `\|`, "\n", " ", "*", `\*`, "_", `\_`, "<", "&lt;", "`", "\\`", "[", `\[`).Replace(text)
}
