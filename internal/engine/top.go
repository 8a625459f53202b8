package engine

import (
	"cmp"
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"sluice/internal/backend"
	"sluice/internal/base/sorting"
	"sluice/internal/engine/apply"
	"sluice/internal/language/policy"
	"sluice/internal/program"
	"sluice/internal/system/hostwatch"
	"sluice/internal/system/kernel/conntrack"
	"sluice/internal/system/kernel/netns"
)

// TopQuestion asks for looks at what a host does with its packets.
type TopQuestion struct {
	Every time.Duration `json:"every-ns"` // between two looks, within LeastTop and MostTop
	Once  bool          `json:"once,omitempty"`
}

// Bounds of TopQuestion.Every.
const (
	LeastTop = time.Second
	MostTop  = time.Hour
)

// Top is one look. Rates are of the time since the look before.
type Top struct {
	Time       time.Time       `json:"time"`
	Seconds    float64         `json:"seconds"` // that the rates are of
	Condition  apply.Condition `json:"condition"`
	Generation int             `json:"generation,omitempty"` // that should run
	// Verdicts are allow, drop and reject, of the lines of the policy together. Packets of a
	// connection that a line has let in come to no line any more.
	Verdicts []TopVerdict `json:"verdicts"`
	Lines    []TopLine    `json:"lines"`                 // in the order of the policy
	Table    *TopTable    `json:"connections,omitempty"` // nil: nothing is tracked
	Sources  *TopSources  `json:"sources,omitempty"`     // nil: not counted yet, or not to be
	Drops    []TopDrop    `json:"drops"`                 // most in this look first
	// Processors are the machine's, of all network namespaces.
	Processors []TopProcessor `json:"processors"`
	Missing    []string       `json:"missing,omitempty"` // what is not shown, and why
}

// Flow is what was counted, and how much of it each second.
type Flow struct {
	Packets    uint64  `json:"packets"`
	Bytes      uint64  `json:"bytes"`
	PacketRate float64 `json:"packets-per-second"`
	ByteRate   float64 `json:"bytes-per-second"`
}

// TopVerdict is what lines of one verdict have counted.
type TopVerdict struct {
	Verdict policy.Action `json:"verdict"`
	Flow
}

// TopLine is what one line of the policy has counted since it was loaded first.
type TopLine struct {
	ID      string         `json:"id"` // of its counter, or of the first of several
	Section string         `json:"section"`
	Verdict policy.Action  `json:"verdict,omitempty"` // "": it decides nothing, such as one that rewrites
	Origin  program.Origin `json:"origin"`
	Text    string         `json:"text"`
	Flow
}

// TopTable is the connection table.
type TopTable struct {
	*conntrack.Table
	// Began is how many connections began each second; nil where that is not counted.
	Began *float64 `json:"new-per-second,omitempty"`
}

// TopSources is who has most entries of the connection table. To count them takes a while in
// a large table, so that it is done from time to time, for 2 % of one processor at most.
type TopSources struct {
	Counted   time.Time     `json:"counted"`
	Took      time.Duration `json:"took-ns"`
	Entries   int           `json:"entries"`
	Sources   int           `json:"sources"`
	Most      []TopSource   `json:"most"`
	Countries []TopCountry  `json:"countries,omitempty"` // nil: the country data cannot be read
}

// TopSource is an address, and what it has of the table.
type TopSource struct {
	Address netip.Addr `json:"address"`
	Country string     `json:"country,omitempty"`
	Entries int        `json:"entries"`
	Packets uint64     `json:"packets"` // 0 unless net.netfilter.nf_conntrack_acct is set
	Bytes   uint64     `json:"bytes"`
}

// TopCountry is where sources are; Code is "" of those whose country nobody knows.
type TopCountry struct {
	Code    string `json:"code"`
	Name    string `json:"name,omitempty"`
	Entries int    `json:"entries"`
	Sources int    `json:"sources"`
}

// TopDrop is a place of the kernel where packets were dropped, since the first look began.
type TopDrop struct {
	Function string  `json:"function"`
	Reason   string  `json:"reason,omitempty"`
	Packets  uint64  `json:"packets"`
	Rate     float64 `json:"packets-per-second"`
}

