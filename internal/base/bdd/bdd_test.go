package bdd

import (
	"errors"
	"math/rand/v2"
	"testing"
)

// TestAgainstTables: random regions of few bits against their truth tables, and
// equal tables are equal regions.
func TestAgainstTables(t *testing.T) {
	const bits, rounds = 7, 3000
	random := rand.New(rand.NewPCG(1, 2))
	s := New(bits, 1<<20)
	type known struct {
		r     Region
		table [1 << bits]bool
	}
	all := []known{{r: None}, {r: Every}}
	for i := range all[1].table {
		all[1].table[i] = true
	}
	bit := func(n, level int) bool { return n>>(bits-1-level)&1 == 1 }
	for level := range bits {
		k := known{r: s.Bit(level)}
		for n := range k.table {
			k.table[n] = bit(n, level)
		}
		all = append(all, k)
	}
	regions := map[[1 << bits]bool]Region{}
	for range rounds {
		a, b := all[random.IntN(len(all))], all[random.IntN(len(all))]
		var c known
		var op func(x, y bool) bool
		switch random.IntN(4) {
		case 0:
			c.r, op = s.And(a.r, b.r), func(x, y bool) bool { return x && y }
		case 1:
			c.r, op = s.Or(a.r, b.r), func(x, y bool) bool { return x || y }
		case 2:
			c.r, op = s.Minus(a.r, b.r), func(x, y bool) bool { return x && !y }
		case 3:
			c.r, op = s.Not(a.r), func(x, _ bool) bool { return !x }
		}
		for n := range c.table {
			c.table[n] = op(a.table[n], b.table[n])
			if got := s.Holds(c.r, func(level int) bool { return bit(n, level) }); got != c.table[n] {
				t.Fatalf("region %d holds %07b: %t, want %t", c.r, n, got, c.table[n])
			}
		}
		if before, seen := regions[c.table]; seen && before != c.r {
			t.Fatalf("one set is two regions, %d and %d", before, c.r)
		}
		regions[c.table] = c.r
		if b.r != None {
			free := s.Restrict(a.r, b.r)
			if s.And(free, b.r) != s.And(a.r, b.r) {
				t.Fatalf("restricted to %d, %d is another set there", b.r, a.r)
			}
		}
		first := random.IntN(bits)
		many := 1 + random.IntN(bits-first)
		some := s.Exists(c.r, first, many)
		for n := range c.table {
			mask := (1<<many - 1) << (bits - first - many)
			want := false
			for other := range c.table {
				want = want || other&^mask == n&^mask && c.table[other]
			}
			if got := s.Holds(some, func(level int) bool { return bit(n, level) }); got != want {
				t.Fatalf("%07b with some bits %d to %d in %d: %t, want %t", n, first, first+many-1, c.r, got, want)
			}
		}
		if c.r != None {
			w := s.Witness(c.r)
			if !s.Holds(c.r, func(level int) bool { return w[level] }) {
				t.Fatalf("the witness of %d is not in it", c.r)
			}
		}
		all = append(all, c)
	}
}

func TestRange(t *testing.T) {
	s := New(6, 1<<20)
	for from := range uint64(32) {
		for to := range uint64(32) {
			r := s.Range(1, 5, from, to)
			for n := range uint64(32) {
				in := s.Holds(r, func(level int) bool { return n>>(5-level)&1 == 1 })
				if in != (from <= n && n <= to) {
					t.Fatalf("%d in %d to %d: %t", n, from, to, in)
				}
			}
		}
	}
}

func TestTooLarge(t *testing.T) {
	s := New(32, 40)
	err := Guard(func() {
		r := None
		for n := range uint64(1000) {
			r = s.Or(r, s.Range(0, 32, n*n*7919, n*n*7919))
		}
	})
	if !errors.Is(err, ErrTooLarge) {
		t.Errorf("%d nodes: %v", s.Size(), err)
	}
}

func TestStop(t *testing.T) {
	s := New(64, 1<<24)
	stop := make(chan struct{})
	close(stop)
	s.Stop = stop
	err := Guard(func() {
		r := None
		for n := range uint64(1 << 20) {
			r = s.Or(r, s.Range(0, 63, n*n*7919, n*n*7919+n))
		}
	})
	if !errors.Is(err, ErrStopped) {
		t.Errorf("%d nodes: %v", s.Size(), err)
	}
}
