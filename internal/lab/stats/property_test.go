package stats

import (
	"math"
	"math/rand/v2"
	"testing"

	"sluice/internal/base/testseed"
)

// atMost is the number of successes in so many trials that a probability exceeds
// once in a million times.
func atMost(trials int, probability float64) int {
	n := float64(trials)
	return int(n*probability + 5*math.Sqrt(n*probability*(1-probability)) + 1)
}

// draws are the distributions of what is measured, each with its median.
var draws = []struct {
	name   string
	median float64
	draw   func(*rand.Rand) float64
}{
	{"bell", 100, bell},
	{"long tail", 1, func(r *rand.Rand) float64 { return math.Exp(2 * r.NormFloat64()) }},
	{"steps", 1.5, func(r *rand.Rand) float64 { return float64(r.IntN(4)) }},
	{"mostly nothing", 0, func(r *rand.Rand) float64 { return max(0, float64(r.IntN(10)-8)) }},
}

func bell(r *rand.Rand) float64 { return 100 + 3*r.NormFloat64() }

func series(r *rand.Rand, n int, draw func(*rand.Rand) float64) Series {
	s := make(Series, n)
	for i := range s {
		s[i] = draw(r)
	}
	return s
}

// Two runs of the same thing are called different once in twenty times at most,
// whatever is measured and however many rounds they have.
func TestEqualRunsAreCalledEqual(t *testing.T) {
	const trials = 1000
	random := testseed.Rand(t)
	for _, d := range draws {
		for _, n := range [][2]int{{3, 3}, {4, 4}, {4, 20}, {7, 12}, {15, 15}, {60, 60}} {
			wrong := 0
			for range trials {
				a, b := series(random, n[0], d.draw), series(random, n[1], d.draw)
				c := Compare(a, b)
				if back := Compare(b, a); math.Abs(back.P-c.P) > 1e-9 || c.P < 0 || c.P > 1 {
					t.Fatalf("%v and %v: p=%v, the other way round %v", a, b, c.P, back.P)
				}
				if c.Significant() {
					wrong++
				}
			}
			if wrong > atMost(trials, Alpha) {
				t.Errorf("%s, %v rounds: %d of %d pairs are called different", d.name, n, wrong, trials)
			}
			if n[0] < 4 && wrong > 0 {
				t.Errorf("%s: three rounds cannot tell", d.name)
			}
		}
	}
}

// The probability is that of all orders in which the values may have come, counted
// one by one.
func TestProbabilityAgainstCounting(t *testing.T) {
	random := testseed.Rand(t)
	for range 300 {
		n, m := 1+random.IntN(4), 1+random.IntN(6)
		all := make(Series, n+m)
		for i := range all {
			all[i] = float64(random.IntN(1 + random.IntN(6)))
		}
		u := func(first uint) (sum float64) {
			for i, x := range all {
				for j, y := range all {
					switch {
					case first>>i&1 == 0 || first>>j&1 == 1:
					case x > y:
						sum++
					case x == y:
						sum += 0.5
					}
				}
			}
			return sum
		}
		ours, below, above, orders := u(1<<n-1), 0.0, 0.0, 0.0
		for first := range uint(1) << (n + m) {
			if ones(first) != n {
				continue
			}
			orders++
			if u(first) <= ours {
				below++
			}
			if u(first) >= ours {
				above++
			}
		}
		want := min(1, 2*min(below, above)/orders)
		if got := probabilityOfEqual(all[:n], all[n:]); math.Abs(got-want) > 1e-9 {
			t.Fatalf("%v and %v: p=%v, by counting %v", all[:n], all[n:], got, want)
		}
	}
}

func ones(x uint) (n int) {
	for ; x > 0; x &= x - 1 {
		n++
	}
	return n
}

// A difference that is there is found: 5 % where rounds differ by 3 %.
func TestDifferencesAreFound(t *testing.T) {
	const trials = 1000
	random := testseed.Rand(t)
	found := 0
	for range trials {
		b := series(random, 15, bell)
		for i := range b {
			b[i] *= 1.05
		}
		if Compare(series(random, 15, bell), b).Significant() {
			found++
		}
	}
	if found < trials*9/10 {
		t.Errorf("%d of %d", found, trials)
	}
}

// The bounds hold the median of what is measured at least as often as they say,
// and those of a ratio the ratio, also where what slows the machine slows both
// sides of a round.
func TestBoundsHoldTheMedian(t *testing.T) {
	const trials = 1000
	random := testseed.Rand(t)
	for _, d := range draws {
		for _, n := range []int{6, 7, 15, 41} {
			missed := 0
			for range trials {
				e := series(random, n, d.draw).Estimate()
				// Half of what is measured in steps is 1 or less: any of 1 to 2 is a median.
				if low, high := math.Floor(d.median), math.Ceil(d.median); e.Low > high || e.High < low {
					missed++
				}
				if !(e.Low <= e.Median && e.Median <= e.High) {
					t.Fatalf("%s: %v", d.name, e)
				}
			}
			if missed > atMost(trials, Alpha) {
				t.Errorf("%s, %d rounds: %d of %d times the median is out of bounds", d.name, n, missed, trials)
			}
		}
	}
	const ratio = 1.25
	missed := 0
	for range trials {
		a, b := make(Series, 15), make(Series, 15)
		for i := range a {
			slow := math.Exp(random.NormFloat64())
			a[i] = slow * math.Exp(0.1*random.NormFloat64())
			b[i] = ratio * slow * math.Exp(0.1*random.NormFloat64())
		}
		if e := b.Per(a).Estimate(); e.Low > ratio || e.High < ratio {
			missed++
		}
	}
	if missed > atMost(trials, Alpha) {
		t.Errorf("the ratio: %d of %d times out of bounds", missed, trials)
	}
}

// What is at its limit or above is hardly ever called reached, what is well within
// nearly always on a quiet machine, and nothing where rounds of the same thing are as
// far from each other as the limit is from 1.
func TestReachedIsSeldomWrong(t *testing.T) {
	const trials, rounds, limit = 1000, 15, 1.1
	random := testseed.Rand(t)
	for _, tc := range []struct {
		ratio, noise float64
		from, to     int
	}{
		{1.1, 0.05, 0, atMost(trials, Alpha/2)},
		{1.2, 0.05, 0, 5},
		{0.9, 0.02, trials * 95 / 100, trials},
		{0.5, 0.2, 0, 5},
	} {
		reached := 0
		for range trials {
			noise := func(around float64) Series {
				return series(random, rounds, func(r *rand.Rand) float64 { return around * math.Exp(tc.noise*r.NormFloat64()) })
			}
			if Judge(noise(tc.ratio), noise(1), limit).Reached() {
				reached++
			}
		}
		if reached < tc.from || reached > tc.to {
			t.Errorf("%v with a limit of %v and rounds that differ by %v: %d of %d times reached", tc.ratio, limit, tc.noise, reached, trials)
		}
	}
}
