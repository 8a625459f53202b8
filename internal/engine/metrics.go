package engine

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"sluice/internal/backend"
	"sluice/internal/base/exposition"
	"sluice/internal/engine/apply"
	"sluice/internal/language/geo"
	"sluice/internal/program"
	"sluice/internal/system/kernel/conntrack"
)

// MostSeries bounds the series of one scrape.
const MostSeries = 5000

// Gauged is what has to be known of what runs to read its metrics again and again. It
// survives JSON.
type Gauged struct {
	Runs    apply.Gauged `json:"runs"`
	Outside Outside      `json:"outside"`
	Date    time.Time    `json:"date,omitzero"` // of the country data that it was made of
}

// Gauges reads what Meter needs of what runs. It takes memory, as reading the policy does.
func (h *Host) Gauges() (*Gauged, error) {
	known, err := h.Host.Gauges()
	if err != nil {
		return nil, err
	}
	out := &Gauged{Runs: *known}
	if known.Of == "" {
		return out, nil
	}
	outside, err := h.Outside()
	if err != nil {
		return nil, err
	}
	out.Outside = *outside
	if sum := out.Outside.Countries; sum != "" {
		if d := geo.WithSum(h.State, sum); d != nil {
			out.Date = d.Info().Date
		}
	}
	return out, nil
}

// Meter reads the metrics of a host. What does not change while a generation runs is kept
// between two readings. It is safe for concurrent use.
type Meter struct {
	Host *Host
	// Gauges is that of the host; an agent has it done by a process of its own.
	Gauges func(context.Context) (*Gauged, error)
	Guards bool // who reads proves what others change
	// Log is what happens to what is logged; nil where nobody keeps that.
	Log *LogCounts
	// Drops are the packets that the kernel dropped, by reason; nil where nobody counts them.
	Drops func() (map[string]uint64, error)

	mutex  sync.Mutex
	known  *Gauged
	series *lineSeries // of its counters
}

// Metrics is one reading of a Meter, within MostSeries.
func (h *Host) Metrics(ctx context.Context) ([]exposition.Family, error) {
	m := Meter{Host: h, Gauges: func(context.Context) (*Gauged, error) { return h.Gauges() }, Guards: h.ByAgent()}
	out, err := m.Read(ctx)
	if err != nil {
		return nil, err
	}
	return Bounded(out), nil
}

// Bounded is metrics within MostSeries, with how many series were left out.
func Bounded(families []exposition.Family) []exposition.Family {
	out := exposition.Family{Name: "sluice_metrics_left_out", Help: "Series left out, since there would be more than 5,000.", Type: exposition.Gauge}
	out.Add(float64(exposition.Bound(families, MostSeries-1)), nil)
	return append(families, out)
}

// Read reads them, in the host's network namespace.
func (m *Meter) Read(ctx context.Context) ([]exposition.Family, error) {
	m.mutex.Lock()
	defer m.mutex.Unlock()
	figures, err := m.figures(ctx)
	if err != nil {
		return nil, err
	}
	f := &families{namespace: m.Host.Namespace}
	watched, _ := m.Host.Watched() // which the agent writes again
	f.running(m.Host, figures, watched, m.Guards)
	f.lines(figures, m.series)
	f.sets(figures)
	if allows, err := m.Host.Exceptions(); err == nil { // else a command says what is wrong
		f.gauge("allows", allowsHelp, float64(len(apply.LetIn(allows))))
	}
	f.renewed(m.Host, m.known)
	if m.Log != nil {
		f.logged(m.Log)
	}
	if m.Drops != nil {
		f.dropped(m.Drops)
	}
	table, err := inside(m.Host, func(*Host) (*conntrack.Table, error) { return conntrack.ReadTable() })
	if table != nil {
		f.connections(table)
	}
	return f.list, err
}

// Prepare has Gauges read ahead of the next Read, where another generation runs by now.
func (m *Meter) Prepare(ctx context.Context) error {
	m.mutex.Lock()
	defer m.mutex.Unlock()
	return m.know(ctx)
}

// figures is what runs in numbers.
func (m *Meter) figures(ctx context.Context) (*apply.Figures, error) {
	if err := m.know(ctx); err != nil {
		return nil, err
	}
	return m.Host.Figures(ctx, &m.known.Runs)
}

func (m *Meter) know(ctx context.Context) error {
	of, err := m.Host.GaugedNow()
	if err != nil || m.known != nil && m.known.Runs.Of == of {
		return err
	}
	known, err := m.Gauges(ctx)
	if err == nil {
		m.known, m.series = known, seriesOf(m.Host.Namespace, known.Runs.Counters)
	}
	return err
}

// Unread is what a namespace has that could not be read.
func Unread(namespace string) []exposition.Family {
	f := &families{namespace: namespace}
	f.gauge("up", upHelp, 0)
	return f.list
}

const upHelp = "Whether the namespace could be read."

