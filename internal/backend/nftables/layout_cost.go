package nftables

import (
	"math"
	"math/bits"

	"sluice/internal/backend"
)

// traffic is what a layout is asked in the estimate: addresses that stand for
// many, of members and of others, and how many ranges such traffic is spread
// over, as a part of all.
type traffic struct {
	asked  []position
	spread float64
}

// samples is how many addresses stand for a kind of traffic.
const samples = 256

// largestGap is the longest prefix whose size a gap between two ranges of a set
// may have for its addresses to be thought of as somebody's: what is wider is
// not allocated, and nobody sends from there.
var largestGap = map[int]int{4: 6, 6: 16}

// trafficsOf gives four kinds: members by address and by range, others by
// address and by gap. They are drawn in equal steps, so the same set gives the
// same ones.
func trafficsOf(spans []span, family int) (byAddress, byRange []traffic) {
	gaps := make([]span, 0, len(spans))
	widest := float64(uint64(1) << (longestPrefix - largestGap[family]))
	for i := 1; i < len(spans); i++ {
		if g := (span{spans[i-1].to.next(), spans[i].from.before()}); g.size() <= widest {
			gaps = append(gaps, g)
		}
	}
	for _, of := range [][]span{spans, gaps} {
		if len(of) > 0 {
			byAddress = append(byAddress, drawn(of, span.size))
			byRange = append(byRange, drawn(of, func(span) float64 { return 1 }))
		}
	}
	return byAddress, byRange
}

func drawn(spans []span, weight func(span) float64) traffic {
	total := 0.0
	for _, s := range spans {
		total += weight(s)
	}
	var t traffic
	entropy, sum, next := 0.0, 0.0, 0.5
	for _, s := range spans {
		w := weight(s) / total
		if w > 0 {
			entropy -= w * math.Log2(w)
		}
		for sum += w * samples; next < sum; next++ {
			// Somewhere inside, elsewhere in each: steps of the golden ratio.
			inside := math.Mod(next*0.618034, 1)
			t.asked = append(t.asked, position{s.from.hi + uint64(inside*float64(s.to.hi-s.from.hi)), s.from.lo})
		}
	}
	t.spread = math.Exp2(entropy) / float64(len(spans))
	return t
}

// held is what a layout holds: each set once, and what every use of it adds.
type held struct {
	keys   []*keys
	leads  []*leads
	ranges []*intervals
	chains int
	rules  int
}

func holdings(k *asking) held {
	var h held
	seen := map[any]bool{}
	once := func(set any) bool { was := seen[set]; seen[set] = true; return !was }
	k.each(func(c *asking) {
		h.chains++
		h.rules += len(c.questions)
		if c.rest != miss {
			h.rules++
		}
		for _, q := range c.questions {
			switch {
			case q.keys != nil && once(q.keys):
				h.keys = append(h.keys, q.keys)
			case q.leads != nil:
				h.leads = append(h.leads, q.leads)
			case q.ranges != nil && once(q.ranges):
				h.ranges = append(h.ranges, q.ranges)
			}
		}
	})
	if h.chains == 1 && h.rules == 1 || h.chains > 1 && len(k.questions) == 1 && k.questions[0].leads != nil {
		h.chains, h.rules = h.chains-1, h.rules-1 // is in the rule itself
	}
	return h
}

// price estimates what a layout takes that is used so many times.
func (m *CostModel) price(name string, k *asking, family, uses int, byAddress, byRange []traffic) backend.LayoutCost {
	c := backend.LayoutCost{Name: name}
	h := holdings(k)
	touched := 0.0 // bytes that lookups read, of what grows with the set
	memory, load := 0.0, 0.0
	add := func(kind setKind, n, times int) {
		bytes, ns := m.set(kind, n, family == 6)
		memory += bytes * float64(times)
		load += ns * float64(times)
		c.Sets, c.Elements = c.Sets+times, c.Elements+n*times
	}
	for _, x := range h.keys {
		kind := exactKind(x.part.width)
		add(kind, len(x.values), 1)
		touched += kind.read(len(x.values))
	}
	for _, x := range h.ranges {
		add(kindInterval, x.len(), 1)
		touched += kindInterval.read(x.len())
	}
	for _, x := range h.leads {
		add(kindMap, len(x.values), uses)
		touched += kindMap.read(len(x.values))
	}
	c.Chains, c.Rules = h.chains*uses, h.rules*uses
	memory += float64(c.Chains)*m.Memory.Chain + float64(c.Rules)*m.Memory.Rule
	load += float64(c.Chains)*m.Load.Chain + float64(c.Rules)*m.Load.Rule
	c.Memory, c.Load = uint64(memory), uint64(load)
	c.ByAddress, c.ByRange = m.lookup(k, touched, byAddress), m.lookup(k, touched, byRange)
	return c
}

// lookup is the mean cost of a lookup, in nanoseconds.
func (m *CostModel) lookup(k *asking, touched float64, traffics []traffic) float64 {
	sum := 0.0
	for _, t := range traffics {
		one := 0.0
		for _, a := range t.asked {
			one += m.way(k, a, touched*t.spread)
		}
		sum += one / float64(len(t.asked))
	}
	return sum / float64(max(1, len(traffics)))
}

