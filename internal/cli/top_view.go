package cli

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"sluice/internal/cli/command"
	"sluice/internal/engine"
)

// topView is what "sluice top" shows on a terminal, and what keys make of it.
type topView struct {
	of     string      // which network namespace; "" is the caller's
	last   *engine.Top // the newest look; nil: none was taken yet
	held   *engine.Top // that is shown while it stands still; nil: it does not
	at     int         // the table that has the keys
	states [4]topState // of the tables, in the order of topTables
	filter string      // what a row has to have in it
	typing bool        // keys go to the filter
	detail *topDetail  // shown in place of the tables; nil: the tables are
}

// topState is how a table is shown.
type topState struct {
	column int // by which it is sorted
	row    int // that the mark is at
}

// topDetail is text about one row.
type topDetail struct {
	lines []string
	first int // that is shown
}

// topMark is how a line is drawn.
type topMark int

const (
	plainMark  topMark = iota
	headMark           // of a table
	chosenHead         // of the table that has the keys
	chosenRow
	badMark // something is lost
)

// topSpan is text with one mark.
type topSpan struct {
	text string
	mark topMark
}

// Keys that are no characters, as topView.key knows them.
const (
	keyTab, keyBackTab     = "tab", "backtab"
	keyUp, keyDown         = "up", "down"
	keyPageUp, keyPageDown = "pageup", "pagedown"
	keyEnter, keyEscape    = "enter", "escape"
	keyErase, keyInterrupt = "erase", "interrupt"
)

// mostFilter is how long a filter may be.
const mostFilter = 40

// shown is the look that is shown.
func (v *topView) shown() *engine.Top {
	if v.held != nil {
		return v.held
	}
	return v.last
}

// key does what a key stands for, and says whether that is to end. Of an enter, asked is the row that
// something is to be said about.
func (v *topView) key(name string) (end bool, asked *topRow) {
	switch {
	case name == keyInterrupt:
		return true, nil
	case v.typing:
		v.typed(name)
		return false, nil
	case v.detail != nil:
		v.read(name)
		return false, nil
	}
	tables := v.tables()
	rows := 0
	if tables != nil {
		rows = len(tables[v.at].rows)
	}
	s := &v.states[v.at]
	switch name {
	case "q":
		return true, nil
	case keyTab:
		v.at = (v.at + 1) % len(v.states)
	case keyBackTab:
		v.at = (v.at + len(v.states) - 1) % len(v.states)
	case keyUp, "k":
		s.row = max(0, s.row-1)
	case keyDown, "j":
		s.row = max(0, min(s.row+1, rows-1))
	case keyPageUp:
		s.row = max(0, s.row-10)
	case keyPageDown:
		s.row = max(0, min(s.row+10, rows-1))
	case "s":
		if tables != nil {
			s.column = (s.column + 1) % (len(tables[v.at].heads) - 1)
		}
	case "/":
		v.typing = true
	case keyEscape:
		v.filter = ""
	case "p", " ":
		if v.held == nil {
			v.held = v.last
		} else {
			v.held = nil
		}
	case keyEnter:
		if s.row >= rows {
			break
		}
		r := &tables[v.at].rows[s.row]
		if c, is := r.of.(engine.TopCountry); is { // of which the sources are asked about
			v.at, v.filter = 1, cmp.Or(c.Code, v.filter)
			break
		}
		return false, r
	}
	return false, nil
}

// typed is a key while a filter is written.
func (v *topView) typed(name string) {
	switch {
	case name == keyEnter:
		v.typing = false
	case name == keyEscape:
		v.typing, v.filter = false, ""
	case name == keyErase:
		if r := []rune(v.filter); len(r) > 0 {
			v.filter = string(r[:len(r)-1])
		}
	case len([]rune(name)) == 1 && len(v.filter) < mostFilter:
		v.filter += name
	}
	v.states[0].row, v.states[1].row, v.states[2].row, v.states[3].row = 0, 0, 0, 0
}

// read is a key while there is text about a row.
func (v *topView) read(name string) {
	d := v.detail
	last := max(0, len(d.lines)-1)
	switch name {
	case "q", keyEscape, keyErase, keyEnter:
		v.detail = nil
	case keyUp, "k":
		d.first = max(0, d.first-1)
	case keyDown, "j":
		d.first = min(d.first+1, last)
	case keyPageUp:
		d.first = max(0, d.first-10)
	case keyPageDown, " ":
		d.first = min(d.first+10, last)
	}
}

// tables are those that are shown, sorted and filtered; nil before the first look.
func (v *topView) tables() []*topTable {
	look := v.shown()
	if look == nil {
		return nil
	}
	tables := topTables(look)
	for i, t := range tables {
		t.sort(v.states[i].column)
		if v.filter != "" {
			t.rows = slices.DeleteFunc(t.rows, func(r topRow) bool {
				return !strings.Contains(strings.ToLower(strings.Join(r.cells, " ")), strings.ToLower(v.filter))
			})
		}
	}
	return tables
}

