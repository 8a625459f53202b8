package doctor

import (
	"fmt"
	"strings"

	"sluice/internal/base/english"
	"sluice/internal/base/nearest"
)

// Explain returns the check of an id, and where there is none the id that was likely
// meant, "" when none is near.
func Explain(id string) (c *Check, near string) {
	ids := make([]string, 0, len(checks))
	for i := range checks {
		if checks[i].ID == id {
			return &checks[i], ""
		}
		ids = append(ids, checks[i].ID)
	}
	return nil, nearest.Of(id, ids)
}

// Text is the explanation for a terminal.
func (c *Check) Text() string {
	return fmt.Sprintf("%s (%s)\n\n%s.\n\n%s\n\n%s\n\n%s\n\n%s\n", c.ID, c.Least, english.Sentence(c.What),
		english.Wrapped("Why: "+c.Why), english.Wrapped("Fix: "+c.Fix), english.Wrapped("Undo: "+c.Undo), english.Wrapped("By command: "+c.byCommand()))
}

// byCommand says whether a program fixes it.
func (c *Check) byCommand() string {
	if why := c.Unfixed(); why != "" {
		return "No: " + why + "."
	}
	return "Yes, on trial until it is confirmed."
}

// Reference is the page of all checks as Markdown.
func Reference() []byte {
	var b strings.Builder
	b.WriteString(`# What ` + "`sluice doctor`" + ` looks for

Made from the checks themselves; do not edit it here. How to use it:
[find what makes a host slow](../how-to/slow-host.md). The severity is that of the finding unless
the text says otherwise. Findings are sorted by severity, then in the order of
this page.

| check | severity | what |
|---|---|---|
`)
	for _, c := range checks {
		fmt.Fprintf(&b, "| [`%s`](#%s) | %s | %s |\n", c.ID, c.ID, c.Least, c.What)
	}
	for _, c := range checks {
		fmt.Fprintf(&b, "\n## %s\n\n%s.\n\n%s\n\n**Fix:** %s\n\n**Undo:** %s\n\n**By `--fix`:** %s\n", c.ID, english.Sentence(c.What), c.Why, c.Fix, c.Undo, c.byCommand())
	}
	return []byte(b.String())
}
