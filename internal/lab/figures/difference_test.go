package figures

import (
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"sluice/internal/base/testseed"
	"sluice/internal/lab/stats"
	"sluice/internal/system/host"
)

// run is a report of figures around 100, each times its factor.
func run(random *rand.Rand, rounds int, factors map[string]float64) *Report {
	r := &Report{Machine: host.Machine{Kernel: "6.18"}}
	s := Section{Name: "packet"}
	for i := range 40 {
		name := fmt.Sprintf("kind %d", i)
		factor, there := factors[name]
		if !there {
			factor = 1
		}
		f := Figure{Case: name, Subject: "sluice", Quantity: "added", Unit: "ns", More: i%2 == 1}
		for range rounds {
			f.Samples = append(f.Samples, factor*100*(1+0.02*random.NormFloat64()))
		}
		s.Add(f)
	}
	r.Sections = []Section{s}
	return r
}

func verdicts(c *Comparison) map[string]Verdict {
	out := map[string]Verdict{}
	for _, d := range c.Figures {
		if d.Verdict != Same {
			out[d.Case] = d.Verdict
		}
	}
	return out
}

func TestCompareFindsRegressions(t *testing.T) {
	random := testseed.Rand(t)
	want := map[string]Verdict{"kind 4": Worse, "kind 6": Better, "kind 7": Better, "kind 9": Worse}
	const runs = 40
	wrong := 0
	for range runs {
		old := run(random, 15, nil)
		now := run(random, 15, map[string]float64{"kind 4": 1.2, "kind 6": 0.8, "kind 7": 1.2, "kind 9": 0.8, "kind 10": 1.001})
		got := verdicts(Compare(old, now, 0.02))
		for name, verdict := range want {
			if got[name] != verdict {
				t.Fatalf("%s is %q, want %q: %v", name, got[name], verdict, got)
			}
		}
		if len(got) > len(want) {
			wrong++
		}
	}
	// One in twenty is promised, so two: more than nine are less likely than one in ten thousand.
	if wrong > 9 {
		t.Errorf("%d of %d comparisons have a wrong alarm", wrong, runs)
	}
}

// Of runs of the same thing hardly one in twenty may raise an alarm, however many
// figures each has.
func TestCompareOfTheSameIsQuiet(t *testing.T) {
	random := testseed.Rand(t)
	alarms := 0
	for range 200 {
		if len(verdicts(Compare(run(random, 9, nil), run(random, 9, nil), 0))) > 0 {
			alarms++
		}
	}
	if alarms > 24 { // 10 are expected; more than 24 in one of 30,000
		t.Errorf("%d of 200 pairs of equal runs have a difference", alarms)
	}
}

// A policy that was edited between two runs is no change of what it costs.
func TestCompareOfOtherTraffic(t *testing.T) {
	run := func(text ...string) *Report {
		return &Report{Command: "sluice-lab bench packet", Sections: []Section{{Name: Traffic, Text: text}}}
	}
	old := run("IPv4, banned: from 1 source", "IPv4, allowed: from 9 sources")
	if w := Compare(old, run("IPv4, banned: from 1 source", "IPv4, established: from 7 sources"), 0.02).Warnings; len(w) != 0 {
		t.Errorf("of the same: %q", w)
	}
	now := run("IPv4, banned: from 129 sources", "IPv4, allowed: from 9 sources")
	now.Command += " other.yaml"
	w := Compare(old, now, 0.02).Warnings
	if len(w) != 2 || !strings.Contains(w[0], "other.yaml") || !strings.Contains(w[1], "from 1 source; and from 129 sources") {
		t.Errorf("got %q", w)
	}
}

func TestCompareOfFewRounds(t *testing.T) {
	random := testseed.Rand(t)
	c := Compare(run(random, 3, nil), run(random, 3, map[string]float64{"kind 0": 2}), 0.02)
	if c.Count(Unsure) != 40 {
		t.Errorf("three rounds tell nothing: got %v", verdicts(c))
	}
	old, now := run(random, 1, nil), run(random, 1, nil)
	old.Machine.Counted, now.Machine.Counted = true, true
	for i := range old.Sections[0].Figures {
		f := &now.Sections[0].Figures[i]
		f.Samples = old.Sections[0].Figures[i].Samples
		if i == 3 {
			f.Samples = stats.Series{f.Samples[0] * 0.97}
		}
		f.Estimate = f.Samples.Estimate()
	}
	if got := verdicts(Compare(old, now, 0.02)); len(got) != 1 || got["kind 3"] != Worse {
		t.Errorf("one round of counted instructions tells: got %v", got)
	}
}

func TestCompareOfOtherFigures(t *testing.T) {
	random := testseed.Rand(t)
	old, now := run(random, 9, nil), run(random, 9, nil)
	old.Sections[0].Figures[1].Case = "old kind"
	now.Sections[0].Figures[1].Case = "new kind"
	now.Sections[0].Figures[2].Samples = nil
	got := verdicts(Compare(old, now, 0.5))
	want := map[string]Verdict{"old kind": Gone, "new kind": New, "kind 2": Lost}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

// Beside each other stand the figures of both runs, what is worse first.
func TestBeside(t *testing.T) {
	random := testseed.Rand(t)
	old := run(random, 15, nil)
	now := run(random, 15, map[string]float64{"kind 4": 1.5, "kind 6": 0.5})
	old.Sections[0].Figures[2].Samples = stats.Series{math.NaN(), math.Inf(1)}
	old.Sections[0].Figures[8].Case = "old kind"
	old.Sections[0].Figures[10].Samples[3] = math.Inf(1) // one round to nothing
	c := Compare(old, now, 0.2)                          // what chance alone does is a tenth of that
	if _, err := json.Marshal(c); err != nil {
		t.Error(err)
	}
	for _, all := range []bool{false, true} {
		r := c.Report(old, now, all)
		got := []string{}
		for _, s := range r.Sections {
			got = append(got, s.Title)
		}
		want := []string{"Worse: 1", "Better: 1", "Without a value in one of the runs: 1", "Only in the new run: 1", "Only in the old run: 1", "The same: 36", "The runs"}
		if !all {
			want = slices.Delete(want, 5, 6)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Error(diff)
		}
		worse := r.Sections[0].Figures
		if len(worse) != 2 || worse[0].Case != "kind 4, sluice" || worse[0].Subject != "old" || worse[1].Subject != "new" || !strings.HasSuffix(worse[1].Note, "% worse") || !slices.Equal(worse[1].Samples, now.Sections[0].Figures[4].Samples) {
			t.Errorf("got %+v", worse)
		}
		if worse[0].Note != "" || now.Sections[0].Figures[4].Note != "" {
			t.Error("a note stands where it does not belong")
		}
	}
}
