package expect

import (
	"sluice/internal/language/policy"
	"sluice/internal/prove/query"
)

// Report is what was found of the expectations of a policy.
type Report struct {
	File    string     `json:"file"`
	Holds   bool       `json:"holds"` // all of them
	Results []Reported `json:"expectations"`
}

// Reported is what was found of one expectation.
type Reported struct {
	File     string      `json:"file"`
	Line     int         `json:"line"`
	Column   int         `json:"column"`
	Text     string      `json:"text"`
	Hook     policy.Hook `json:"hook"`
	Holds    bool        `json:"holds"`
	Note     string      `json:"note,omitempty"` // nothing was judged, and why
	Failures []Reason    `json:"failures,omitempty"`
}

// Reason is packets that meet something else.
type Reason struct {
	Verdict policy.Action   `json:"verdict"`
	By      query.Decider   `json:"by"`
	Classes []query.Traffic `json:"classes,omitempty"` // of the first failures
	Example string          `json:"example"`
}

// ReportOf is what was found of the expectations of the policy of a file.
func ReportOf(file string, results []Result) Report {
	out := Report{File: file, Holds: true, Results: []Reported{}}
	for i := range results {
		r := &results[i]
		x := r.Expectation
		one := Reported{x.Pos.File, x.Pos.Line, x.Pos.Column, x.Text, r.Hook, r.Holds(), r.Note, nil}
		for _, f := range r.Failures {
			by := query.Decider{File: f.Pos.File, Line: f.Pos.Line, Column: f.Pos.Column, Text: f.Text}
			if f.Pos.Line == 0 {
				by = query.Decider{Text: f.Why}
			}
			one.Failures = append(one.Failures, Reason{f.Verdict, by, f.Traffic, PacketText(f.Witness)})
		}
		out.Holds = out.Holds && r.Holds()
		out.Results = append(out.Results, one)
	}
	return out
}
