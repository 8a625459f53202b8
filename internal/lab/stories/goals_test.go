package stories

import (
	"math"
	"strings"
	"testing"

	"sluice/internal/lab/figures"
	"sluice/internal/lab/stats"
	"sluice/internal/system/host"
	"sluice/internal/system/hostwatch"
)

func rounds(x float64) stats.Series { return stats.Series{x, x, x, x, x, x, x} }

// The "within 3 %" names no page: each has a goal, whose name says which it is
// about, and the smallest does not hide behind the other.
func TestEachPageHasAGoal(t *testing.T) {
	s := &Stage{report: &figures.Report{}}
	bare, again, sluice := &site{name: "no firewall"}, &site{name: "no firewall, again"}, &site{name: "Sluice"}
	s.within(&comparison{bare: bare, again: again, over: map[string]map[*site]stats.Series{
		webPage:   {again: rounds(1), sluice: rounds(1.003)},
		smallPage: {again: rounds(1), sluice: rounds(1.085)},
	}}, sluice, 1.03)
	want := map[string]figures.Reached{
		"Sluice, a page of 64 KiB that is compressed: time for a request over that of no firewall": figures.Yes,
		"Sluice, the smallest page: time for a request over that of no firewall":                   figures.No,
	}
	if len(s.report.Goals) != len(want) {
		t.Errorf("%d goals, want %d", len(s.report.Goals), len(want))
	}
	for _, g := range s.report.Goals {
		if g.Reached != want[g.Name] {
			t.Errorf("%s: %s, want %q", g.Name, g.Reached, want[g.Name])
		}
	}
}

// A table that was never seen is no empty one.
func TestUnseenTable(t *testing.T) {
	for name, tc := range map[string]struct {
		entries []float64
		want    figures.Reached
	}{
		"seen empty": {[]float64{0, 0}, figures.Yes},
		"with one":   {[]float64{0, 1, 0}, figures.No},
		"unseen":     {nil, figures.No},
	} {
		c := &course{seen: hostwatch.Result{Spaces: []hostwatch.Space{{Entries: tc.entries}}}}
		if g := figures.AtMost("entries, at most", "", 0, stats.Series{c.mostEntries()}, nil); g.Reached != tc.want {
			t.Errorf("%s: %v entries, reached: %s, want %s", name, c.mostEntries(), g.Reached, tc.want)
		}
	}
}

// Time by the clock takes A/A, and has no goal where one round would decide.
func TestGoalsOfQueries(t *testing.T) {
	latency := func(same float64) map[string]stats.Series {
		return map[string]stats.Series{
			vmRules: rounds(0.100), sluiceClassic: rounds(0.101), sluiceFlow: rounds(0.092), sluiceFlow + again: rounds(0.092 * same),
		}
	}
	for name, tc := range map[string]struct {
		counted, short bool
		same           float64
		want           []figures.Reached
	}{
		"by the clock":        {same: 1.001, want: []figures.Reached{figures.Yes, figures.Yes}},
		"by the clock, noisy": {same: 1.2, want: []figures.Reached{figures.NotShown, figures.NotShown}},
		"by the clock, short": {same: 1.001, short: true},
		"counted":             {counted: true, same: math.NaN(), want: []figures.Reached{figures.Yes, figures.Yes}},
		"counted, short":      {counted: true, short: true, same: math.NaN(), want: []figures.Reached{figures.Yes, figures.Yes}},
	} {
		s := &Stage{report: &figures.Report{Machine: host.Machine{Counted: tc.counted}}, Options: Options{Short: tc.short}}
		(&hosting{Stage: s}).queryGoals(latency(tc.same))
		var got []string
		for _, g := range s.report.Goals {
			got = append(got, string(g.Reached))
			if (g.Same != nil) == tc.counted {
				t.Errorf("%s: A/A %v", name, g.Same)
			}
		}
		var want []string
		for _, r := range tc.want {
			want = append(want, string(r))
		}
		if strings.Join(got, ", ") != strings.Join(want, ", ") {
			t.Errorf("%s: %v, want %v", name, got, want)
		}
	}
}
