package cli

import (
	"cmp"
	"fmt"
	"math"
	"strings"
	"time"

	"golang.org/x/text/width"

	"sluice/internal/base/english"
	"sluice/internal/base/sorting"
	"sluice/internal/cli/command"
	"sluice/internal/engine"
	"sluice/internal/engine/apply"
)

// topHead is what stands above the tables.
func topHead(t *engine.Top, width int) []string {
	policy := "no policy of Sluice runs"
	switch t.Condition {
	case "":
		policy = "what runs is not known"
	case apply.Nothing:
	case apply.Running:
		policy = fmt.Sprintf("generation %d runs", t.Generation)
	default:
		policy = fmt.Sprintf("generation %d is %s", t.Generation, t.Condition)
	}
	first := fmt.Sprintf("%s  %s, over %s", t.Time.Local().Format(time.TimeOnly), policy, english.Duration(time.Duration(t.Seconds*float64(time.Second)).Round(100*time.Millisecond)))
	var verdicts []string
	for _, v := range t.Verdicts {
		verdicts = append(verdicts, fmt.Sprintf("%s %s pkt/s %s", v.Verdict, short(v.PacketRate), bytesShort(v.ByteRate)))
	}
	lines := []string{first}
	if t.Condition != apply.Nothing { // what others drop has no counter
		lines = append(lines, strings.Join(verdicts, "   "))
	}
	lines = append(lines, topConnections(t.Table), topProcessors(t.Processors, width))
	for i := range lines {
		lines[i] = cutTo(lines[i], width)
	}
	return lines
}

func topConnections(t *engine.TopTable) string {
	if t == nil {
		return "connections  not tracked"
	}
	text := "connections  " + english.Grouped(t.Entries)
	if t.Most > 0 {
		text += fmt.Sprintf(" of %s (%d %%)", english.Grouped(t.Most), t.Percent())
	}
	if t.Began != nil {
		text += fmt.Sprintf(", %s new/s", short(*t.Began))
	}
	if t.Peak > 0 {
		text += ", peak " + english.Grouped(t.Peak)
	}
	for _, c := range []struct {
		n    uint64
		what string
	}{{t.Dropped, "no room"}, {t.Evicted, "evicted"}, {t.Failed, "not inserted"}} {
		if c.n > 0 {
			text += fmt.Sprintf(", %s %s", short(float64(c.n)), c.what)
		}
	}
	return text
}

// topProcessors shows as many as there is room for, the busiest receivers first.
func topProcessors(all []engine.TopProcessor, width int) string {
	order := make([]engine.TopProcessor, len(all))
	copy(order, all)
	sorting.StableBy(order, func(a, b engine.TopProcessor) int { return cmp.Compare(b.Softirq, a.Softirq) })
	text := "softirq     "
	for i, p := range order {
		next := fmt.Sprintf(" cpu%d %.0f of %.0f %%", p.Number, 100*p.Softirq, 100*p.Busy)
		rest := fmt.Sprintf(" and %d more", len(order)-i)
		if i+1 == len(order) {
			rest = ""
		}
		if len(text)+len(next)+len(rest) > width {
			return text + fmt.Sprintf(" and %d more", len(order)-i)
		}
		text += next
	}
	return text
}

// topTable is one of the tables of a look.
type topTable struct {
	name  string
	heads []string // of the columns; the last one is text, all others are numbers
	rows  []topRow
	note  string // beside the name
}

// topRow is one row, with what its numbers are sorted by.
type topRow struct {
	cells []string
	by    []float64 // of each column but the last
	of    any       // what it is about
}

