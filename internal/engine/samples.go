package engine

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"sluice/internal/base/sorting"
	"sluice/internal/language/policy"
	"sluice/internal/system/kernel/conntrack"
)

// Sample is what a host did with its packets in a time, by the counters of its policy. What lines
// counted in that time before another policy came without them is not in it.
type Sample struct {
	Time    time.Time `json:"time"` // when it began
	Seconds float64   `json:"seconds"`
	// New is how many packets lines of the policy let in: the first ones of connections, where they
	// are tracked.
	New     uint64 `json:"new"`
	Dropped uint64 `json:"dropped"` // or rejected
	Entries uint64 `json:"entries"` // of the connection table, at the end
	// Countries are of the packets that were logged and dropped, by a code of ISO 3166-1.
	Countries map[string]uint64 `json:"countries"`
	Lines     []SampledLine     `json:"lines"` // those that matched the most
}

// SampledLine is a line of the policy.
type SampledLine struct {
	File    string        `json:"file"`
	Line    int           `json:"line"`
	Verdict policy.Action `json:"verdict"`
	Packets uint64        `json:"packets"`
}

// What a sample has.
const (
	MostSampledCountries = 32
	MostSampledLines     = 16
)

// Sampler makes samples of what a Meter reads. It is safe for concurrent use.
type Sampler struct {
	Meter *Meter

	mutex     sync.Mutex
	began     time.Time
	packets   map[string]uint64 // by the name of a counter
	countries map[string]uint64
}

// Look is the time since the last sample that was taken; nil where none was, which begins the
// first one. Take ends it, and begins the next one.
func (s *Sampler) Look(ctx context.Context, take bool) (*Sample, error) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	now := time.Now()
	s.Meter.mutex.Lock()
	figures, err := s.Meter.figures(ctx)
	s.Meter.mutex.Unlock()
	if err != nil {
		return nil, err
	}
	var countries map[string]uint64
	if s.Meter.Log != nil {
		countries = s.Meter.Log.dropped()
	}
	packets := make(map[string]uint64, len(figures.Counters))
	for _, c := range figures.Counters {
		packets[c.Name] = c.Packets
	}
	var out *Sample
	if !s.began.IsZero() {
		out = &Sample{Time: s.began, Seconds: now.Sub(s.began).Seconds(), Countries: map[string]uint64{}, Lines: []SampledLine{}}
		at := map[SampledLine]int{}
		for _, c := range figures.Counters {
			was, verdict := s.packets[c.Name], verdictOf(c)               // a line that is new counts from 0
			if len(s.packets) == 0 || c.Packets <= was || verdict == "" { // what started again, or could not be read, counted before
				continue
			}
			n := c.Packets - was
			if verdict == policy.Allow {
				out.New += n
			} else {
				out.Dropped += n
			}
			line := SampledLine{File: c.Origin.File, Line: c.Origin.Line, Verdict: verdict}
			i, there := at[line]
			if !there {
				i, at[line] = len(out.Lines), len(out.Lines)
				out.Lines = append(out.Lines, line)
			}
			out.Lines[i].Packets += n
		}
		sorting.By(out.Lines, func(a, b SampledLine) int {
			return cmp.Or(cmp.Compare(b.Packets, a.Packets), cmp.Compare(a.File, b.File), cmp.Compare(a.Line, b.Line))
		})
		out.Lines = slices.Clip(out.Lines[:min(len(out.Lines), MostSampledLines)])
		out.Countries = moreOf(countries, s.countries)
		table, err := inside(s.Meter.Host, func(*Host) (*conntrack.Table, error) { return conntrack.ReadTable() })
		if err != nil {
			return nil, err
		}
		if table != nil {
			out.Entries = table.Entries
		}
	}
	if take || s.began.IsZero() {
		s.began, s.packets, s.countries = now, packets, countries
	}
	return out, nil
}

// moreOf is what countries have more than before, of those that have the most.
func moreOf(now, before map[string]uint64) map[string]uint64 {
	out := map[string]uint64{}
	for code, n := range now {
		if n -= before[code]; n > 0 {
			out[code] = n
		}
	}
	codes := slices.SortedFunc(maps.Keys(out), func(a, b string) int { return cmp.Or(cmp.Compare(out[b], out[a]), cmp.Compare(a, b)) })
	for _, code := range codes[min(len(codes), MostSampledCountries):] {
		delete(out, code)
	}
	return out
}
