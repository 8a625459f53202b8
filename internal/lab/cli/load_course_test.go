package cli

import (
	"bytes"
	"math"
	"testing"

	"sluice/internal/lab/figures"
)

// What happened at the same time stands above one another, also where one line
// was sampled a little later and longer than the other; zero, nothing and little
// look different.
func TestCourses(t *testing.T) {
	line := func(name string, late float64, values ...float64) figures.Line {
		l := figures.Line{Name: name}
		for i, v := range values {
			l.Points = append(l.Points, figures.Point{X: float64(i+1) + late, Y: v})
		}
		return l
	}
	time := figures.Axis{Name: "time", Unit: "s"}
	charts := []figures.Chart{
		{Title: "Requests answered", Group: "time", X: time, Y: figures.Axis{Unit: "1/s"}, Lines: []figures.Line{line("load", 0, 6000, 6000, 3000, 0, math.NaN(), 10)}},
		{Title: "Latency", Group: "time", X: time, Y: figures.Axis{Unit: "ms", Log: true}, Lines: []figures.Line{line("50 %", 0, 1, 1, 1, 1, 1, 2), line("longest", 0, 1, 1, 1000, 1, 1, 1)}},
		{Title: "Another axis", Lines: []figures.Line{line("x", 0, 1, 2)}},
		{Title: "Connection table", Group: "time", X: time, Y: figures.Axis{Name: "entries"}, Note: "The limit is 8 entries.", Lines: []figures.Line{line("entries", 0.01, 2, 4, 8, 8, 8, 8)}, Marks: []figures.Mark{{X: 3, Text: "the table is full"}}},
	}
	charts[3].Lines[0].Points = append(charts[3].Lines[0].Points, figures.Point{X: 6.1, Y: 8})
	var out bytes.Buffer
	printCourses(&out, charts, "time", func(s string) string { return s })
	want := `
Over 6.1 s, 1 s a column, with the highest value of each row
  Requests answered (1/s)
    load     ██▄· ▁  6,000
  Latency (ms)
    50 %     ▄▄▄▄▄█  2
    longest  ▁▁█▁▁▁  1,000
  Connection table (entries)
    entries  ▂▄████  8
    The limit is 8 entries.
    at 3 s: the table is full
`
	if out.String() != want {
		t.Errorf("got %s", out.String())
	}

	var long []float64
	for range 150 {
		long = append(long, 1)
	}
	if got := courseOf(line("", 0, long...), 3, 50, 1); got != "██████████████████████████████████████████████████" {
		t.Errorf("got %q", got)
	}
	out.Reset()
	printCourses(&out, []figures.Chart{{Group: "time", Lines: []figures.Line{line("one", 0, 1)}}, {Group: "time"}}, "time", func(s string) string { return s })
	if out.Len() > 0 {
		t.Errorf("one interval is no course: %s", out.String())
	}
}
