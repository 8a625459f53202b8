package figures

import (
	"math"
	"slices"
	"time"

	"sluice/internal/lab/stats"
	"sluice/internal/system/host"
)

// Schema names the form of a report's JSON. A reader refuses another one.
const Schema = "sluice-figures/1"

// Report is one run of one command.
type Report struct {
	Schema  string       `json:"schema"`
	Title   string       `json:"title"`
	Command string       `json:"command"` // as it can be given again
	Version string       `json:"version"` // of sluice
	When    time.Time    `json:"when"`    // the start
	Took    float64      `json:"seconds"`
	Machine host.Machine `json:"machine"`
	Seed    uint64       `json:"seed,omitempty"` // of what is drawn at random
	// Warnings say what weakens the figures: a machine too noisy to tell, a peer that
	// was left out.
	Warnings []string  `json:"warnings,omitempty"`
	Sections []Section `json:"sections"`
	Goals    []Goal    `json:"goals,omitempty"`
}

// Section has figures that share a set-up.
type Section struct {
	Name  string `json:"name"` // short, the same in every run: "packet"
	Title string `json:"title"`
	// Text is what a reader has to know, a paragraph each.
	Text    []string `json:"text,omitempty"`
	Figures []Figure `json:"figures"`
	Charts  []Chart  `json:"charts,omitempty"`
}

// Figure is one quantity of one subject in one case.
type Figure struct {
	Case     string       `json:"case"`           // row of the table: "IPv4, banned"
	Subject  string       `json:"subject"`        // column: "sluice"
	Quantity string       `json:"quantity"`       // "added per packet"
	Unit     string       `json:"unit"`           // "ns", "×", "bytes", "s", "1/s", "instructions", "packets"
	More     bool         `json:"more,omitempty"` // more is better
	Samples  stats.Series `json:"samples"`        // one a round; one alone for what is counted
	// Estimate is that of the samples; Add fills it in. Zero without samples.
	Estimate stats.Estimate `json:"estimate"`
	Note     string         `json:"note,omitempty"`
}

// Add appends a figure. One without samples has a note that says why.
func (s *Section) Add(f Figure) {
	if len(f.Samples) > 0 {
		f.Estimate = f.Samples.Estimate()
	}
	s.Figures = append(s.Figures, f)
}

// Goal is a figure beside the limit that was asked of it.
type Goal struct {
	Name string `json:"name"`
	Unit string `json:"unit"`
	// Limit is the most that is allowed, or the least when More is set.
	Limit    float64        `json:"limit"`
	More     bool           `json:"more,omitempty"`
	Measured stats.Estimate `json:"measured"`
	// Same is A/A of a ratio; nil where there is none, as for what is counted.
	Same    *stats.Estimate `json:"same-against-itself,omitempty"`
	Reached Reached         `json:"reached"`
}

// Reached says whether a goal is.
type Reached string

// What can be said of a goal.
const (
	Yes      Reached = "yes"
	No       Reached = "no"
	NotShown Reached = "not shown" // within the limit, but the machine is too noisy to say so
)

// Reached says that every goal is.
func (r *Report) Reached() bool {
	return !slices.ContainsFunc(r.Goals, func(g Goal) bool { return g.Reached != Yes })
}

// AtMost makes a goal of a ratio that has to stay below a limit. The two series
// are of the same rounds; same is nil for what has no A/A, as what is
// counted; there every round has to keep the limit.
func AtMost(name, unit string, limit float64, measured, same stats.Series) Goal {
	g := Goal{Name: name, Unit: unit, Limit: limit, Measured: measured.Estimate(), Reached: No}
	reached := len(measured) > 0 && slices.Max(measured) <= limit
	if same != nil {
		j := stats.Judge(measured, same, limit)
		g.Same, reached = &j.Same, j.Reached()
	}
	// A round without a number has no place among the others, not the lowest.
	reached = reached && !slices.ContainsFunc(measured, math.IsNaN)
	switch {
	case reached:
		g.Reached = Yes
	case same != nil && g.Measured.Median <= limit:
		g.Reached = NotShown
	}
	return g
}

// AtLeast is AtMost for what has to stay above a limit.
func AtLeast(name, unit string, limit float64, measured, same stats.Series) Goal {
	var inverse stats.Series
	for _, x := range measured {
		inverse = append(inverse, 1/x)
	}
	if same != nil {
		inverted := make(stats.Series, len(same))
		for i, x := range same {
			inverted[i] = 1 / x
		}
		same = inverted
	}
	g := AtMost(name, unit, 1/limit, inverse, same)
	g.Limit, g.More, g.Measured = limit, true, measured.Estimate()
	if g.Same != nil {
		g.Same.Median, g.Same.Low, g.Same.High = 1/g.Same.Median, 1/g.Same.High, 1/g.Same.Low
	}
	return g
}

// Chart is a drawing of its own.
type Chart struct {
	Title string `json:"title"`
	// Group is the same for charts that share their horizontal axis, and are shown
	// above one another: what a point in time means in each of them.
	Group string  `json:"group,omitempty"`
	X     Axis    `json:"x"`
	Y     Axis    `json:"y"`
	Lines []Line  `json:"lines"`
	Marks []Mark  `json:"marks,omitempty"`
	Note  string  `json:"note,omitempty"`
	From  float64 `json:"from,omitempty"` // where the vertical axis begins, not 0
}

// Axis is what is drawn along it.
type Axis struct {
	Name string `json:"name"` // "time", "prefixes"
	Unit string `json:"unit,omitempty"`
	Log  bool   `json:"log,omitempty"`
}

// Line is one subject's course.
type Line struct {
	Name   string  `json:"name"`
	Points []Point `json:"points"`
	// Step holds each value until the next; Bars draws a bar at each.
	Step bool `json:"step,omitempty"`
	Bars bool `json:"bars,omitempty"`
}

// Point is one value, with bounds where Low and High differ from it.
type Point struct {
	X    float64 `json:"x"`
	Y    float64 `json:"y"`
	Low  float64 `json:"low,omitempty"`
	High float64 `json:"high,omitempty"`
}

// Mark is a moment that a reader has to see: "the table is full", "sluice apply".
type Mark struct {
	X    float64 `json:"x"`
	Text string  `json:"text"`
}