// families are those of one namespace.
type families struct {
	namespace string
	list      []exposition.Family
}

// labels come as name and value in turn.
func (f *families) add(family int, value float64, labels ...string) {
	of := map[string]string{"namespace": f.namespace}
	for i := 0; i < len(labels); i += 2 {
		of[labels[i]] = labels[i+1]
	}
	f.list[family].Add(value, of)
}

func (f *families) family(kind exposition.Type, name, help string) int {
	f.list = append(f.list, exposition.Family{Name: "sluice_" + name, Help: help, Type: kind, Samples: []exposition.Sample{}})
	return len(f.list) - 1
}

func (f *families) gauge(name, help string, value float64, labels ...string) {
	f.add(f.family(exposition.Gauge, name, help), value, labels...)
}

func truth(is bool) float64 {
	if is {
		return 1
	}
	return 0
}

// seconds is a time as Prometheus has it; 0 is none.
func seconds(t time.Time) float64 {
	if t.IsZero() {
		return 0
	}
	return float64(t.UnixMilli()) / 1000
}

func (f *families) running(h *Host, now *apply.Figures, watched *apply.Watching, guards bool) {
	f.gauge("up", upHelp, 1)
	f.gauge("build_info", "The version of Sluice.", 1, "version", h.Version)
	f.gauge("generation", "The generation that should run; 0 means none.", float64(now.Generation))
	f.gauge("boot_generation", "The generation that the next boot loads; 0 means none.", float64(now.Boot))
	f.gauge("generation_timestamp_seconds", "When the generation was loaded.", seconds(now.Since))
	f.gauge("running", "Whether the kernel holds the generation that should run.", truth(now.Condition == apply.Running))
	f.gauge("changing", "Whether a command is changing the firewall.", truth(now.Changing))
	f.gauge("apply_duration_seconds", "How long the last change that loaded the generation took, including reading it back; 0 means unknown.", now.Took.Seconds())

	w := &apply.Watched{}
	if watched != nil && watched.Generation == now.Generation {
		w = &watched.Watched
	}
	kinds := map[apply.FindingKind]int{}
	for _, found := range w.Findings {
		kinds[found.Kind]++
	}
	// These are looked at with each reading.
	kinds[apply.FoundGone], kinds[apply.FoundMark] = int(truth(now.Condition == apply.Gone)), int(truth(now.Condition == apply.Unmarked))
	kinds[apply.FoundSysctl], kinds[apply.FoundClosed] = now.Sysctls, int(truth(now.Closed))
	kinds[apply.FoundException] = now.Exceptions
	drift := 0
	for _, kind := range apply.FindingKinds {
		drift += kinds[kind]
	}
	f.gauge("proved", "Whether the rules are as they were proved or read back, and only commands have changed them since.",
		truth(now.Condition == apply.Running && (now.Proved || drift == 0 && !w.Proved.IsZero() && guards)))
	f.gauge("proved_timestamp_seconds", "When the agent last proved what the kernel holds; 0 means never.", seconds(w.Proved))
	f.gauge("verify_duration_seconds", "How long that proof took.", w.Took)
	findings := f.family(exposition.Gauge, "drift_findings", "Differences between the kernel and what was loaded, by kind.")
	for _, kind := range apply.FindingKinds {
		f.add(findings, float64(kinds[kind]), "kind", string(kind))
	}
	f.gauge("trial_waiting", "Whether a policy waits for confirmation.", truth(now.Pending != nil))
	back := f.family(exposition.Gauge, "trial_back_timestamp_seconds", "When that policy is rolled back unless it is confirmed.")
	if now.Pending != nil {
		f.add(back, seconds(time.Now().Add(now.Pending.Left())))
	}
}

// lineSeries are the series of the lines of a policy. Several counters of one line are one.
type lineSeries struct {
	all []exposition.Sample
	of  map[string]int // by the name of a counter
}

func seriesOf(namespace string, counters []apply.Counter) *lineSeries {
	out := &lineSeries{of: make(map[string]int, len(counters))}
	type place struct{ file, line, rule, section string }
	at := map[place]int{}
	for _, c := range counters {
		p := placeOf(c)
		section, _, _ := strings.Cut(c.Name, "_")
		key := place{p[0], p[1], p[2], section}
		i, there := at[key]
		if !there {
			i, at[key] = len(at), len(at)
			out.all = append(out.all, exposition.Labelled(map[string]string{"namespace": namespace, "policy": p[0], "line": p[1], "rule": p[2], "section": section}))
		}
		out.of[c.Name] = i
	}
	return out
}

