package samples

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
	wrong := 0
	for range 1000 {
		if Compare(run(15, 100), run(15, 100)).Significant() {
			wrong++
		}
	}
	if wrong < 10 || wrong > 100 {
		t.Errorf("of 1,000 pairs of equal runs %d are called different, about 50 should be", wrong)
	}
	if c := Compare(Series{0, 0, 0, 0}, Series{0, 0, 0, 0}); c.Significant() || !math.IsNaN(c.Ratio) {
		t.Errorf("nothing and nothing: got %+v", c)
	}
}