// way is the cost of asking for one address, where lookups read so many bytes
// in turn.
func (m *CostModel) way(k *asking, a position, touched float64) float64 {
	ns := 0.0
	for first := k; k != nil; {
		next := k.rest
		for i := range k.questions {
			q := &k.questions[i]
			if k == first && q.leads != nil {
				// Asked for every packet, so it is as near as if it were alone.
				ns += m.Lookup.Question + m.Lookup.Hash.at(float64(len(q.leads.values)))
			} else {
				ns += m.Lookup.Question + m.asked(q, touched)
			}
			if answer, has := q.ask(a); has {
				next = answer
				break
			}
		}
		if k = next.on; k != nil {
			ns += m.Lookup.Enter
		}
	}
	return ns
}

// What lookups read of a set for an element: one line of memory for each node of a
// tree, and for a hash table one and half a bucket.
const (
	bytesReadOfInterval = 128.0
	bytesReadOfHash     = 80.0
)

// asked is the lookup of one question.
func (m *CostModel) asked(q *question, touched float64) float64 {
	inHash := m.Lookup.Hash.at(touched / bytesReadOfHash)
	far := (inHash - m.Lookup.Hash.Of16) / 2 // one line of memory: a bucket and an element are two
	switch {
	case q.leads != nil:
		return inHash
	case q.keys != nil && q.keys.part.width == 8:
		return m.Lookup.Bitmap
	case q.keys != nil:
		return m.Lookup.Bitmap + far
	}
	// The last steps through a tree are as far away as they are in one of all
	// that is read; the first ones are near in every tree.
	all := max(1, touched/bytesReadOfInterval)
	in := &m.Lookup.Interval
	return max(in.Of16/2, in.at(all)+in.step()*math.Log2(float64(q.ranges.len())/all))
}

// setKind is how the kernel keeps a set.
type setKind uint8

const (
	kindHash setKind = iota
	kindMap
	kindBitmap     // keys of one byte
	kindWideBitmap // keys of two bytes
	kindInterval
	kindConcat
)

func exactKind(width int) setKind {
	switch width {
	case 8:
		return kindBitmap
	case 16:
		return kindWideBitmap
	}
	return kindHash
}

// kindOf is the choice that nft_select_set_ops of net/netfilter/nf_tables_api.c
// makes.
func kindOf(s *Set) setKind {
	switch {
	case s.Interval && len(s.Types) > 1:
		return kindConcat
	case s.Interval:
		return kindInterval
	case s.Verdicts:
		return kindMap
	case len(s.Types) == 1 && !s.Counted && s.Timeout == 0:
		if p, err := keyPartOf(s.Types[0]); err == nil && p.size <= 2 {
			return exactKind(8 * p.size)
		}
	}
	return kindHash
}

// Beside its elements the kernel keeps a list of what is in an interval set, of 16
// bytes each, which is made larger than what it has to hold and takes a power of
// two (nft_array of net/netfilter/nft_set_rbtree.c).
const (
	bytesPerListed = 16
	listedAtFirst  = 1024
	listedBeyond   = 1.33
)

// kind is what sets that the kernel keeps so take.
func (m *CostModel) kind(k setKind) *SetCosts {
	switch k {
	case kindMap:
		return &m.Sets.Map
	case kindBitmap:
		return &m.Sets.Bitmap
	case kindWideBitmap:
		return &m.Sets.WideBitmap
	case kindInterval:
		return &m.Sets.Interval
	case kindConcat:
		return &m.Sets.Concatenation
	case kindHash:
	}
	return &m.Sets.Hash
}

// set is what a set of so many elements takes: bytes of kernel memory, and ns to
// define and fill it.
func (m *CostModel) set(k setKind, n int, ipv6 bool) (bytes, ns float64) {
	c := m.kind(k)
	count := float64(max(0, n))
	bytes, ns = m.Memory.Set+c.Empty+count*c.Element, m.Load.Set+count*c.Load
	switch k {
	case kindBitmap, kindWideBitmap:
		ns += count * count * m.Load.BitmapPair
	case kindInterval:
		bytes += float64(ListBytes(n))
		more := m.Load.Longer4
		if ipv6 {
			more = m.Load.Longer6
		}
		ns += count * math.Log2(max(1, count/listedAtFirst)) * more
	case kindHash, kindMap, kindConcat:
	}
	return bytes, ns
}

// ListBytes is what the list of an interval set of so many ranges takes.
func ListBytes(ranges int) uint64 {
	listed := max(listedAtFirst, uint64(float64(max(0, ranges))*listedBeyond))
	return bytesPerListed << bits.Len64(listed-1)
}

// read is how much of a set lookups touch, in bytes.
func (k setKind) read(n int) float64 {
	switch k {
	case kindInterval:
		return bytesReadOfInterval * float64(n)
	case kindWideBitmap:
		return min(16384, 64*float64(n))
	case kindBitmap:
		return 0
	}
	return bytesReadOfHash * float64(n)
}
