package figures

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
	"strings"
	"text/tabwriter"

	"sluice/internal/lab/stats"
	"sluice/internal/system/host"
)

// Verdict says how a figure of a new run is next to that of an old one.
type Verdict string

// What can be said of a figure in two runs.
const (
	Worse  Verdict = "worse"
	Better Verdict = "better"
	Same   Verdict = "same"     // no more apart than chance, or than what is asked of a difference
	Unsure Verdict = "too few"  // rounds to tell
	Gone   Verdict = "gone"     // only in the old run
	New    Verdict = "new"      // only in the new run
	Lost   Verdict = "no value" // in both, but one of them has nothing but a note
)

// Difference is one figure in two runs.
type Difference struct {
	Section  string         `json:"section"`
	Case     string         `json:"case"`
	Subject  string         `json:"subject"`
	Quantity string         `json:"quantity"`
	Unit     string         `json:"unit"`
	Old      stats.Estimate `json:"old"`
	New      stats.Estimate `json:"new"`
	Ratio    float64        `json:"ratio,omitempty"` // new against old; 0 where the old one is zero
	P        float64        `json:"p,omitempty"`     // see samples.Change
	Rounds   [2]int         `json:"rounds"`          // of the old run, of the new
	Verdict  Verdict        `json:"verdict"`

	old, now Figure
}

// Comparison is two reports beside each other.
type Comparison struct {
	Old      host.Machine `json:"old-machine"`
	New      host.Machine `json:"new-machine"`
	Warnings []string     `json:"warnings,omitempty"`
	Figures  []Difference `json:"figures"`
}

// Count is how many figures have a verdict.
func (c *Comparison) Count(v Verdict) int {
	n := 0
	for _, d := range c.Figures {
		if d.Verdict == v {
			n++
		}
	}
	return n
}

// Compare compares two reports figure by figure. A figure is worse or better when
// chance alone is no explanation and its medians are at least that part of the old one apart (0.02
// is 2 %). Many figures are compared, so each is held to the probability that keeps
// one wrong alarm among all of them below samples.Alpha (Holm's method). What was
// counted in instructions has no chance in it: there least alone decides.
func Compare(old, now *Report, least float64) *Comparison {
	c := &Comparison{Old: old.Machine, New: now.Machine}
	c.warn(old, now)
	counted := old.Machine.Counted && now.Machine.Counted
	type key struct{ section, row, subject, quantity, unit string }
	keyOf := func(s *Section, f *Figure) key { return key{s.Name, f.Case, f.Subject, f.Quantity, f.Unit} }
	before := map[key]Figure{}
	for i := range old.Sections {
		s := &old.Sections[i]
		for _, f := range s.Figures {
			before[keyOf(s, &f)] = f
		}
	}
	tested := []int{}
	for i := range now.Sections {
		s := &now.Sections[i]
		for _, f := range s.Figures {
			d := Difference{Section: s.Name, Case: f.Case, Subject: f.Subject, Quantity: f.Quantity, Unit: f.Unit, New: f.Estimate, Verdict: New, now: f}
			o, there := before[keyOf(s, &f)]
			if there {
				delete(before, keyOf(s, &f))
				d.old = o
				d.Old, d.Rounds = o.Estimate, [2]int{len(o.Samples), len(f.Samples)}
				d.compare(o, f, counted, least)
				if d.Verdict == Worse || d.Verdict == Better {
					tested = append(tested, len(c.Figures))
				}
			} else {
				d.Rounds[1] = len(f.Samples)
			}
			c.Figures = append(c.Figures, d)
		}
	}
	for i := range old.Sections {
		s := &old.Sections[i]
		for _, f := range s.Figures {
			if _, left := before[keyOf(s, &f)]; left {
				c.Figures = append(c.Figures, Difference{
					Section: s.Name, Case: f.Case, Subject: f.Subject, Quantity: f.Quantity, Unit: f.Unit,
					Old: f.Estimate, Rounds: [2]int{len(f.Samples), 0}, Verdict: Gone, old: f,
				})
			}
		}
	}
	if !counted {
		c.hold(tested)
	}
	return c
}

// compare gives a verdict on one figure, for itself.
func (d *Difference) compare(old, now Figure, counted bool, least float64) {
	if len(old.Samples.Numbers()) == 0 || len(now.Samples.Numbers()) == 0 {
		d.Verdict = Lost
		return
	}
	change := stats.Compare(old.Samples, now.Samples)
	if isNumber(change.Ratio) {
		d.Ratio = change.Ratio
	}
	d.P = change.P
	apart := math.Abs(d.New.Median-d.Old.Median) > least*math.Abs(d.Old.Median)
	switch {
	case !counted && !change.Enough:
		d.Verdict = Unsure
	case !apart || !counted && !change.Significant():
		d.Verdict = Same
	case (d.New.Median > d.Old.Median) == now.More:
		d.Verdict = Better
	default:
		d.Verdict = Worse
	}
}

