package cli

import (
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"sluice/internal/base/english"
	"sluice/internal/base/sorting"
	"sluice/internal/cli/command"
	"sluice/internal/engine/apply"
)

// A status on a terminal is one screen of 80 columns and 25 rows, of which the prompt has
// the last.
const screenRows = 24

// cuts are the labels of what there may be much of, in the order in which it is cut.
var cuts = []string{"due", "waiting", "full", "edited", "broken", "host", "dropped", "agent", "drift"}

// part is what stands under one label: items of a line or more each.
type part struct {
	label string
	items []string
	shown int
}

func (p *part) text() string {
	out := strings.Join(p.items[:p.shown], "")
	if left := len(p.items) - p.shown; left > 0 {
		out += fmt.Sprintf("             and %d more: --all shows them\n", left)
	}
	return out
}

// cut shows one item less, and says how many rows that makes free.
func (p *part) cut() int {
	p.shown--
	rows := rowsOf(p.items[p.shown])
	if p.shown == len(p.items)-1 {
		rows-- // for how many there are more
	}
	return rows
}

var style = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile("\x1b\\[[0-9;]*m") })

// rowsOf is how many rows a text takes.
func rowsOf(text string) (rows int) {
	for line := range strings.Lines(style().ReplaceAllString(text, "")) {
		rows += max(1, (utf8.RuneCountInString(strings.TrimSuffix(line, "\n"))+columns-1)/columns)
	}
	return rows
}

// partsOf cuts a status into its parts. A line that begins with spaces, a hint and why
// something failed belong to the line before.
func partsOf(text string) (out []*part) {
	for line := range strings.Lines(text) {
		label, _, _ := strings.Cut(style().ReplaceAllString(line, ""), " ")
		if last := len(out) - 1; last >= 0 && (label == "" || label == "hint" || label == "failed") {
			items := out[last].items
			items[len(items)-1] += line
			continue
		}
		if last := len(out) - 1; last < 0 || out[last].label != label {
			out = append(out, &part{label: label})
		}
		p := out[len(out)-1]
		p.items = append(p.items, line)
		p.shown++
	}
	return out
}

// screenOf is a status on one screen.
func screenOf(w io.Writer, s *apply.Status, here string) string {
	held := &command.Held{To: w}
	printStatus(held, s, here)
	parts := partsOf(held.String())
	rows := rowsOf(held.String())
	held.Reset()
	printCounters(held, s.Counters)
	counted := held.String()
	room := screenRows - min(rowsOf(counted), 1) // how many lines of the policy there are, at least
	for _, label := range cuts {
		for _, p := range parts {
			for p.label == label && p.shown > 1 && rows > room {
				rows -= p.cut()
			}
		}
	}
	var b strings.Builder
	for _, p := range parts {
		b.WriteString(p.text())
	}
	out := b.String()
	switch {
	case rows > room:
		return firstRows(out, room) + busiest(w, s.Counters, 0)
	case rows+rowsOf(counted) > screenRows:
		return out + busiest(w, s.Counters, screenRows-rows-3) // what is between, the head, and how many are left
	}
	return out + counted
}

// firstRows is what there is room for, and where that is not all, how many rows more there are.
func firstRows(text string, room int) string {
	var b strings.Builder
	rows := 0
	for line := range strings.Lines(text) {
		if rows += rowsOf(line); rows >= room {
			fmt.Fprintf(&b, "             and %s more: --all shows them\n", english.Plural(rowsOf(text)-rowsOf(b.String()), "row"))
			break
		}
		b.WriteString(line)
	}
	return b.String()
}

// busiest are the lines of the policy with the most packets, in their order, in so many rows.
func busiest(w io.Writer, all []apply.Counter, rows int) string {
	order := make([]int, len(all))
	for i := range order {
		order[i] = i
	}
	sorting.StableBy(order, func(a, b int) int {
		switch {
		case all[a].Packets > all[b].Packets:
			return -1
		case all[a].Packets < all[b].Packets:
			return 1
		}
		return 0
	})
	held := &command.Held{To: w}
	var shown []int
	for _, i := range order {
		if rows <= 0 {
			break
		}
		held.Reset()
		some := append(slices.Clone(shown), i)
		slices.Sort(some)
		printSomeCounters(held, all, some)
		if rowsOf(held.String())-2 > rows {
			break
		}
		shown = some
	}
	held.Reset()
	if len(shown) > 0 {
		printSomeCounters(held, all, shown)
	}
	if left := len(all) - len(shown); left > 0 {
		fmt.Fprintf(held, "%12s %14s  %s of the policy more: --all shows them\n", "", "", english.Plural(left, "line"))
	}
	return held.String()
}

func printCounters(w io.Writer, all []apply.Counter) {
	if len(all) == 0 {
		return
	}
	some := make([]int, len(all))
	for i := range some {
		some[i] = i
	}
	printSomeCounters(w, all, some)
}

func printSomeCounters(w io.Writer, all []apply.Counter, some []int) {
	fmt.Fprintf(w, "\n%12s %14s  rule\n", "packets", "bytes")
	alike := map[string]int{}
	for _, c := range all {
		alike[counterText(c)]++
	}
	for _, i := range some {
		c := all[i]
		text := counterText(c)
		if section, _, has := strings.Cut(c.Name, "_"); has && alike[text] > 1 {
			text += " (" + section + ")"
		}
		fmt.Fprintf(w, "%12d %14d  %s\n", c.Packets, c.Bytes, text)
	}
}

// printProved says when it was proved that the kernel holds what should run.
func printProved(w io.Writer, s *apply.Status, here string) {
	switch {
	case s.Condition != apply.Running || s.Generation.Closed:
	case s.Proved.IsZero():
		fmt.Fprintf(w, "%s       not in its current state: sluice verify%s proves it\n", command.Paint(w, "33", "proved"), here)
	default:
		fmt.Fprintf(w, "proved       %s\n", s.Proved.Local().Format(time.DateTime))
	}
}

// printAddresses counts who is banned and who is let in.
func printAddresses(w io.Writer, s *apply.Status) {
	var texts []string
	if b := s.Bans; b != nil && b.Command+b.Limit > 0 {
		texts = append(texts, fmt.Sprintf("%s banned by command, %s by limits", english.Grouped(b.Command), english.Grouped(b.Limit)))
	}
	if s.Allows > 0 {
		texts = append(texts, fmt.Sprintf("%d allowed by command", s.Allows))
	}
	if len(texts) > 0 {
		fmt.Fprintf(w, "addresses    %s\n", strings.Join(texts, "; "))
	}
}

// printDropped shows the last sources that were dropped.
func printDropped(w io.Writer, list []apply.Dropped) {
	for _, d := range list {
		at := d.Time.Local()
		when := at.Format(time.TimeOnly)
		if at.Format(time.DateOnly) != time.Now().Format(time.DateOnly) {
			when = at.Format(time.DateTime)
		}
		line := ""
		if d.Line > 0 {
			line = fmt.Sprintf(" by %s:%d", d.File, d.Line)
		}
		fmt.Fprintf(w, "dropped      %s  %-15s  %-2s  %-9s %s\n", when, d.Source, d.Country, d.Service, command.PlainName(line))
	}
}