// lines adds what the lines of the policy have counted.
func (f *families) lines(now *apply.Figures, series *lineSeries) {
	packets := f.family(exposition.Counter, "rule_packets_total", "Packets that a line of the policy matched.")
	bytes := f.family(exposition.Counter, "rule_bytes_total", "Bytes of these packets.")
	full := f.family(exposition.Counter, "limit_full_packets_total", "Packets whose source did not fit into the full table of a limit, so that it shares one limit with others.")
	counted := make([]backend.Count, len(series.all))
	there := make([]bool, len(series.all))
	for _, c := range now.Counters {
		i := series.of[c.Name]
		there[i] = true
		counted[i].Packets += c.Packets
		counted[i].Bytes += c.Bytes
	}
	for i, s := range series.all {
		if there[i] {
			s.Value = float64(counted[i].Packets)
			f.list[packets].Samples = append(f.list[packets].Samples, s)
			s.Value = float64(counted[i].Bytes)
			f.list[bytes].Samples = append(f.list[bytes].Samples, s)
		}
	}
	for _, c := range now.Full {
		p := placeOf(c)
		f.add(full, float64(c.Packets), "policy", p[0], "line", p[1], "rule", p[2])
	}
}

// placeOf is the file, the line and the text of what a counter is of.
func placeOf(c apply.Counter) [3]string {
	return [3]string{c.Origin.File, lineOf(c.Origin), cmp.Or(c.Origin.Text, c.Comment, c.Name)}
}

func lineOf(o program.Origin) string {
	if o.Line == 0 {
		return ""
	}
	return strconv.Itoa(o.Line)
}

const allowsHelp = "Addresses allowed by command."

func (f *families) sets(now *apply.Figures) {
	bans := f.family(exposition.Gauge, "bans", "Banned addresses, prefixes and ranges, by what banned them.")
	entries := f.family(exposition.Gauge, "set_entries", "Elements of a set.")
	most := f.family(exposition.Gauge, "set_entries_limit", "How many elements the set has room for, in each family.")
	if now.Generation == 0 {
		return
	}
	f.add(bans, float64(now.ByCommand), "by", apply.ByCommand)
	f.add(bans, float64(now.ByLimit), "by", apply.ByLimit)
	for _, s := range now.Sets {
		labels := []string{"set", s.ID, "policy", s.Origin.File, "line", lineOf(s.Origin)}
		f.add(entries, float64(s.Entries), labels...)
		if s.Most > 0 {
			f.add(most, float64(s.Most), labels...)
		}
	}
}

// renewed adds what the policy takes from elsewhere.
func (f *families) renewed(h *Host, known *Gauged) {
	of := f.family(exposition.Gauge, "list_timestamp_seconds", "When the server of a list last confirmed that the copy is current; 0 means never.")
	every := f.family(exposition.Gauge, "list_refresh_seconds", "How often the policy has the list refreshed; 0 means only by commands.")
	failing := f.family(exposition.Gauge, "list_failing", "Whether the last download of the list failed.")
	countries := f.family(exposition.Gauge, "countries_timestamp_seconds", "The date of the country data in the rules.")
	countriesFailing := f.family(exposition.Gauge, "countries_failing", "Whether the last download of country data failed, or loading them into the rules.")
	for i, d := range h.dueOf(&known.Outside, known.Date) {
		if d.List == "" {
			f.add(countries, seconds(d.Of))
			f.add(countriesFailing, truth(d.Failed != ""))
			continue
		}
		f.add(of, seconds(d.Of), "set", d.List)
		f.add(every, known.Outside.Lists[i].Every.Seconds(), "set", d.List)
		f.add(failing, truth(d.Failed != ""), "set", d.List)
	}
}

func (f *families) logged(c *LogCounts) {
	f.add(f.family(exposition.Counter, "log_packets_total", "Packets that were logged and kept since the agent started."), float64(c.Kept.Load()))
	f.add(f.family(exposition.Counter, "log_lost_packets_total", "Packets that were logged and could not be read, or not kept, since the agent started."), float64(c.Lost.Load()))
}

// dropped adds a series for each reason that there was.
func (f *families) dropped(read func() (map[string]uint64, error)) {
	of := f.family(exposition.Counter, "kernel_drops_packets_total", "Packets that the kernel dropped, by its reason, since the agent has watched the namespace.")
	all, _ := read() // what cannot be read is missing
	for _, reason := range slices.Sorted(maps.Keys(all)) {
		f.add(of, float64(all[reason]), "reason", reason)
	}
}

func (f *families) connections(t *conntrack.Table) {
	f.gauge("conntrack_entries", "Entries of the connection table.", float64(t.Entries))
	f.gauge("conntrack_entries_limit", "How many entries the table has room for; 0 means no limit.", float64(t.Most))
	for _, c := range []struct {
		name, help string
		n          uint64
	}{
		{"insert_failed", "Entries that could not be inserted, mostly because another packet of the flow came first.", t.Failed},
		{"drop", "Packets for which no entry could be made, since the table was full or memory short.", t.Dropped},
		{"early_drop", "Entries evicted for new ones in a full table.", t.Evicted},
	} {
		f.add(f.family(exposition.Counter, "conntrack_"+c.name+"_total", c.help), float64(c.n))
	}
}
