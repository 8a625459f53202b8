package nftables

import (
	"fmt"
	"iter"
	"net/netip"
	"slices"
	"strings"
	"time"

	"sluice/internal/backend"
	"sluice/internal/base/addrset"
	"sluice/internal/base/english"
	"sluice/internal/base/sorting"
)

// Elements is what a set holds. Of dynamic sets nothing is ever told here.
type Elements struct {
	Unknown bool // not read
	// Addresses is what sets with one address as key hold whose elements have
	// neither counter nor verdict. In a set without intervals each address is
	// an element, in the others each range.
	Addresses addrset.Set
	// Ranges are the elements of sets with one address as key that count:
	// sorted, disjoint, cut as they were written.
	Ranges []addrset.Range
	// Ends are the elements of a set that Expires which end by themselves, sorted and
	// disjoint: in one without intervals single addresses. They are in none of the others.
	Ends   []addrset.Ending
	Tuples []string // of all others: the values of a key joined by " . ", sorted
	// Verdicts are those of the Tuples of a verdict map, one each: "accept",
	// "drop", "return", "continue", "jump NAME", "goto NAME".
	Verdicts []string
	// Counters are the counters of the program that counts of elements belong
	// to, by element; the kernel keeps them as comments.
	Counters map[string]string
	// Counts is what was counted, by element, of a set that was read.
	Counts map[string]backend.Count
}

// Len is the number of elements; of a set without intervals Set.Len is.
func (e Elements) Len() int {
	return e.Addresses.Len4() + e.Addresses.Len6() + len(e.Ranges) + len(e.Ends) + len(e.Tuples)
}

// all is every address, however it is kept.
func (e Elements) all() addrset.Set {
	if len(e.Ranges)+len(e.Ends) == 0 {
		return e.Addresses
	}
	var b addrset.Builder
	for _, r := range e.Ranges {
		b.AddRange(r)
	}
	for _, end := range e.Ends {
		b.AddRange(end.Range)
	}
	return e.Addresses.Union(b.Set())
}

// Len is the number of elements.
func (s *Set) Len() int {
	if s.Interval || s.Elements.Addresses.IsEmpty() {
		return s.Elements.Len()
	}
	n := s.Elements.Addresses.Count6()
	return len(s.Elements.Ends) + int(s.Elements.Addresses.Count4()) + int(n.Int64()) //nolint:gosec // single addresses in memory: far fewer
}

// noun is what nft calls it.
func (s *Set) noun() string {
	if s.Verdicts {
		return "map"
	}
	return "set"
}

// ranges gives the elements of a set with one address as key.
func (s *Set) ranges() iter.Seq[addrset.Range] {
	return func(yield func(addrset.Range) bool) {
		for r := range s.Elements.Addresses.Each() {
			if s.Interval || r.From == r.To {
				if !yield(r) {
					return
				}
				continue
			}
			for a := range single(r) {
				if !yield(addrset.Range{From: a, To: a}) {
					return
				}
			}
		}
		for _, r := range s.Elements.Ranges {
			if !yield(r) {
				return
			}
		}
		for _, e := range s.Elements.Ends {
			if !yield(e.Range) {
				return
			}
		}
	}
}

// lasting gives the elements of a set with one address as key, each with the time that it
// lasts from now on, 0 being for good. What is over is left out.
func (s *Set) lasting(now time.Time) iter.Seq2[addrset.Range, time.Duration] {
	lasting := *s
	lasting.Elements.Ends = nil
	return func(yield func(addrset.Range, time.Duration) bool) {
		for r := range lasting.ranges() {
			if !yield(r, 0) {
				return
			}
		}
		for _, e := range s.Elements.Ends {
			if left := e.Until.Sub(now); left > 0 && !yield(e.Range, max(left, time.Millisecond)) {
				return
			}
		}
	}
}

func single(r addrset.Range) iter.Seq[netip.Addr] {
	return func(yield func(netip.Addr) bool) {
		for a := r.From; yield(a) && a != r.To; {
			a = a.Next()
		}
	}
}

// texts gives the elements as nft reads them. Counts, where given, are what a
// counted element begins with.
func (s *Set) texts(counts map[string]backend.Count) []string {
	out := make([]string, 0, s.Elements.Len())
	for r, left := range s.lasting(time.Now()) {
		end := ""
		if left > 0 {
			end = fmt.Sprintf(" timeout %ds", int64((left+time.Second-1)/time.Second))
		}
		out = append(out, r.String()+end+counted(counts, r.String())+s.Elements.note(r.String()))
	}
	for i, t := range s.Elements.Tuples {
		text := tupleText(s.Types, t) + counted(counts, t) + s.Elements.note(t)
		if s.Verdicts {
			text += " : " + s.Elements.Verdicts[i]
		}
		out = append(out, text)
	}
	return out
}

// note is the comment that an element has in the kernel.
func (e Elements) note(element string) string {
	if counter := e.Counters[element]; counter != "" {
		return ` comment "` + comment(counter) + `"`
	}
	return ""
}

func counted(counts map[string]backend.Count, element string) string {
	if c, is := counts[element]; is {
		return fmt.Sprintf(" counter packets %d bytes %d", c.Packets, c.Bytes)
	}
	return ""
}

func tupleText(types []string, tuple string) string {
	parts := strings.Split(tuple, " . ")
	for i := range parts {
		if i < len(types) {
			parts[i] = named(types[i], parts[i])
		}
	}
	return strings.Join(parts, " . ")
}

// sortTuples sorts the tuples and the verdicts with them.
func (e *Elements) sortTuples() {
	if len(e.Verdicts) == 0 {
		slices.Sort(e.Tuples)
		return
	}
	order := make([]int, len(e.Tuples))
	for i := range order {
		order[i] = i
	}
	sorting.By(order, func(a, b int) int { return strings.Compare(e.Tuples[a], e.Tuples[b]) })
	tuples, verdicts := make([]string, len(order)), make([]string, len(order))
	for to, from := range order {
		tuples[to], verdicts[to] = e.Tuples[from], e.Verdicts[from]
	}
	e.Tuples, e.Verdicts = tuples, verdicts
}

// checkVerdicts wants a verdict for each element of a verdict map, and the
// chains that they lead to.
func (t *Tree) checkVerdicts(s *Set) error {
	e := s.Elements
	if s.Verdicts != (len(e.Verdicts) > 0) && len(e.Tuples) > 0 || len(e.Verdicts) > 0 && len(e.Verdicts) != len(e.Tuples) {
		return fmt.Errorf("%s %s: %d verdicts for %s", s.noun(), s.Name, len(e.Verdicts), english.Plural(len(e.Tuples), "element"))
	}
	checked := map[string]bool{}
	for _, text := range e.Verdicts {
		if checked[text] {
			continue
		}
		checked[text] = true
		v, err := verdictOf(text)
		if err != nil {
			return fmt.Errorf("map %s: %w", s.Name, err)
		}
		if v.Chain != "" && t.chain(v.Chain) == nil {
			return fmt.Errorf("map %s: no chain %s", s.Name, v.Chain)
		}
	}
	return nil
}
