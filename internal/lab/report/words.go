package report

import (
	"fmt"
	"math"
	"regexp"
	"strconv"
	"strings"

	"sluice/internal/lab/figures"
)

// block is a part of a section's text.
type block struct {
	Lines []string
	Code  bool // what a file or a program says, with its blanks
	List  bool
}

// blocks gathers what belongs together: what begins with blanks is of a file, what
// begins with a dash of a list.
func blocks(text []string) []block {
	var out []block
	for _, line := range text {
		b := block{Lines: []string{line}}
		if rest, is := strings.CutPrefix(line, "– "); is {
			b = block{Lines: []string{rest}, List: true}
		} else if strings.HasPrefix(line, "    ") {
			b = block{Lines: []string{strings.TrimPrefix(line, "    ")}, Code: true}
		}
		if last := len(out) - 1; last >= 0 && (b.Code && out[last].Code || b.List && out[last].List) {
			out[last].Lines = append(out[last].Lines, b.Lines...)
			continue
		}
		out = append(out, b)
	}
	return out
}

// mostLines is how much of a file is shown at once.
const mostLines = 20

// Text is the block as it is, or its beginning where there is More.
func (b block) Text() string {
	if b.folds() {
		return strings.Join(b.Lines[:mostLines/2], "\n")
	}
	return strings.Join(b.Lines, "\n")
}

func (b block) folds() bool { return b.Code && len(b.Lines) > mostLines }

// More is what is folded away.
func (b block) More() string {
	if !b.folds() {
		return ""
	}
	return strings.Join(b.Lines[mostLines/2:], "\n")
}

// Rest is how many lines More has.
func (b block) Rest() int { return len(b.Lines) - mostLines/2 }

// own are the names of Sluice's figures, and nothing those of what has no rules;
// draw.js gives them their colours.
var (
	own     = regexp.MustCompile(`(?i)^sluice`)
	nothing = regexp.MustCompile(`(?i)^(bare|none|no |without|nothing)`)
)

// says is what a table comes to for a person who sees it for a moment: the medians
// of others against those of Sluice. It is silent where there is nothing to
// compare, or a figure cannot be told from zero.
func says(t figures.Table) string {
	if t.Unit == "×" || t.Unit == "%" {
		return ""
	}
	var apart, alike []string
	for _, s := range t.Subjects {
		if own.MatchString(s) || nothing.MatchString(s) {
			continue
		}
		low, high, told := math.Inf(1), math.Inf(-1), false
		for _, c := range t.Cases {
			mine, its := t.Cells[[2]string{c, "sluice"}], t.Cells[[2]string{c, s}]
			if !hasValue(mine) || !hasValue(its) || mine.Estimate.Low <= 0 || its.Estimate.Low <= 0 {
				continue
			}
			ratio := its.Estimate.Median / mine.Estimate.Median
			low, high = min(low, ratio), max(high, ratio)
			told = told || its.Estimate.Low > mine.Estimate.High || its.Estimate.High < mine.Estimate.Low
		}
		a, b := rough(low), rough(high)
		switch {
		case low > high:
		case !told:
			alike = append(alike, s)
		case a == b:
			apart = append(apart, fmt.Sprintf("%s %s ×", s, a))
		default:
			apart = append(apart, fmt.Sprintf("%s %s to %s ×", s, a, b))
		}
	}
	var out []string
	if len(apart) > 0 {
		out = append(out, "Medians against sluice's: "+strings.Join(apart, "; ")+".")
	}
	if len(alike) > 0 {
		out = append(out, "No difference from sluice that the bounds show: "+strings.Join(alike, "; ")+".")
	}
	return strings.Join(out, " ")
}

// rough is a number with two digits, or all before the point.
func rough(x float64) string {
	text := strconv.FormatFloat(x, 'g', 2, 64)
	if short, err := strconv.ParseFloat(text, 64); err == nil && math.Abs(x) < 100 {
		x = short
	}
	return figures.Number(x)
}

// times says of a ratio that is far from one how many times less or more it is.
func times(ratio float64) string {
	switch {
	case ratio >= 1.5 && ratio < 1e6:
		return figures.Number(ratio) + " times as much"
	case ratio > 1e-6 && ratio <= 1/1.5:
		return figures.Number(1/ratio) + " times less"
	}
	return ""
}

// short is a note or a name as there is room for it on a chart.
func short(text string) string {
	const room = 60
	if runes := []rune(text); len(runes) > room {
		return string(runes[:room-1]) + "…"
	}
	return text
}

// between is two bounds, the unit once where it is the same.
func between(low, high float64, unit string) string {
	a, b := quantity(low, unit), quantity(high, unit)
	if at := strings.LastIndexByte(a, ' '); at >= 0 && strings.HasSuffix(b, a[at:]) {
		a = a[:at]
	}
	return a + " – " + b
}

// quantity is a number with its unit; the unit of a count, which says what was
// counted, stands with the table.
func quantity(x float64, unit string) string {
	if math.IsNaN(x) {
		return figures.Number(x)
	}
	switch unit {
	case "bytes":
		for _, u := range []struct {
			size float64
			name string
		}{{1e9, "GB"}, {1e6, "MB"}, {1e3, "kB"}} {
			if math.Abs(x) >= u.size {
				return figures.Number(x/u.size) + " " + u.name
			}
		}
		return figures.Number(x) + " bytes"
	case "s":
		switch a := math.Abs(x); {
		case a == 0 || a >= 1:
		case a >= 1e-3:
			return figures.Number(x*1e3) + " ms"
		default:
			return figures.Number(x*1e6) + " µs"
		}
	case "":
		return figures.Number(x)
	}
	if len([]rune(unit)) > 3 && !strings.ContainsAny(unit, "/%×") {
		return figures.Number(x)
	}
	return figures.Number(x) + " " + unit
}