// UnknownFunction is TopDrop.Function where the kernel does not name it to whoever asks.
const UnknownFunction = "unknown"

// TopProcessor is what one did, in shares of its time, 0 to 1.
type TopProcessor struct {
	Number  int     `json:"number"`
	Softirq float64 `json:"softirq"` // packets are received there, and timers run
	Busy    float64 `json:"busy"`
}

// TopAnswer is what came of looking.
type TopAnswer struct {
	Looks int `json:"looks"`
}

// Top looks at the host until the context ends, and calls seen with each look. It changes
// nothing. What cannot be read is said in the look.
func (h *Host) Top(ctx context.Context, q TopQuestion, seen func(*Top)) (*TopAnswer, error) {
	if q.Every < LeastTop || q.Every > MostTop {
		return nil, fmt.Errorf("%s is not a valid interval: at least %s, at most %s", q.Every, LeastTop, MostTop)
	}
	if h.Netns != nil {
		return inside(h, func(h *Host) (*TopAnswer, error) { return h.Top(ctx, q, seen) })
	}
	t := &looking{meter: &Meter{Host: h, Gauges: func(context.Context) (*Gauged, error) { return h.Gauges() }}, drops: map[[2]string]uint64{}}
	if err := t.begin(ctx); err != nil {
		return nil, err
	}
	defer t.end()
	out := &TopAnswer{}
	for {
		if !q.Once {
			t.sources.begin(ctx)
		}
		select {
		case <-ctx.Done():
			return out, nil
		case <-time.After(q.Every):
		}
		if q.Once {
			t.sources.begin(ctx)
			t.sources.take(true)
		}
		if ctx.Err() != nil {
			return out, nil
		}
		out.Looks++
		if seen(t.look(ctx)); q.Once {
			return out, nil
		}
	}
}

// looking is what a look is compared with.
type looking struct {
	meter   *Meter
	watch   *hostwatch.Watch
	sources sourceCounter
	at      time.Time
	before  map[string]backend.Count // by the name of a counter
	drops   map[[2]string]uint64     // by function and reason
}

func (t *looking) begin(ctx context.Context) (err error) {
	figures, err := t.meter.figures(ctx)
	if err != nil {
		return err
	}
	if t.sources.here, err = netns.Here(); err != nil {
		return err
	}
	if t.watch, err = hostwatch.Start(ctx, hostwatch.Options{Every: -1, Begun: true}); err != nil {
		_ = t.sources.here.Close()
		return err
	}
	t.at, t.before = time.Now(), countsOf(figures.Counters)
	t.sources.host, t.sources.countries.host = t.meter.Host, t.meter.Host
	return nil
}

func (t *looking) end() {
	t.sources.take(true)
	t.watch.Stop()
	_ = t.sources.here.Close()
}

func countsOf(counters []apply.Counter) map[string]backend.Count {
	out := make(map[string]backend.Count, len(counters))
	for _, c := range counters {
		out[c.Name] = backend.Count{Packets: c.Packets, Bytes: c.Bytes}
	}
	return out
}

func (t *looking) look(ctx context.Context) *Top {
	now := time.Now()
	out := &Top{Time: now, Seconds: now.Sub(t.at).Seconds(), Lines: []TopLine{}}
	t.at = now
	figures, err := t.meter.figures(ctx)
	switch {
	case err != nil:
		out.missing("the lines of the policy are not shown: %v", err)
	case figures.Condition == apply.Nothing:
		out.missing("lines of the policy are not shown: no policy of Sluice runs")
	case len(t.meter.known.Runs.Counters) == 0:
		out.missing("lines of the policy are not shown: the policy does not count them")
	case figures.Condition == apply.Gone:
		out.missing("lines of the policy are not shown: somebody removed its rules")
	}
	if err == nil {
		out.Condition, out.Generation = figures.Condition, figures.Generation
		out.Lines = t.lines(figures.Counters, out.Seconds)
	}
	out.Verdicts = verdictsOf(out.Lines)
	t.host(out)
	t.sources.take(false)
	if out.Sources = t.sources.last.sources; t.sources.last.err != nil && out.Table != nil {
		out.missing("sources are not shown: %v", t.sources.last.err)
	}
	if out.Sources != nil && out.Sources.Countries == nil {
		out.missing("countries are not shown: the country data cannot be read")
	}
	return out
}