// topTables are all tables of a look, in the order in which they stand.
func topTables(t *engine.Top) []*topTable {
	lines := &topTable{name: "lines", heads: []string{"pkt/s", "B/s", "packets", "bytes", "line of the policy"}}
	for _, l := range t.Lines {
		by := []float64{l.PacketRate, l.ByteRate, float64(l.Packets), float64(l.Bytes)}
		lines.rows = append(lines.rows, topRow{[]string{short(by[0]), bytesShort(by[1]), short(by[2]), bytesShort(by[3]), lineText(l)}, by, l})
	}
	sources := &topTable{name: "sources", heads: []string{"entries", "source"}}
	countries := &topTable{name: "countries", heads: []string{"entries", "sources", "country"}}
	if s := t.Sources; s != nil {
		sources.note = fmt.Sprintf("at %s in %s", s.Counted.Local().Format(time.TimeOnly), english.Duration(s.Took.Round(time.Millisecond)))
		for _, n := range s.Most {
			sources.rows = append(sources.rows, topRow{[]string{english.Grouped(n.Entries), strings.TrimSpace(fmt.Sprintf("%-15s %s", n.Address, n.Country))}, []float64{float64(n.Entries)}, n})
		}
		for _, n := range s.Countries {
			name := cmp.Or(n.Name, n.Code, "none is known")
			countries.rows = append(countries.rows, topRow{[]string{english.Grouped(n.Entries), english.Grouped(n.Sources), strings.TrimSpace(n.Code + " " + name)}, []float64{float64(n.Entries), float64(n.Sources)}, n})
		}
	}
	drops := &topTable{name: "drops", heads: []string{"pkt/s", "packets", "dropped by the kernel"}}
	for _, d := range t.Drops {
		name := d.Function
		if d.Reason != "" {
			name += ", " + d.Reason
		}
		drops.rows = append(drops.rows, topRow{[]string{short(d.Rate), short(float64(d.Packets)), name}, []float64{d.Rate, float64(d.Packets)}, d})
	}
	return []*topTable{lines, sources, countries, drops}
}

func lineText(l engine.TopLine) string {
	if l.Origin.Line == 0 {
		return l.Text
	}
	return fmt.Sprintf("%s:%d %s", l.Origin.File, l.Origin.Line, l.Text)
}

// sort puts the highest first, by a column, and where that is the same by the next one.
func (t *topTable) sort(column int) {
	sorting.StableBy(t.rows, func(a, b topRow) int {
		for i := range a.by {
			at := (column + i) % len(a.by)
			if c := cmp.Compare(b.by[at], a.by[at]); c != 0 {
				return c
			}
		}
		return 0
	})
}

// text is the head and rows of a table, none longer than the width.
func (t *topTable) text(rows []topRow, width int) []string {
	wide := make([]int, len(t.heads)-1)
	for i := range wide {
		wide[i] = max(len(t.heads[i]), 7)
		for _, r := range rows {
			wide[i] = max(wide[i], len(r.cells[i]))
		}
	}
	line := func(cells []string) string {
		var b strings.Builder
		for i, w := range wide {
			fmt.Fprintf(&b, "%*s ", w, cells[i])
		}
		return cutTo(b.String()+" "+command.Plain(cells[len(cells)-1]), width)
	}
	head := line(t.heads)
	if t.note != "" {
		head = cutTo(head+", "+t.note, width)
	}
	out := []string{head}
	for _, r := range rows {
		out = append(out, line(r.cells))
	}
	return out
}

// short is a number of few digits.
func short(n float64) string {
	switch {
	case n < 9.95 && n != math.Trunc(n):
		return fmt.Sprintf("%.1f", n)
	case n < 9999.5:
		return fmt.Sprintf("%.0f", n)
	}
	for _, unit := range []string{"k", "M", "G", "T"} {
		if n /= 1000; n < 9.995 {
			return fmt.Sprintf("%.2f%s", n, unit)
		} else if n < 99.95 {
			return fmt.Sprintf("%.1f%s", n, unit)
		} else if n < 999.5 || unit == "T" {
			return fmt.Sprintf("%.0f%s", n, unit)
		}
	}
	return ""
}

func bytesShort(n float64) string { return short(n) + "B" }

// columnsIn is how many columns text takes on a terminal.
func columnsIn(text string) (n int) {
	for _, r := range text {
		n += columnsOf(r)
	}
	return n
}

func columnsOf(r rune) int {
	if k := width.LookupRune(r).Kind(); k == width.EastAsianWide || k == width.EastAsianFullwidth {
		return 2
	}
	return 1
}

// cutTo is a line of so many columns at most.
func cutTo(text string, columns int) string {
	used, whole := 0, 0
	for i, r := range text {
		if used < columns {
			whole = i // of which the mark has a place behind
		}
		w := columnsOf(r)
		if used+w > columns {
			return text[:whole] + "…"
		}
		used += w
	}
	return text
}
