package figures

import (
	"fmt"
	"strings"
)

// Report is the comparison as a report of its own, old and new beside each other:
// what is worse first, and with all what is the same last. It is what a page of the
// comparison draws.
func (c *Comparison) Report(old, now *Report, all bool) *Report {
	r := &Report{
		Schema: Schema, Title: now.Title + ": " + c.Counts(), Version: now.Version,
		When: now.When, Took: now.Took, Machine: now.Machine, Warnings: c.Warnings,
	}
	titles := map[string]string{}
	for _, of := range []*Report{old, now} {
		for _, s := range of.Sections {
			titles[s.Name] = s.Title
		}
	}
	about := Section{Name: "runs", Title: "The runs", Text: []string{
		"– old: " + old.about(), "– new: " + now.about(),
	}}
	for _, part := range []struct {
		verdict Verdict
		title   string
	}{
		{Worse, "Worse"},
		{Better, "Better"},
		{Unsure, "Too few rounds to tell"},
		{Lost, "Without a value in one of the runs"},
		{New, "Only in the new run"},
		{Gone, "Only in the old run"},
		{Same, "The same"},
	} {
		if part.verdict == Same && !all {
			continue
		}
		s := Section{Name: string(part.verdict), Title: fmt.Sprintf("%s: %d", part.title, c.Count(part.verdict))}
		several := c.sections(part.verdict) > 1
		for _, d := range c.Figures {
			if d.Verdict != part.verdict {
				continue
			}
			row := d.Case + ", " + d.Subject
			if several {
				row += " (" + firstOf(titles[d.Section], d.Section) + ")"
			}
			s.add(&d, row)
		}
		if len(s.Figures) > 0 {
			r.Sections = append(r.Sections, s)
		}
	}
	r.Sections = append(r.Sections, about)
	return r
}

// add puts the figures of one difference into a row.
func (s *Section) add(d *Difference, row string) {
	for i, f := range []Figure{d.old, d.now} {
		if d.Verdict == New && i == 0 || d.Verdict == Gone && i == 1 {
			continue
		}
		f.Case, f.Subject, f.Quantity, f.Unit = row, [2]string{"old", "new"}[i], d.Quantity, d.Unit
		if i == 1 && (d.Verdict == Worse || d.Verdict == Better) {
			f.Note = strings.TrimSpace(d.change() + " " + string(d.Verdict))
		}
		s.Figures = append(s.Figures, f)
	}
}

// sections is how many sections have figures of a verdict.
func (c *Comparison) sections(v Verdict) int {
	seen := map[string]bool{}
	for _, d := range c.Figures {
		if d.Verdict == v {
			seen[d.Section] = true
		}
	}
	return len(seen)
}

// about is a run in a line.
func (r *Report) about() string {
	return fmt.Sprintf("%s, %s, %s, sluice %s", firstOf(r.Command, r.Title), r.When.Format("2006-01-02 15:04 MST"), r.Machine, firstOf(r.Version, "of no version"))
}

func firstOf(texts ...string) string {
	for _, t := range texts {
		if t != "" {
			return t
		}
	}
	return ""
}
