package stats

import (
	"math"
	"math/rand/v2"
	"testing"
)

func TestEstimate(t *testing.T) {
	for _, tc := range []struct {
		rounds    int
		low, high float64 // of the rounds 1, 2, 3, …
	}{
		// from tables of the sign test at 5 %
		{5, 1, 5}, {6, 1, 6}, {9, 2, 8}, {15, 4, 12}, {25, 8, 18}, {41, 14, 28}, {101, 41, 61},
	} {
		s := make(Series, tc.rounds)
		for i, at := range rand.New(rand.NewPCG(1, 1)).Perm(tc.rounds) {
			s[at] = float64(i + 1)
		}
		if got, want := s.Estimate(), (Estimate{float64(tc.rounds+1) / 2, tc.low, tc.high}); got != want {
			t.Errorf("%d rounds: got %v, want %v", tc.rounds, got, want)
		}
	}
	if got := (Series{4, 1, 3, 2}).Estimate().Median; got != 2.5 {
		t.Errorf("median of an even number of rounds: got %v, want 2.5", got)
	}
	if !math.IsNaN(Series(nil).Estimate().Median) {
		t.Error("no rounds have no median")
	}
}

func TestRoundsAreTakenTogether(t *testing.T) {
	bare, a, b := Series{400, 800, 400}, Series{500, 1000, 500}, Series{600, 1200, 600}
	if got := b.Minus(bare).Per(a.Minus(bare)).Estimate(); got != (Estimate{2, 2, 2}) {
		t.Errorf("b adds twice of a in every round, got %v", got)
	}
	if got := Mean(a, b)[1]; got != 1100 {
		t.Errorf("mean of the second round: got %v, want 1100", got)
	}
}

func TestReached(t *testing.T) {
	for name, tc := range map[string]struct {
		ratio, same, limit float64
		want               bool
	}{
		"well within":                       {0.5, 1.01, 0.55, true},
		"above":                             {0.56, 1.0, 0.55, false},
		"within, but noise is half of it":   {0.5, 1.06, 0.55, false},
		"noise counts as the ratio's":       {0.005, 1.2, 0.01, true},
		"noise of the other sign":           {1.04, 0.99, 1.05, false},
		"noise above half of 5 %":           {0.9, 1.03, 1.05, false},
		"at the limit nothing can be shown": {1.05, 1.0, 1.05, false},
	} {
		same := func(x float64) Series { return Series{x, x, x, x, x, x, x} }
		if got := Judge(same(tc.ratio), same(tc.same), tc.limit).Reached(); got != tc.want {
			t.Errorf("%s: got %v, want %v", name, got, tc.want)
		}
	}
	for name, tc := range map[string]struct {
		same Series
		want bool
	}{
		"quiet":                           {Series{0.999, 1, 1, 1.001, 1.002, 1.001, 1.001}, true},
		"noisy, around 1":                 {Series{0.9, 0.92, 1, 1.001, 1.05, 1.1, 1.1}, false},
		"noisy downwards":                 {Series{0.9, 0.92, 1, 1, 1, 1, 1}, false},
		"a round without a number":        {Series{1, 1, 1, 1, 1, 1, math.NaN()}, false},
		"a stray round of many":           {Series{0.9, 1, 1, 1, 1, 1, 1, 1, 1}, true},
		"a stray round, no bounds to ask": {Series{0.948, 1, 1.0004}, true},
	} {
		if got := Judge(Series{1.01, 1.01, 1.01, 1.01, 1.01, 1.01, 1.01}, tc.same, 1.03).Reached(); got != tc.want {
			t.Errorf("A/A %s: got %v, want %v", name, got, tc.want)
		}
	}
	wide := Judge(Series{0.4, 0.45, 0.5, 0.5, 0.5, 0.6, 0.7}, Series{1, 1, 1, 1, 1, 1, 1}, 0.55)
	if wide.Reached() {
		t.Error("a bound above the limit is not reached")
	}
}