// screen is what stands on a terminal of that size, a list of spans for each of its rows.
func (v *topView) screen(width, height int) [][]topSpan {
	var rows [][]topSpan
	put := func(mark topMark, texts ...string) {
		for _, text := range texts {
			rows = append(rows, []topSpan{{text, mark}})
		}
	}
	look := v.shown()
	if look == nil {
		put(plainMark, cutTo("reading for the first time …", width))
		return rows
	}
	head := topHead(look, width)
	if v.of != "" {
		head[0] = cutTo(head[0]+"  in "+command.Plain(v.of), width)
	}
	put(plainMark, head...)
	if t := look.Table; t != nil && t.Percent() >= fullPercent {
		rows[len(rows)-2][0].mark = badMark
	}
	foot := []string{cutTo(v.foot(), width)}
	if len(look.Missing) > 0 && v.detail == nil {
		text := command.Plain(look.Missing[0])
		if more := len(look.Missing) - 1; more > 0 {
			text = fmt.Sprintf("%s (and %d more: --once)", text, more)
		}
		foot = append([]string{cutTo(text, width)}, foot...)
	}
	room := height - len(rows) - len(foot)
	switch {
	case room < 0:
		rows = rows[:max(0, height-len(foot))]
	case v.detail != nil:
		for _, line := range v.detail.lines[v.detail.first:min(len(v.detail.lines), v.detail.first+room)] {
			put(plainMark, line)
		}
	default:
		rows = append(rows, v.body(width, room)...)
	}
	for len(rows) < height-len(foot) {
		put(plainMark, "")
	}
	put(headMark, foot...)
	return rows[:min(len(rows), height)]
}

func (v *topView) foot() string {
	switch {
	case v.typing:
		return "filter: " + command.Plain(v.filter) + "_   (enter keeps it, escape drops it)"
	case v.detail != nil:
		return "up/down scroll   enter back   q back"
	}
	text := "q quit  tab table  s sort  / filter  p pause  enter explain"
	if v.held != nil {
		text = "PAUSED  " + text
	}
	if v.filter != "" {
		text = fmt.Sprintf("only %q  ", v.filter) + text
	}
	return command.Plain(text)
}

// leastRows are those that a table has at least beneath its head.
const leastRows = 3

// body is the tables in so many rows: lines above, sources beside countries, drops beneath.
// The table that has the keys gets what the others leave.
func (v *topView) body(width, room int) [][]topSpan {
	if room < 1 {
		return nil
	}
	tables := v.tables()
	left := width * 11 / 20
	groups := [][]int{{0}, {1, 2}, {3}}
	chosen := slices.IndexFunc(groups, func(g []int) bool { return slices.Contains(g, v.at) })
	if room < len(groups)*(leastRows+1) { // one table has the screen
		groups, chosen, left = [][]int{{v.at}}, 0, width
	}
	most := make([]int, len(groups)) // rows beneath the head
	spare := room - len(groups)
	for i, g := range groups {
		for _, t := range g {
			most[i] = max(most[i], len(tables[t].rows))
		}
		if i != chosen {
			most[i] = min(most[i], leastRows)
			spare -= most[i]
		}
	}
	if wants := most[chosen]; wants < spare { // the others have the rest, in turn
		rest := spare - wants
		for i, g := range groups {
			for _, t := range g {
				if i != chosen {
					more := max(0, min(rest, len(tables[t].rows)-most[i]))
					most[i] += more
					rest -= more
				}
			}
		}
	} else {
		most[chosen] = spare
	}
	var out [][]topSpan
	for i, g := range groups {
		if len(g) == 1 {
			for _, span := range v.table(tables[g[0]], g[0], width, most[i]) {
				out = append(out, []topSpan{span})
			}
			continue
		}
		a, b := v.table(tables[g[0]], g[0], left-1, most[i]), v.table(tables[g[1]], g[1], width-left, most[i])
		for n := range max(len(a), len(b)) {
			line := []topSpan{{}, {}}
			if n < len(a) {
				line[0] = a[n]
			}
			if n < len(b) {
				line[1] = b[n]
			}
			line[0].text += strings.Repeat(" ", max(0, left-columnsIn(line[0].text)))
			out = append(out, line)
		}
	}
	return out
}

// table is one table with so many rows beneath its head.
func (v *topView) table(t *topTable, n, width, most int) []topSpan {
	s := &v.states[n]
	s.row = max(0, min(s.row, len(t.rows)-1))
	first := max(0, min(s.row-most/2, len(t.rows)-most))
	rows := t.rows[first:min(len(t.rows), first+most)]
	t.heads = slices.Clone(t.heads)
	t.heads[s.column] = strings.ToUpper(t.heads[s.column])
	if first > 0 || len(rows) < len(t.rows) {
		t.heads[len(t.heads)-1] += fmt.Sprintf(" (%d of %d)", len(rows), len(t.rows))
	}
	var out []topSpan
	for i, text := range t.text(rows, width) {
		span := topSpan{text, plainMark}
		switch {
		case i == 0 && n == v.at:
			span.mark = chosenHead
		case i == 0:
			span.mark = headMark
		case n == v.at && first+i-1 == s.row:
			span.mark = chosenRow
		}
		out = append(out, span)
	}
	return out
}
