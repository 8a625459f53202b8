// Package bdd holds sets of bit strings as reduced ordered binary decision
// diagrams (R. E. Bryant, "Graph-Based Algorithms for Boolean Function
// Manipulation", 1986). A diagram is canonical: two sets are equal exactly when
// they are the same node, so that "no packet is treated otherwise" is one
// comparison. Callers: reach, which knows what the bits of a packet mean, and those that
// ask reach for sets of packets (verify, expect).
//
// Nodes are never freed: a [Space] is made for one question and dropped with it.
package bdd

import "errors"

// Region is a set of bit strings in one [Space]. Regions of one space are equal
// exactly when they compare equal; the zero value is the empty set.
type Region int32

// None is empty, Every holds all.
const (
	None  Region = 0
	Every Region = 1
)

// ErrTooLarge is the panic of an operation that would take more nodes than the
// space may have. Whoever begins a piece of work recovers it with [Guard].
var ErrTooLarge = errors.New("too many kinds of packets to tell apart")

// ErrStopped is the panic of an operation that goes on behind Space.Stop.
var ErrStopped = errors.New("stopped")

// Guard runs f and gives ErrTooLarge or ErrStopped where an operation in it ended
// so.
func Guard(f func()) (err error) {
	defer func() {
		switch r := recover(); r {
		case nil:
		case any(ErrTooLarge):
			err = ErrTooLarge
		case any(ErrStopped):
			err = ErrStopped
		default:
			panic(r)
		}
	}()
	f()
	return nil
}

// node says what holds where the bit of its level is 0 and where it is 1.
type node struct {
	level     int32
	low, high Region
}

// Space makes the regions of one set of bits. It is not for use by several
// goroutines at once.
type Space struct {
	// Stop ends operations when it is closed; nil is never.
	Stop   <-chan struct{}
	steps  int
	nodes  []node
	most   int
	bits   int32
	unique []Region // open addressing; None is free
	cache  []cached
}

// cached is a result; key is the operation and its first operand, of which a space has
// fewer than 1<<28.
type cached struct {
	key uint32
	b   Region
	is  Region
}

type operation uint32

const (
	noOperation operation = iota << 28
	and
	or
	minus
	restrict
	exists
)

// New makes a space of strings of so many bits, with at most so many nodes of 12
// bytes, which the caches about double. Bit 0 is asked first.
func New(bits, most int) *Space {
	s := &Space{bits: int32(bits), most: most, unique: make([]Region, 1<<14), cache: make([]cached, 1<<13)} //nolint:gosec // a packet has some hundred bits
	s.nodes = append(make([]node, 0, len(s.unique)/2+1), node{level: s.bits}, node{level: s.bits})
	return s
}

// Size is how many nodes the space has made.
func (s *Space) Size() int { return len(s.nodes) }

// Level is the first bit that a region asks; the number of all bits for None and
// Every, which ask none.
func (s *Space) Level(r Region) int { return int(s.nodes[r].level) }

// Branches gives what remains of a region where its first bit is 0 and 1.
func (s *Space) Branches(r Region) (low, high Region) { return s.nodes[r].low, s.nodes[r].high }

// Node gives the region that is low where the bit is 0 and high where it is 1.
// Both may only ask later bits.
func (s *Space) Node(level int, low, high Region) Region {
	if low == high {
		return low
	}
	n := node{int32(level), low, high} //nolint:gosec // below bits
	mask := len(s.unique) - 1
	at := int(hash(uint32(n.level), uint32(low), uint32(high))) & mask //nolint:gosec // a hash
	for s.unique[at] != None {
		if s.nodes[s.unique[at]] == n {
			return s.unique[at]
		}
		at = (at + 1) & mask
	}
	if len(s.nodes) >= s.most {
		panic(ErrTooLarge)
	}
	r := Region(len(s.nodes)) //nolint:gosec // below most
	s.nodes = append(s.nodes, n)
	s.unique[at] = r
	if len(s.nodes)*2 > len(s.unique) {
		s.grow()
	}
	return r
}

// grow doubles the tables with the nodes.
func (s *Space) grow() {
	s.unique = make([]Region, 2*len(s.unique))
	s.nodes = append(make([]node, 0, len(s.unique)/2+1), s.nodes...)
	mask := len(s.unique) - 1
	for i := 2; i < len(s.nodes); i++ {
		n := s.nodes[i]
		at := int(hash(uint32(n.level), uint32(n.low), uint32(n.high))) & mask //nolint:gosec // a hash
		for s.unique[at] != None {
			at = (at + 1) & mask
		}
		s.unique[at] = Region(i) //nolint:gosec // below most
	}
	if len(s.cache) < 1<<22 {
		old := s.cache
		s.cache = make([]cached, len(s.unique)/2)
		for _, c := range old {
			if c.key != 0 {
				s.cache[s.place(c.key, c.b)] = c
			}
		}
	}
}

// hash mixes as the finalizer of MurmurHash3 does.
func hash(a, b, c uint32) uint32 {
	h := a*0x9e3779b1 ^ b*0x85ebca6b ^ c*0xc2b2ae35
	h ^= h >> 16
	h *= 0x85ebca6b
	h ^= h >> 13
	h *= 0xc2b2ae35
	return h ^ h>>16
}

// Bit is every string whose bit is 1.
func (s *Space) Bit(level int) Region { return s.Node(level, None, Every) }

// And is what is in both.
func (s *Space) And(a, b Region) Region { return s.apply(and, a, b) }