func isNumber(x float64) bool { return !math.IsNaN(x) && !math.IsInf(x, 0) }

// hold takes back what may be chance when so many figures are looked at: Holm's
// method over all figures that could be told.
func (c *Comparison) hold(tested []int) {
	all := 0
	for _, d := range c.Figures {
		if d.Verdict == Worse || d.Verdict == Better || d.Verdict == Same {
			all++
		}
	}
	slices.SortFunc(tested, func(a, b int) int { return cmp.Compare(c.Figures[a].P, c.Figures[b].P) })
	for rank, i := range tested {
		if c.Figures[i].P > stats.Alpha/float64(all-rank) {
			for _, j := range tested[rank:] {
				c.Figures[j].Verdict = Same
			}
			return
		}
	}
}

func (c *Comparison) warn(old, now *Report) {
	differ := func(what, a, b string) {
		if a != b {
			c.Warnings = append(c.Warnings, fmt.Sprintf("the runs are of different %s: %s, and %s", what, a, b))
		}
	}
	differ("kernels", old.Machine.Kernel, now.Machine.Kernel)
	differ("processors", fmt.Sprintf("%d × %s", old.Machine.Processors, old.Machine.Processor), fmt.Sprintf("%d × %s", now.Machine.Processors, now.Machine.Processor))
	differ("mitigations", old.Machine.Mitigations, now.Machine.Mitigations)
	differ("commands", old.Command, now.Command)
	for _, line := range otherTraffic(old, now) {
		c.Warnings = append(c.Warnings, "the runs sent other packets: "+line)
	}
	if old.Machine.Counted != now.Machine.Counted {
		c.Warnings = append(c.Warnings, "one run counts instructions, the other nanoseconds: their figures are not comparable")
	}
	for _, r := range []*Report{old, now} {
		if r.Machine.Load > float64(r.Machine.Processors)/2 {
			c.Warnings = append(c.Warnings, fmt.Sprintf("the machine was busy at the start of the run of %s: load average %.1f", r.When.Format("2006-01-02 15:04"), r.Machine.Load))
		}
	}
}

// Traffic is the name of the section that says of each case what was sent, a line
// each, "CASE: WHAT".
const Traffic = "traffic"

// otherTraffic are the cases that two runs have both, of which they did not send the
// same: a policy that was edited meanwhile.
func otherTraffic(old, now *Report) []string {
	lines := func(r *Report) map[string]string {
		out := map[string]string{}
		for _, s := range r.Sections {
			for _, text := range s.Text {
				if name, what, is := strings.Cut(text, ": "); is && s.Name == Traffic {
					out[name] = what
				}
			}
		}
		return out
	}
	before, after := lines(old), lines(now)
	var out []string
	for _, name := range slices.Sorted(maps.Keys(before)) {
		if what, both := after[name]; both && what != before[name] && name != "not measured" {
			out = append(out, fmt.Sprintf("%s: %s; and %s", name, before[name], what))
		}
	}
	return out
}

// Print writes the differences: with all of them, or only what is not the same.
func (c *Comparison) Print(w io.Writer, all bool, paint func(Verdict, string) string) {
	section := ""
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, d := range c.Figures {
		if d.Verdict == Same && !all {
			continue
		}
		if d.Section != section {
			section = d.Section
			fmt.Fprintf(tw, "%s\told\tnew\t\t\t\n", section)
		}
		ratio, p := d.change(), ""
		if d.P != 0 || d.Verdict == Worse || d.Verdict == Better {
			p = fmt.Sprintf("p=%.3f n=%d+%d", d.P, d.Rounds[0], d.Rounds[1])
		}
		fmt.Fprintf(tw, "  %s, %s, %s\t%s\t%s\t%s\t%s\t%s\n", d.Case, d.Subject, d.Quantity,
			value(d.Old, d.Unit, d.Rounds[0]), value(d.New, d.Unit, d.Rounds[1]), ratio, p, paint(d.Verdict, string(d.Verdict)))
	}
	_ = tw.Flush()
	for _, text := range c.Warnings {
		fmt.Fprintf(w, "warning: %s\n", text)
	}
	fmt.Fprintln(w, c.Counts())
}

// Counts says how many figures have which verdict.
func (c *Comparison) Counts() string {
	out := fmt.Sprintf("%d worse, %d better, %d the same, %d with too few rounds to tell", c.Count(Worse), c.Count(Better), c.Count(Same), c.Count(Unsure))
	if n := c.Count(New) + c.Count(Gone) + c.Count(Lost); n > 0 {
		out += fmt.Sprintf(", %d in one of the runs alone", n)
	}
	return out
}

// change is how much more the new figure is, "" where the old one is nothing.
func (d *Difference) change() string {
	if d.Ratio == 0 {
		return ""
	}
	return fmt.Sprintf("%+.1f%%", 100*(d.Ratio-1))
}

func value(e stats.Estimate, unit string, rounds int) string {
	if rounds == 0 {
		return "–"
	}
	return Number(e.Median) + " " + unit
}
