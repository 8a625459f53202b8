package load

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"sluice/internal/base/testgolden"
	"sluice/internal/lab/figures"
	"sluice/internal/lab/stats"
	"sluice/internal/system/host"
)

// A whole report of a load in virtual time, as text and as JSON.
func TestSection(t *testing.T) {
	s := &stalling{stall: func(n int64) time.Duration {
		switch {
		case n > 1000:
			return time.Hour
		case n%100 == 0:
			return 20 * time.Millisecond
		}
		return 0
	}}
	r := virtual(t, (*testing.T).Context, Options{
		URL: "http://192.0.2.1/", Connections: 4, Timeout: 2 * time.Second, For: 3 * time.Second, Every: 500 * time.Millisecond, Dialer: s.dial,
	})
	r.Processor = 0 // the only figure that is not of virtual time
	report := &figures.Report{Title: "Load", Sections: []figures.Section{r.Section()}, Warnings: r.Warnings()}
	var text, data bytes.Buffer
	report.Print(&text, nil, nil)
	_, rest, _ := strings.Cut(text.String(), "\n\n")
	testgolden.File(t, "testdata/section.txt", []byte(rest))
	if err := report.Write(&data); err != nil {
		t.Fatal(err)
	}
	if !json.Valid(data.Bytes()) {
		t.Errorf("no JSON: %s", data.Bytes())
	}

	var titles []string
	for _, c := range report.Sections[0].Charts {
		titles = append(titles, c.Group+"|"+c.Title)
		for _, l := range c.Lines {
			for i, p := range l.Points {
				if i > 0 && p.X <= l.Points[i-1].X {
					t.Errorf("%s, %s: %v after %v", c.Title, l.Name, p, l.Points[i-1])
				}
			}
		}
	}
	want := []string{"time|Requests answered", "time|Errors", "time|Latency, corrected for coordinated omission", "time|Time to connect", "time|Open connections", "|Latency by percentile"}
	if diff := cmp.Diff(want, titles); diff != "" {
		t.Error(diff)
	}
}

// side is a report of a load that was answered at such rates, with errors.
func side(name string, rates, failed stats.Series) Side {
	r := &Result{
		Options: Options{Every: time.Second}, Raw: dense(1e9), Latency: dense(1e9), Connect: dense(1e9), Handshake: dense(1e9),
		Took: time.Duration(len(rates)) * time.Second, Errors: map[Kind]uint64{}, Correction: ByInterval,
	}
	for n := range rates {
		from := time.Duration(n) * time.Second
		r.Intervals = append(r.Intervals, Interval{From: from, To: from + time.Second, Answered: uint64(rates[n]), Errors: map[Kind]uint64{Reset: uint64(failed[n])}})
		r.Answered += uint64(rates[n])
		r.Errors[Reset] += uint64(failed[n])
	}
	return Side{Name: name, Report: &figures.Report{Sections: []figures.Section{{Name: "other"}, r.Section()}}}
}