// Or is what is in either.
func (s *Space) Or(a, b Region) Region { return s.apply(or, a, b) }

// Minus is what is in a and not in b.
func (s *Space) Minus(a, b Region) Region { return s.apply(minus, a, b) }

// Not is everything else.
func (s *Space) Not(a Region) Region { return s.apply(minus, Every, a) }

// Restrict gives a region that is a within care, and anything, with few nodes,
// outside of it (O. Coudert and J. C. Madre, "A Unified Framework for the Formal
// Verification of Sequential Circuits", 1990). Care must not be empty.
func (s *Space) Restrict(a, care Region) Region { return s.apply(restrict, a, care) }

// Exists is every string that is in the region with some value in so many bits
// from first on.
func (s *Space) Exists(r Region, first, bits int) Region {
	if bits == 0 {
		return r
	}
	// The bits are told by the region of all strings that have them set.
	cube := Every
	for level := first + bits - 1; level >= first; level-- {
		cube = s.Node(level, None, cube)
	}
	return s.apply(exists, r, cube)
}

// trivial is the result where no node has to be looked at.
func trivial(op operation, a, b Region) (Region, bool) {
	switch op {
	case and:
		switch {
		case a == None || b == None:
			return None, true
		case a == Every || a == b:
			return b, true
		case b == Every:
			return a, true
		}
	case or:
		switch {
		case a == Every || b == Every:
			return Every, true
		case a == None || a == b:
			return b, true
		case b == None:
			return a, true
		}
	case minus:
		switch {
		case a == None || b == Every || a == b:
			return None, true
		case b == None:
			return a, true
		}
	case exists:
		if b == Every || a <= Every {
			return a, true
		}
	case restrict:
		if b == Every || b == None || a <= Every {
			return a, true
		}
		if a == b {
			return Every, true
		}
	}
	return None, false
}

func (s *Space) apply(op operation, a, b Region) Region {
	if r, done := trivial(op, a, b); done {
		return r
	}
	if (op == and || op == or) && a > b {
		a, b = b, a
	}
	key := uint32(op) | uint32(a) //nolint:gosec // below most
	if c := &s.cache[s.place(key, b)]; c.key == key && c.b == b {
		return c.is
	}
	s.check()
	r := s.descend(op, a, b)
	s.cache[s.place(key, b)] = cached{key, b, r}
	return r
}

// place is where the cache has an operation.
func (s *Space) place(key uint32, b Region) int {
	return int(hash(key, uint32(b), 0)) & (len(s.cache) - 1) //nolint:gosec // a hash
}

// Check ends work that goes on behind Stop, as each operation does: for whoever
// does much between two of them.
func (s *Space) Check() { s.check() }

// check looks now and then whether it is time to stop.
func (s *Space) check() {
	if s.steps++; s.steps&0xffff != 0 || s.Stop == nil {
		return
	}
	select {
	case <-s.Stop:
		panic(ErrStopped)
	default:
	}
}

func (s *Space) descend(op operation, a, b Region) Region {
	na, nb := s.nodes[a], s.nodes[b]
	if op == restrict {
		switch {
		case nb.level < na.level:
			return s.apply(restrict, a, s.apply(or, nb.low, nb.high))
		case nb.level == na.level && nb.low == None:
			return s.apply(restrict, na.high, nb.high)
		case nb.level == na.level && nb.high == None:
			return s.apply(restrict, na.low, nb.low)
		}
	}
	if op == exists {
		switch {
		case nb.level < na.level:
			return s.apply(exists, a, nb.high)
		case nb.level == na.level:
			return s.apply(or, s.apply(exists, na.low, nb.high), s.apply(exists, na.high, nb.high))
		}
		low := s.apply(exists, na.low, b)
		high := s.apply(exists, na.high, b)
		return s.Node(int(na.level), low, high)
	}
	level := min(na.level, nb.level)
	if na.level > level {
		na.low, na.high = a, a
	}
	if nb.level > level {
		nb.low, nb.high = b, b
	}
	low := s.apply(op, na.low, nb.low)
	high := s.apply(op, na.high, nb.high)
	return s.Node(int(level), low, high)
}

// Holds says whether a string is in a region; bit gives its bits.
func (s *Space) Holds(r Region, bit func(level int) bool) bool {
	for r > Every {
		if n := s.nodes[r]; bit(int(n.level)) {
			r = n.high
		} else {
			r = n.low
		}
	}
	return r == Every
}

// Witness gives one string of a region that is not empty: the bits that it asks
// of it, and no others.
func (s *Space) Witness(r Region) map[int]bool {
	out := map[int]bool{}
	for r > Every {
		n := s.nodes[r]
		if n.low != None {
			out[int(n.level)] = false
			r = n.low
		} else {
			out[int(n.level)] = true
			r = n.high
		}
	}
	return out
}

// Range is every string whose bits from first on, so many of them and the highest
// one first, are a number between two, both included.
func (s *Space) Range(first, bits int, from, to uint64) Region {
	switch full := uint64(1)<<bits - 1; {
	case from > to:
		return None
	case from == 0 && to >= full:
		return Every
	}
	half := uint64(1) << (bits - 1)
	var low, high Region
	if from < half {
		low = s.Range(first+1, bits-1, from, min(to, half-1))
	}
	if to >= half {
		high = s.Range(first+1, bits-1, max(from, half)-half, to-half)
	}
	return s.Node(first, low, high)
}
