package figures

import (
	"bytes"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
	"unicode"

	"github.com/google/go-cmp/cmp"

	"sluice/internal/lab/stats"
	"sluice/internal/system/host"
)

func report() *Report {
	r := &Report{
		Schema: Schema, Title: "What packets pay", Command: "sluice-lab bench packet", Version: "test",
		When: time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC), Took: 12, Seed: 1,
		Machine:  host.Machine{Kernel: "6.18", Processors: 2, Processor: "a processor", Load: 0.5},
		Warnings: []string{"ufw is left out: it is not installed"},
	}
	s := Section{Name: "packet", Title: "Packets"}
	s.Add(Figure{Case: "IPv4, banned", Subject: "sluice", Quantity: "added per packet", Unit: "ns", Samples: stats.Series{100, 110, 105, 104, 103, 102, 101}})
	s.Add(Figure{Case: "IPv4, banned", Subject: "ipset", Quantity: "added per packet", Unit: "ns", Samples: stats.Series{1400, 1440, 1410, 1400, 1400, 1400, 1400}})
	s.Add(Figure{Case: "IPv6, banned", Subject: "sluice", Quantity: "added per packet", Unit: "ns", Samples: stats.Series{1, -2, 3, 0, 1, -1, 0.5}})
	s.Add(Figure{Case: "IPv6, banned", Subject: "ipset", Quantity: "added per packet", Unit: "ns", Note: "no such set"})
	s.Add(Figure{Case: "load", Subject: "sluice", Quantity: "time", Unit: "s", Samples: stats.Series{0.3}})
	r.Sections = append(r.Sections, s)
	r.Goals = append(r.Goals, AtMost("against ipset", "×", 0.5, stats.Series{0.1, 0.1, 0.1, 0.1, 0.1, 0.1}, stats.Series{1, 1, 1, 1, 1, 1}))
	return r
}

func TestPrint(t *testing.T) {
	var out bytes.Buffer
	report().Print(&out, nil, nil)
	want := `What packets pay
kernel 6.18, 2 processors (a processor), load average 0.50, 2026-11-21 12:00 UTC, 12 s

Packets
  added per packet (ns)
                    sluice        ipset
    IPv4, banned   103 ±7%    1,400 ±3%
    IPv6, banned  0.5 ±2.5  no such set
  time (s)
          sluice
    load     0.3

What was to be reached
                 asked    measured  bounds     A/A  reached
  against ipset  ≤ 0.5 ×  0.1 ×     0.1 – 0.1  1    yes
warning: ufw is left out: it is not installed
`
	if diff := cmp.Diff(want, out.String()); diff != "" {
		t.Error(diff)
	}
}

func TestSavedIsRead(t *testing.T) {
	file := filepath.Join(t.TempDir(), "report.json")
	if err := report().Save(file); err != nil {
		t.Fatal(err)
	}
	got, err := Load(file)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(report(), got); diff != "" {
		t.Error(diff)
	}
}

// A ratio to nothing must not cost the report: it is null in JSON.
func TestNoNumber(t *testing.T) {
	r := report()
	s := Section{Name: "ratios", Title: "Ratios"}
	s.Add(Figure{Case: "to nothing", Subject: "sluice", Quantity: "ratio", Unit: "×", Samples: stats.Series{math.Inf(1), math.NaN(), math.Inf(1)}})
	s.Add(Figure{Case: "to nothing in one round", Subject: "sluice", Quantity: "ratio", Unit: "×", Samples: stats.Series{1, 2, math.Inf(1)}})
	s.Charts = []Chart{{Lines: []Line{{Points: []Point{{X: 1, Y: 2}, {X: 2, Y: math.NaN()}}}}}}
	r.Sections = append(r.Sections, s)
	r.Goals = append(r.Goals, AtMost("nothing measured", "×", 1, nil, nil))
	var text, again bytes.Buffer
	if err := r.Write(&text); err != nil {
		t.Fatal(err)
	}
	read, err := Parse("f.json", text.Bytes())
	if err != nil {
		t.Fatal(err)
	}
	if err := read.Write(&again); err != nil {
		t.Errorf("what was read is written again: %v", err)
	}
	for _, r := range []*Report{r, read} {
		var out bytes.Buffer
		r.Print(&out, nil, nil)
		if strings.Contains(out.String(), "NaN") || strings.Contains(out.String(), "Inf") {
			t.Errorf("a person reads\n%s", out.String())
		}
	}
	if got := read.Sections[1].Charts[0].Lines[0].Points; !math.IsNaN(got[1].Y) || got[0] != (Point{X: 1, Y: 2}) {
		t.Errorf("got points %v", got)
	}
	if r.Goals[1].Reached != No {
		t.Errorf("what was not measured is %s", r.Goals[1].Reached)
	}
}

// An estimate is that of the samples, whatever the file says of it.
func TestEstimateIsOfTheSamples(t *testing.T) {
	r, err := Parse("f.json", []byte(`{"schema":"sluice-figures/1","sections":[{"figures":[{"samples":[3,1,2],"estimate":{"median":9,"low":9,"high":9}}]}]}`))
	if err != nil {
		t.Fatal(err)
	}
	if got := r.Sections[0].Figures[0].Estimate; got != (stats.Estimate{Median: 2, Low: 1, High: 3}) {
		t.Errorf("got %v", got)
	}
}

