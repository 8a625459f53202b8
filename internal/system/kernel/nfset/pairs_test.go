package nfset

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
)

// TestPairs: random disjoint ranges of one byte come back from their nodes in
// either order, with and without the end at zero that nft puts first.
func TestPairs(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	for try := range 2000 {
		var want []string
		var nodes []node
		if rng.IntN(2) == 0 {
			nodes = append(nodes, node{key: []byte{0}, flags: unix.NFT_SET_ELEM_INTERVAL_END})
		}
		for at := rng.IntN(4); at < 256; {
			last := min(255, at+rng.IntN(60))
			if len(nodes) > 0 && at == 0 {
				nodes = nil // no end at zero then
			}
			want = append(want, fmt.Sprintf("%d-%d", at, last))
			nodes = append(nodes, node{key: []byte{byte(at)}})
			if last < 255 {
				nodes = append(nodes, node{key: []byte{byte(last + 1)}, flags: unix.NFT_SET_ELEM_INTERVAL_END})
			}
			at = last + 1 + rng.IntN(3)*rng.IntN(50)
		}
		for _, falling := range []bool{false, true} {
			order := slices.Clone(nodes)
			if falling {
				slices.Reverse(order)
			}
			if rng.IntN(2) == 0 {
				// The end of one range and the beginning of the next have one key.
				for i := 1; i < len(order); i++ {
					if bytes.Equal(order[i].key, order[i-1].key) && i > 1 {
						order[i], order[i-1] = order[i-1], order[i]
					}
				}
			}
			var got []string
			p := pairs{set: Set{Kind: Interval}, each: func(e Element) error {
				got = append(got, fmt.Sprintf("%d-%d", e.Key[0], e.End[0]))
				return nil
			}}
			for _, n := range order {
				if err := p.node(n); err != nil {
					t.Fatal(try, falling, err)
				}
			}
			if err := p.finish(); err != nil {
				t.Fatal(try, falling, err)
			}
			if falling {
				slices.Reverse(got)
			}
			if diff := gocmp.Diff(want, got); diff != "" {
				t.Fatalf("try %d falling %v: %s", try, falling, diff)
			}
		}
	}
}

func TestPairsWithoutOrder(t *testing.T) {
	p := pairs{set: Set{Kind: Interval}, each: func(Element) error { return nil }}
	var err error
	for _, key := range []byte{9, 5, 7} {
		if err == nil {
			err = p.node(node{key: []byte{key}})
		}
	}
	if !errors.Is(err, errOrder) {
		t.Errorf("got %v", err)
	}
}

// FuzzParse: nothing that the kernel may say stops the reader, and what Add
// writes is read as it was.
func FuzzParse(f *testing.F) {
	var b batch
	for kind, e := range map[Kind]Element{
		Exact:        {Key: []byte{1, 2, 3, 4}, Comment: "why", Timeout: 5e9, Expires: 4e9, Counted: true, Packets: 1, Bytes: 2},
		Interval:     {Key: []byte{1, 2, 3, 4}, End: []byte{255, 255, 255, 255}, Verdict: Verdict{Goto, "there"}},
		Concatenated: {Key: []byte{1, 2, 3, 4, 0, 80, 0, 0}, End: []byte{1, 2, 3, 5, 0, 90, 0, 0}, Verdict: Verdict{Does: Drop}},
	} {
		b.begin(1)
		b.message(unix.NFT_MSG_NEWSETELEM, 0, Set{Table: "t", Name: "s", Kind: kind})
		if err := b.element(Set{Kind: kind}, e, false); err != nil {
			f.Fatal(err)
		}
		b.end()
		f.Add(bytes.Clone(b.buf), byte(kind))
		var got []Element
		p := pairs{set: Set{Kind: kind}, each: func(e Element) error { got = append(got, e.clone()); return nil }}
		err := eachMessage(b.buf, func(m []byte) error { return parseElements(m, &p) })
		if err == nil {
			err = p.finish()
		}
		if diff := gocmp.Diff([]Element{e}, got, gocmp.Transformer("range", func(e Element) string {
			e.Forever = false // what is written says a time-out, not that there is none
			if e.End == nil {
				e.End = e.Key
			}
			return fmt.Sprintf("%+v", e)
		})); err != nil || diff != "" {
			f.Fatalf("%v\n%s", err, diff)
		}
	}
	refusal := binary.NativeEndian.AppendUint32(nil, 40)
	refusal = append(refusal, 2, 0, 0, 2, 1, 0, 0, 0, 0, 0, 0, 0, 0xfe, 0xff, 0xff, 0xff, 20, 0, 0, 0, 12, 10, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 8, 0, 2, 0)
	f.Add(append(refusal, 30, 0, 0, 0), byte(0))
	f.Fuzz(func(_ *testing.T, data []byte, kind byte) {
		n := 0
		p := pairs{set: Set{Kind: Kind(kind % 3)}, each: func(e Element) error {
			if len(e.Key) > maxKey || len(e.Key) == 0 && !e.CatchAll {
				panic(fmt.Sprintf("a key of %d bytes", len(e.Key)))
			}
			n++
			return nil
		}}
		err := eachMessage(data, func(m []byte) error {
			if a, is := parseAnswer(m); is {
				_ = b.problem(a).Error()
			}
			return parseElements(m, &p)
		})
		if err == nil {
			_ = p.finish()
		}
	})
}