func TestCompare(t *testing.T) {
	steady := stats.Series{100, 101, 102, 103, 99, 98, 97, 100, 101, 102, 100, 99}
	none := make(stats.Series, len(steady))
	less := make(stats.Series, len(steady))
	few := make(stats.Series, len(steady))
	all := make(stats.Series, len(steady))
	for i := range less {
		less[i] = steady[i] - 10
		all[i] = float64(5 + i)
		if i < 5 {
			few[i] = float64(20 + i)
		}
	}
	twice := func(s stats.Series) stats.Series { return slices.Concat(s, s) }
	for name, tc := range map[string]struct {
		a, b  Side
		worse bool
		text  string
	}{
		"the same":         {side("A", steady, none), side("B", steady, none), false, "requests answered, each second: same"},
		"fewer":            {side("A", steady, none), side("B", less, none), true, "requests answered, each second: worse, from 100 to 90 1/s (-10.0 %)"},
		"more":             {side("A", less, none), side("B", steady, none), false, "requests answered, each second: better"},
		"errors":           {side("A", steady, none), side("B", steady, all), true, "errors of all kinds, each second: worse"},
		"errors at times":  {side("A", steady, none), side("B", steady, few), false, "errors of all kinds, each second: same"},
		"errors gone":      {side("A", steady, all), side("B", steady, none), false, "errors of all kinds, each second: better"},
		"too few to tell":  {side("A", steady[:3], none), side("B", less[:3], none), false, "Too few intervals to tell"},
		"within --least":   {side("A", steady, none), side("B", less, none), false, "requests answered, each second: same"},
		"often, not half":  {side("A", twice(steady), twice(none)), side("B", twice(steady), twice(few)), true, "errors of all kinds, each second: worse"},
		"fewer, much more": {side("A", less, all), side("B", steady, append(all[1:], 30)), false, "requests answered, each second: better"},
	} {
		least := 0.02
		if name == "within --least" {
			least = 0.2
		}
		c, err := Compare(tc.a, tc.b, least)
		if err != nil {
			t.Fatal(err)
		}
		text := strings.Join(c.Sections[1].Text, "\n")
		if c.Worse != tc.worse || !strings.Contains(text, tc.text) {
			t.Errorf("%s: worse %v, %s", name, c.Worse, text)
		}
		if tables := c.Sections[0].Tables(); len(tables[0].Subjects) != 2 || tables[0].Subjects[0] != "A" {
			t.Errorf("%s: columns %v", name, tables[0].Subjects)
		}
		if lines := c.Sections[0].Charts[0].Lines; len(lines) != 2 || lines[1].Name != "B: load" {
			t.Errorf("%s: lines %v", name, lines)
		}
	}

	// Two URLs are of one report, whose warnings are not said twice.
	busy := side("A", steady, none)
	busy.Report.Machine = host.Machine{Processors: 1, Load: 20}
	if c, err := Compare(busy, busy, 0.02); err != nil || len(c.Warnings) != 1 {
		t.Errorf("warnings: %q, %v", c.Warnings, err)
	}

	if _, err := Compare(Side{"x.json", &figures.Report{}}, side("B", steady, none), 0); err == nil || !strings.Contains(err.Error(), "x.json is no report of a load") {
		t.Errorf("got %v", err)
	}
	two := side("A", steady, none)
	s := &two.Report.Sections[1]
	s.Add(figures.Figure{Case: "in all", Subject: "another", Quantity: requestsQuantity, Unit: "1/s"})
	if _, err := Compare(side("B", steady, none), two, 0); err == nil || !strings.Contains(err.Error(), "A has 2 loads, not one: load, another") {
		t.Errorf("got %v", err)
	}
}

// Two servers in turn, one of which takes a millisecond more: rounds alternate,
// and it is told as worse. One against itself is the same.
func TestTurns(t *testing.T) {
	slow := func(int64) time.Duration { return time.Millisecond }
	a := Options{URL: "http://192.0.2.1/", Connections: 2, For: 16 * time.Second, Dialer: new(stalling).dial}
	b := a
	b.Dialer = (&stalling{stall: slow}).dial
	var order []time.Duration
	turns := func(a, b Options) (ra, rb *Result) {
		virtually(t, func(t *testing.T) {
			var err error
			ra, rb, err = Turns(t.Context(), a, b, func(_, of int, last *Result) {
				if of != 16 {
					t.Errorf("%d rounds, want 16", of)
				}
				order = append(order, last.Expected.Round(time.Millisecond))
			})
			if err != nil {
				t.Fatal(err)
			}
		})
		return ra, rb
	}
	ra, rb := turns(a, b)
	ms := time.Millisecond
	if diff := cmp.Diff([]time.Duration{ms, 2 * ms, 2 * ms, ms, ms, 2 * ms, 2 * ms, ms}, order[:8]); diff != "" {
		t.Errorf("not in turn: %s", diff)
	}
	if ra.Took != 16*time.Second || len(ra.Intervals) != 8 || ra.Answered < 31_000 || rb.Answered > 16_500 || rb.Noisy() {
		t.Errorf("A: %v, %d intervals, %d answers; B: %d answers", ra.Took, len(ra.Intervals), ra.Answered, rb.Answered)
	}
	sides := func(a, b *Result) (Side, Side) {
		return Side{"A", &figures.Report{Sections: []figures.Section{a.Section()}}}, Side{"B", &figures.Report{Sections: []figures.Section{b.Section()}}}
	}
	sa, sb := sides(ra, rb)
	if c, err := Compare(sa, sb, 0.02); err != nil || !c.Worse {
		t.Errorf("twice as slow is worse: %v %v", c.Sections[1].Text, err)
	}
	if c, err := Compare(sb, sa, 0.02); err != nil || c.Worse {
		t.Errorf("twice as fast is not worse: %v %v", c.Sections[1].Text, err)
	}
}