func TestBadReports(t *testing.T) {
	for text, want := range map[string]string{
		"{\n  \"schema\": 1\n}":    `f.json:2:`,
		"{\n  \"schema\" 1\n}":     `f.json:2:13: no report of a measurement`,
		`{"schema": "other/1"}`:    `its schema is "other/1", this version reads sluice-figures/1`,
		"":                         `no report of a measurement`,
		`{"schema":"sluice-figur`:  `no report of a measurement`,
		`["sluice-figures/1"]`:     `no report of a measurement`,
		`{"sections":[{"name":1}]`: `no report of a measurement`,
		`{"schema":"sluice-figures/1","goals":[{"name":"g","reached":"YES \u001b[2J"}]}`: `of the goal "g" it says reached: "YES \x1b[2J", which is none of yes, no, not shown`,
		`{"schema":"sluice-figures/1","goals":[{"name":"g"}]}`:                           `reached: ""`,
	} {
		_, err := Parse("f.json", []byte(text))
		if err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "hint: ") {
			t.Errorf("%q: got %v, want %q and a hint", text, err, want)
		}
	}
	if _, err := Load(filepath.Join(t.TempDir(), "none")); !os.IsNotExist(err) {
		t.Errorf("no file: got %v", err)
	}
}

// What somebody else's file says is read, and not obeyed by the terminal.
func TestTextsOfOthersAreVisible(t *testing.T) {
	own := report()
	hidden := "a\x1b[2J\x07b\u202ec\rd\u200be\u009bf"
	s := &own.Sections[0]
	f := &s.Figures[0]
	for _, text := range []*string{
		&own.Title, &own.Version, &own.Command, &own.Machine.Kernel, &own.Machine.Processor, &own.Warnings[0], &own.Goals[0].Name, &own.Goals[0].Unit,
		&s.Name, &s.Title, &f.Case, &f.Subject, &f.Quantity, &f.Unit, &f.Note,
	} {
		*text += hidden
	}
	s.Text = []string{"line 1\n\tä日本 — ×\u00a0" + hidden}
	s.Charts = []Chart{{Title: hidden, Group: "time", Lines: []Line{{Name: hidden, Points: []Point{{X: 1, Y: 1}}}}, Marks: []Mark{{Text: hidden}}}}
	var file, out bytes.Buffer
	if err := own.Write(&file); err != nil {
		t.Fatal(err)
	}
	r, err := Parse("f.json", file.Bytes())
	if err != nil {
		t.Fatal(err)
	}
	r.Print(&out, nil, nil)
	if !strings.Contains(out.String(), "line 1\n\tä日本 — ×\u00a0a·[2J·b·c·d·e·f\n") {
		t.Errorf("a person reads\n%s", out.String())
	}
	if c := r.Sections[0].Charts[0]; c.Title != visible(hidden) || c.Lines[0].Name != visible(hidden) || c.Marks[0].Text != visible(hidden) {
		t.Errorf("chart %+v", c)
	}
	Compare(r, r, 0).Print(&out, true, func(_ Verdict, text string) string { return text })
	if i := strings.IndexFunc(out.String(), func(r rune) bool { return r != '\n' && r != '\t' && !unicode.IsGraphic(r) }); i >= 0 {
		t.Errorf("a terminal obeys %q", out.String()[i:])
	}
}

func TestGoals(t *testing.T) {
	seven := func(x float64) stats.Series { return stats.Series{x, x, x, x, x, x, x} }
	for name, tc := range map[string]struct {
		goal Goal
		want Reached
	}{
		"below":              {AtMost("", "", 1.05, seven(1.02), seven(1.001)), Yes},
		"above":              {AtMost("", "", 1.05, seven(1.06), seven(1.001)), No},
		"too noisy":          {AtMost("", "", 1.05, seven(1.02), seven(1.03)), NotShown},
		"a round of nothing": {AtMost("", "", 1.05, append(seven(1.02), math.NaN()), seven(1.001)), NotShown},
		"counted":            {AtMost("", "", 0, seven(0), nil), Yes},
		"counted, one lost":  {AtMost("", "", 0, stats.Series{0, 0, 1}, nil), No},
		"within 3 %":         {AtLeast("", "", 0.97, seven(0.99), seven(1.002)), Yes},
		"more than 3 % less": {AtLeast("", "", 0.97, seven(0.96), seven(1.002)), No},
		"within, but noisy":  {AtLeast("", "", 0.97, seven(0.98), seven(1.02)), NotShown},
	} {
		if tc.goal.Reached != tc.want {
			t.Errorf("%s: got %s, want %s", name, tc.goal.Reached, tc.want)
		}
	}
	if g := AtLeast("", "", 0.97, seven(0.99), seven(1.002)); math.Abs(g.Same.Median-1.002) > 1e-9 || g.Measured.Median != 0.99 {
		t.Errorf("measured and A/A as they are: got %+v", g)
	}
}

func TestNumber(t *testing.T) {
	for x, want := range map[float64]string{0: "0", 0.01234: "0.0123", 12.34: "12.3", 99.96: "100", 123.4: "123", 1234: "1,234", 1234567: "1,234,567", -1234: "-1,234", math.Inf(1): "∞", math.Inf(-1): "-∞", 2.5e8: "2.5e+08", math.NaN(): "–"} {
		if got := Number(x); got != want {
			t.Errorf("%v: got %s, want %s", x, got, want)
		}
	}
}

func FuzzParse(f *testing.F) {
	var out bytes.Buffer
	_ = report().Write(&out)
	f.Add(out.Bytes())
	f.Add([]byte(`{"schema":"sluice-figures/1","sections":[{"figures":[{"samples":[1e308,-1e308]}]}]}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		r, err := Parse("f.json", data)
		if err != nil {
			return
		}
		r.Print(&bytes.Buffer{}, nil, nil)
		if err := r.Write(&bytes.Buffer{}); err != nil {
			t.Errorf("what was read cannot be written: %v", err)
		}
	})
}