func (t *Top) missing(format string, args ...any) {
	t.Missing = append(t.Missing, fmt.Sprintf(format, args...))
}

// lines adds up the counters of each line.
func (t *looking) lines(counters []apply.Counter, seconds float64) []TopLine {
	type place struct{ file, line, rule, section string }
	out, at := []TopLine{}, map[place]int{}
	for _, c := range counters {
		p := placeOf(c)
		section, _, _ := strings.Cut(c.Name, "_")
		key := place{p[0], p[1], p[2], section}
		i, is := at[key]
		if !is {
			i = len(out)
			at[key] = i
			out = append(out, TopLine{ID: c.Name, Section: section, Verdict: verdictOf(c), Origin: c.Origin, Text: p[2]})
		}
		was := t.before[c.Name]
		out[i].add(Flow{c.Packets, c.Bytes, rate(was.Packets, c.Packets, seconds), rate(was.Bytes, c.Bytes, seconds)})
	}
	t.before = countsOf(counters)
	return out
}

// rate is 0 where a counter started again.
func rate(was, is uint64, seconds float64) float64 {
	if is < was || seconds <= 0 {
		return 0
	}
	return float64(is-was) / seconds
}

func (f *Flow) add(o Flow) {
	f.Packets += o.Packets
	f.Bytes += o.Bytes
	f.PacketRate += o.PacketRate
	f.ByteRate += o.ByteRate
}

var topVerdicts = []policy.Action{policy.Allow, policy.Drop, policy.Reject}

// verdictOf is what happens to the packets that a counter counts.
func verdictOf(c apply.Counter) policy.Action {
	if c.Origin.Text == "" && c.Comment != "" { // such as "banned by limit.banned"
		return policy.Drop
	}
	if a := actionOf(c.Origin.Text); slices.Contains(topVerdicts, a) {
		return a
	}
	return ""
}

// actionOf is the first word of a line, or what is behind a default and the like.
func actionOf(rule string) policy.Action {
	word, rest, _ := strings.Cut(rule, " ")
	if word == "default:" || word == "invalid:" {
		word, _, _ = strings.Cut(rest, " ")
	}
	return policy.Action(word)
}

func verdictsOf(lines []TopLine) []TopVerdict {
	out := make([]TopVerdict, len(topVerdicts))
	for i, v := range topVerdicts {
		out[i].Verdict = v
		for _, l := range lines {
			if l.Verdict == v {
				out[i].add(l.Flow)
			}
		}
	}
	return out
}

// host adds what does not come of the policy.
func (t *looking) host(out *Top) {
	seen := t.watch.Next()
	out.Missing = append(out.Missing, seen.Warnings...)
	table, err := t.meter.Host.table()
	switch {
	case err != nil:
		out.missing("the connection table is not shown: %v", err)
	case table == nil:
		out.missing("the connection table is not shown: nothing tracks connections here")
	default:
		out.Table = &TopTable{Table: table}
		if begun := seen.Spaces[0].Begun; begun != nil {
			began := rate(0, begun.Total, out.Seconds)
			out.Table.Began = &began
		}
	}
	for i, softirq := range seen.Softirq {
		out.Processors = append(out.Processors, TopProcessor{i, softirq[len(softirq)-1], seen.Busy[i][len(seen.Busy[i])-1]})
	}
	moved := map[[2]string]float64{}
	for _, d := range seen.Spaces[0].Drops {
		if strings.HasPrefix(d.Function, "0x") { // who reads it may not see the kernel's addresses
			d.Function = UnknownFunction
		}
		key := [2]string{d.Function, d.Reason}
		t.drops[key] += d.Total
		moved[key] += rate(0, d.Total, out.Seconds)
	}
	out.Drops = make([]TopDrop, 0, len(t.drops))
	for key, n := range t.drops {
		out.Drops = append(out.Drops, TopDrop{key[0], key[1], n, moved[key]})
	}
	sorting.By(out.Drops, func(a, b TopDrop) int {
		return cmp.Or(cmp.Compare(b.Rate, a.Rate), cmp.Compare(b.Packets, a.Packets), cmp.Compare(a.Function, b.Function), cmp.Compare(a.Reason, b.Reason))
	})
}
