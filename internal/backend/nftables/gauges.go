package nftables

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"sluice/internal/backend"
	"sluice/internal/program"
	"sluice/internal/system/kernel/nfset"
	"sluice/internal/system/kernel/nft"
)

// gauges are the sets of an artifact without what is in them.
type gauges struct {
	Table string     `json:"table"`
	Sets  []gaugeSet `json:"sets"`

	counters int // that the last reading had
}

type gaugeSet struct {
	Name    string     `json:"name"` // in the kernel
	ID      string     `json:"id"`
	Kind    nfset.Kind `json:"kind,omitempty"`
	Counts  bool       `json:"counts,omitempty"` // its elements have the counters of lines
	Bans    bool       `json:"bans,omitempty"`
	Most    int        `json:"most,omitempty"`
	File    string     `json:"file,omitempty"` // of the line that it is of, where there is one
	Line    int        `json:"line,omitempty"`
	Entries int        `json:"entries,omitempty"` // that it was loaded with; -1: that does not tell how many it has
}

// Gauges are those of the artifact's own objects.
func (nftables) Gauges(a backend.Artifact) (backend.Gauges, error) {
	own, err := artifactOf(a)
	if err != nil {
		return nil, err
	}
	out := &gauges{Table: own.Tree.Table}
	for _, k := range own.Tree.Sets {
		g := gaugeSet{Name: k.Name, ID: k.ID, Kind: k.kind(), Counts: k.Counted && edited(k), Bans: k.byCommand(), Most: k.Size, Entries: k.Elements.Len(), File: k.Origin.File, Line: k.Origin.Line}
		if k.Life == program.Dynamic || k.Follow != nil || !k.Interval && !k.Elements.Addresses.IsEmpty() {
			g.Entries = -1
		}
		out.Sets = append(out.Sets, g)
	}
	return out, nil
}

// DecodeGauges reads what Encode wrote.
func (nftables) DecodeGauges(data []byte) (backend.Gauges, error) {
	var out gauges
	return &out, json.Unmarshal(data, &out)
}

// Encode writes them as JSON.
func (g *gauges) Encode() ([]byte, error) { return json.Marshal(g) }

func (g *gauges) inKernel(s gaugeSet) nfset.Set {
	return nfset.Set{Family: nfprotoOf(tableFamily(s.Name)), Table: g.Table, Name: s.Name, Kind: s.Kind}
}

// Read asks for the counters, for the sizes of the sets, and for the elements of those that
// count by element.
func (g *gauges) Read(ctx context.Context, bans backend.BanStore) (*backend.Readings, error) {
	out := &backend.Readings{}
	add := func(counter string, packets, bytes uint64) {
		sum := out.Counters[counter]
		out.Counters[counter] = backend.Count{Packets: sum.Packets + packets, Bytes: sum.Bytes + bytes}
	}
	err := nft.Counters(g.Table, func() { out.Counters = make(map[string]backend.Count, g.counters) }, func(_ uint8, name string, c nft.Counter) {
		add(programName(bare(name)), c.Packets, c.Bytes)
	})
	if err != nil {
		return nil, err
	}
	sizes, err := nft.Sets(g.Table)
	if err != nil {
		return nil, err
	}
	out.Gone = len(out.Counters)+len(sizes) == 0
	conn, err := nfset.Open()
	if err != nil {
		return nil, err
	}
	at := map[string]int{} // of the sets in out
	for _, s := range g.Sets {
		n, there := sizes[nfprotoOf(tableFamily(s.Name))][s.Name]
		if !there || s.Bans && !looksInto(bans, s.Name) {
			continue
		}
		if n < 0 {
			n = s.Entries
		}
		if n < 0 || s.Counts {
			if n, err = g.elements(ctx, conn, s, add); err != nil {
				break
			}
		}
		switch i, more := at[s.ID]; {
		case s.Bans:
			out.ByCommand += n
		case banned(s.ID):
			out.ByLimit += n
		case more:
			out.Sets[i].Entries += n
		default:
			at[s.ID] = len(out.Sets)
			out.Sets = append(out.Sets, backend.SetSize{ID: s.ID, Origin: program.Origin{File: s.File, Line: s.Line}, Entries: n, Most: s.Most})
		}
	}
	if err = errors.Join(err, conn.Close()); err != nil {
		return nil, fmt.Errorf("read the sets of table inet %s: %w", g.Table, err)
	}
	g.counters = len(out.Counters)
	return out, nil
}

// looksInto says whether rules look into a set of bans, so that what is in it counts.
func looksInto(bans backend.BanStore, set string) bool {
	store, is := bans.(*banStore)
	return !is || slices.ContainsFunc(store.sets, func(s commandSet) bool { return s.Name == set && store.asked.asks(s) })
}

// elements counts those of a set, and adds what each has counted for a line.
func (g *gauges) elements(ctx context.Context, conn *nfset.Conn, s gaugeSet, add func(string, uint64, uint64)) (n int, err error) {
	type count struct {
		counter        string
		packets, bytes uint64
	}
	var counts []count
	err = conn.Dump(ctx, g.inKernel(s), func() { n, counts = 0, counts[:0] }, func(e nfset.Element) error {
		n++
		if s.Counts && e.Counted && e.Comment != "" {
			counts = append(counts, count{e.Comment, e.Packets, e.Bytes})
		}
		return nil
	})
	if err != nil && !errors.Is(err, nfset.ErrUnfinished) {
		return 0, err
	}
	for _, c := range counts {
		add(c.counter, c.packets, c.bytes)
	}
	return n, nil
}
