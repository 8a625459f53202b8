package geo

import (
	"cmp"
	"container/heap"
	"fmt"
	"net/netip"
	"slices"

	"sluice/internal/base/addrset"
)

// A row is a range of one country; code is an index into the table's codes.
type row struct {
	from, to num
	code     uint16
}

// Table gathers the rows of sources. The zero value is ready for use.
type Table struct {
	codes  []string
	index  map[string]uint16
	v4, v6 []row
	// Overlaps is how many rows lay over another one of a different country,
	// known after Encode.
	Overlaps int
	within   int // of them, those that are in no row any more
}

// Add adds the addresses from to to, both included and of one family, with
// their country, two capital letters.
func (t *Table) Add(from, to netip.Addr, code string) error {
	if from.BitLen() != to.BitLen() || to.Less(from) || from.Zone() != "" || to.Zone() != "" {
		return fmt.Errorf("%s to %s is not a range of addresses", from, to)
	}
	if from.Is4In6() || to.Is4In6() {
		return fmt.Errorf("the range from %s to %s begins or ends among IPv4-mapped addresses", from, to)
	}
	if !isCode(code) {
		return fmt.Errorf("%q is not a country code of two letters", code)
	}
	r := row{addrset.NumberOf(from), addrset.NumberOf(to), t.indexOf(code)}
	if from.Is4() {
		t.v4 = append(t.v4, r)
	} else {
		t.v6 = append(t.v6, r)
	}
	return nil
}

func (t *Table) indexOf(code string) uint16 {
	i, ok := t.index[code]
	if !ok {
		if t.index == nil {
			t.index = make(map[string]uint16)
		}
		i = uint16(len(t.codes))
		t.index[code] = i
		t.codes = append(t.codes, code)
	}
	return i
}

// Rows returns how many rows were added.
func (t *Table) Rows() int { return len(t.v4) + len(t.v6) }

// flatten returns rows as disjoint ranges in order, neighbours of one country
// merged, and how many rows lay over another country's.
func flatten(rows []row) ([]row, int) {
	seq := make([]int32, len(rows))
	for i := range seq {
		seq[i] = int32(i)
	}
	slices.SortStableFunc(seq, func(a, b int32) int { return rows[a].from.Compare(rows[b].from) }) //nolint:forbidigo // every range of the world

	var out []row
	emit := func(r row) {
		if n := len(out); n > 0 && out[n-1].code == r.code && out[n-1].to.Next() == r.from {
			out[n-1].to = r.to
			return
		}
		out = append(out, r)
	}
	overlaps := 0
	open := openRows{rows: rows}
	for i := 0; i < len(seq) || len(open.seq) > 0; {
		if len(open.seq) == 0 {
			open.pos = rows[seq[i]].from
		}
		for i < len(seq) && rows[seq[i]].from == open.pos {
			if len(open.seq) > 0 && rows[open.seq[0]].code != rows[seq[i]].code {
				overlaps++
			}
			heap.Push(&open, seq[i])
			i++
		}
		// The narrowest of the open rows holds up to its end or the start of
		// the next row.
		top := rows[open.seq[0]]
		end := top.to
		if i < len(seq) && rows[seq[i]].from.Compare(end) <= 0 {
			end = rows[seq[i]].from.Prev()
		}
		emit(row{open.pos, end, top.code})
		open.pos = end.Next()
		for len(open.seq) > 0 && rows[open.seq[0]].to.Compare(end) <= 0 {
			heap.Pop(&open)
		}
	}
	return out, overlaps
}

// openRows is a heap of the rows that hold the address pos, the narrowest on
// top.
type openRows struct {
	rows []row
	seq  []int32
	pos  num
}

func (o *openRows) Len() int { return len(o.seq) }

func (o *openRows) Less(i, j int) bool {
	a, b := o.rows[o.seq[i]], o.rows[o.seq[j]]
	if c := a.to.Sub(a.from).Compare(b.to.Sub(b.from)); c != 0 {
		return c < 0
	}
	return o.seq[i] > o.seq[j]
}

func (o *openRows) Swap(i, j int) { o.seq[i], o.seq[j] = o.seq[j], o.seq[i] }
func (o *openRows) Push(x any)    { o.seq = append(o.seq, x.(int32)) }

func (o *openRows) Pop() any {
	last := o.seq[len(o.seq)-1]
	o.seq = o.seq[:len(o.seq)-1]
	return last
}

// rank numbers the codes of rows by how often they occur, so that frequent ones
// take one byte and the numbering depends on the contents alone.
func (t *Table) rank(v4, v6 []row) (codes []string, number []uint16) {
	count := make([]int, len(t.codes))
	for _, r := range v4 {
		count[r.code]++
	}
	for _, r := range v6 {
		count[r.code]++
	}
	order := make([]uint16, len(t.codes))
	for i := range order {
		order[i] = uint16(i)
	}
	slices.SortFunc(order, func(a, b uint16) int { //nolint:forbidigo // beside the sort above
		return cmp.Or(cmp.Compare(count[b], count[a]), cmp.Compare(t.codes[a], t.codes[b]))
	})
	number = make([]uint16, len(t.codes))
	for i, o := range order {
		if count[o] == 0 {
			break
		}
		number[o] = uint16(i)
		codes = append(codes, t.codes[o])
	}
	return codes, number
}
