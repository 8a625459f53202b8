package kernelbench

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path"
	"slices"
	"strings"

	"sluice/internal/lab/figures"
	"sluice/internal/lab/packetbench"
	"sluice/internal/lab/stats"
)

// Where the source tree keeps its records: of 6.12, to which changes are held, and of
// Debian's newest kernel.
const (
	RecordFile = "internal/lab/kernelbench/testdata/figures.json"
	NewestFile = "internal/lab/kernelbench/testdata/newest.json"
)

// Record is what one kernel gave, as the source tree keeps it: the tables of its pages
// are written from it, and later runs are held to it.
type Record struct {
	Kernel  string   `json:"kernel"` // release
	Date    string   `json:"date"`
	Packets []Packet `json:"packets"`
}

// Packet is a kind of packet in a section.
type Packet struct {
	Section string `json:"section"`
	Name    string `json:"packet"`   // "web-server: IPv4, established"
	Bare    Cost   `json:"no-rules"` // the whole way
	// Added by the rules of each way to have them; one that is not there could not be
	// loaded, or does otherwise with such a packet.
	Added map[string]Cost `json:"added"`
	// Ratios are those of what Sluice adds to what another adds, where that is more
	// than nothing.
	Ratios map[string]Cost `json:"ratios,omitempty"`
	// Same is the whole packet under Sluice in the lab that is next to the cheapest,
	// against the cheapest.
	Same Cost `json:"same"`
}

// part is what is measured whole: an example, or a section that has none.
func (p Packet) part() string {
	if example, _, is := strings.Cut(p.Name, ": "); is {
		return path.Join(p.Section, example)
	}
	return p.Section
}

// has says of a part whether the record has it.
func (r *Record) has(part string) bool {
	return slices.ContainsFunc(r.Packets, func(p Packet) bool { return p.part() == part })
}

// Cost is a median and its bounds.
type Cost struct{ Low, Median, High float64 }

// MarshalJSON writes low, median and high.
func (c Cost) MarshalJSON() ([]byte, error) {
	var out [3]json.Number
	for i, v := range []float64{c.Low, c.Median, c.High} {
		out[i] = json.Number(fmt.Sprintf("%.5g", v))
		if math.Abs(v) >= 1000 {
			out[i] = json.Number(fmt.Sprintf("%.0f", v))
		}
	}
	return json.Marshal(out)
}

// UnmarshalJSON reads what MarshalJSON writes.
func (c *Cost) UnmarshalJSON(data []byte) error {
	var in [3]float64
	err := json.Unmarshal(data, &in)
	c.Low, c.Median, c.High = in[0], in[1], in[2]
	return err
}

func costOf(e stats.Estimate) Cost { return Cost{e.Low, e.Median, e.High} }

// RecordOf takes from the report of one kernel what every packet pays.
func RecordOf(r *figures.Report) *Record {
	out := &Record{Kernel: r.Machine.Kernel, Date: r.When.Format("2006-01-02")}
	for _, s := range r.Sections {
		samples := map[string]stats.Series{} // Sluice's, by packet
		for _, f := range s.Figures {
			if f.Case == packetbench.Sluice && f.Unit != ratioUnit {
				samples[f.Quantity] = f.Samples
			}
		}
		at := map[string]int{}
		for _, f := range s.Figures {
			name, same := strings.CutSuffix(f.Quantity, sameSuffix)
			if samples[name] == nil || len(f.Samples) == 0 {
				continue
			}
			i, there := at[name]
			if !there {
				i = len(out.Packets)
				at[name] = i
				out.Packets = append(out.Packets, Packet{Section: s.Name, Name: name, Added: map[string]Cost{}, Ratios: map[string]Cost{}})
			}
			p := &out.Packets[i]
			switch {
			case same:
				p.Same = costOf(f.Estimate)
			case f.Case == bareLayout:
				p.Bare = costOf(f.Estimate)
			default:
				p.Added[f.Case] = costOf(f.Estimate)
				if slices.Contains(byHand, f.Case) && f.Estimate.Low > 0 {
					p.Ratios[f.Case] = costOf(samples[name].Per(f.Samples).Estimate())
				}
			}
		}
	}
	return out
}

// LoadRecord reads a file of a record.
func LoadRecord(file string) (*Record, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	r := &Record{}
	if err := json.Unmarshal(data, r); err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	return r, nil
}

// Save writes the record, a packet a line.
func (r *Record) Save(file string) error {
	head := *r
	head.Packets = []Packet{}
	data, err := json.MarshalIndent(head, "", " ")
	if err != nil {
		return err
	}
	var b bytes.Buffer
	b.Write(bytes.TrimSuffix(data, []byte("[]\n}")))
	b.WriteString("[")
	for i, p := range r.Packets {
		line, err := json.Marshal(p)
		if err != nil {
			return err
		}
		if i > 0 {
			b.WriteByte(',')
		}
		b.WriteString("\n  ")
		b.Write(line)
	}
	b.WriteString("\n ]\n}\n")
	return os.WriteFile(file, b.Bytes(), 0o644) //nolint:gosec // everybody may read it
}

// Keep puts what a run measured into a file beside what it has already; the date is that of
// the oldest.
func (r *Record) Keep(file string) error {
	old, err := LoadRecord(file)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	out := *r
	if old != nil && old.Kernel == r.Kernel {
		kept := slices.DeleteFunc(old.Packets, func(p Packet) bool { return r.has(p.part()) })
		if len(kept) > 0 {
			out.Date = min(old.Date, r.Date)
		}
		out.Packets = append(kept, r.Packets...)
	}
	return out.Save(file)
}

// Tolerances of [Record.Hold].
const (
	leastCostlier = 0.02 // of the whole packet
	timesSame     = 3    // what A/A differs by
)

// Costlier is a packet that pays more than the record says.
type Costlier struct {
	Name               string
	Was, Is, Tolerated float64 // instructions added
}

func (d Costlier) String() string {
	return fmt.Sprintf("%s: Sluice adds %.0f instructions, the record has %.0f and tolerates %.0f more", d.Name, d.Is, d.Was, d.Tolerated)
}

// Hold compares what Sluice adds in a run with the record: which packets have become
// costlier by more than three times what A/A differs, at least 2 % of the whole; which
// ones the two do not share, of the parts that the run has.
func (r *Record) Hold(run *Record) (costlier []Costlier, strangers []string) {
	find := func(in *Record, p Packet) (Packet, bool) {
		i := slices.IndexFunc(in.Packets, func(o Packet) bool { return o.Section == p.Section && o.Name == p.Name })
		if i < 0 {
			return Packet{}, false
		}
		return in.Packets[i], true
	}
	for _, now := range run.Packets {
		was, there := find(r, now)
		if !there {
			strangers = append(strangers, now.Name+" is not in the record")
			continue
		}
		before, after := was.Added[packetbench.Sluice].Median, now.Added[packetbench.Sluice].Median
		differs := max(math.Abs(was.Same.Median-1), math.Abs(now.Same.Median-1))
		if tolerated := max(leastCostlier, timesSame*differs) * (was.Bare.Median + before); after > before+tolerated {
			costlier = append(costlier, Costlier{now.Name, before, after, tolerated})
		}
	}
	for _, p := range r.Packets {
		if _, there := find(run, p); !there && run.has(p.part()) {
			strangers = append(strangers, p.Name+" was not measured")
		}
	}
	return costlier, strangers
}
