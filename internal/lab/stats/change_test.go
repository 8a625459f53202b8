package stats

import (
	"math"
	"math/rand/v2"
	"testing"
)

func TestCompare(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	run := func(n int, around float64) Series {
		s := make(Series, n)
		for i := range s {
			s[i] = around * (1 + 0.02*random.NormFloat64())
		}
		return s
	}
	if c := Compare(run(15, 100), run(15, 110)); !c.Significant() || math.Abs(c.Ratio-1.1) > 0.03 {
		t.Errorf("10 %% more: got %+v", c)
	}
	if c := Compare(Series{1, 2, 3}, Series{4, 5, 6}); c.Enough || c.Significant() {
		t.Errorf("three rounds cannot tell: got %+v", c)
	}
	if c := Compare(Series{1, 2, 3, 4}, Series{5, 6, 7, 8}); !c.Significant() {
		t.Errorf("four rounds can, when they lie apart: got %+v", c)
	}
	// One error in four rounds, none in twenty: the chance of that is two tails of 4 in 24.
	none := make(Series, 20)
	for _, c := range []Change{Compare(Series{0, 0, 0, 1}, none), Compare(none, Series{0, 0, 0, 1})} {
		if math.Abs(c.P-1.0/3) > 1e-9 {
			t.Errorf("ties and two lengths: p=%v, want 1/3", c.P)
		}
	}
	if c := Compare(Series{0, 0, 0, 0}, Series{0, 0, 0, 0}); c.Significant() || !math.IsNaN(c.Ratio) {
		t.Errorf("nothing and nothing: got %+v", c)
	}
}

// TestCompareWithoutNumbers: a ratio to nothing is no number, and comparing such rounds
// ends.
func TestCompareWithoutNumbers(t *testing.T) {
	none := math.NaN()
	old, now := Series{1, none, 2, 3, 4, math.Inf(1)}, Series{none, 11, 12, 13, none, 14}
	c, want := Compare(old, now), Compare(Series{1, 2, 3, 4}, Series{11, 12, 13, 14})
	if c.P != want.P || c.Enough != want.Enough || !c.Significant() {
		t.Errorf("p %v, enough %v, want %v and %v", c.P, c.Enough, want.P, want.Enough)
	}
	if c := Compare(Series{none}, now); c.Significant() {
		t.Errorf("nothing differs: %+v", c)
	}
}
