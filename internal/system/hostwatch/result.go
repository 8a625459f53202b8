package hostwatch

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	"sluice/internal/base/sorting"
	"sluice/internal/system/kernel/drops"
)

// Result is what a watch has seen.
type Result struct {
	From  time.Time     // second 0
	Every time.Duration // the interval
	Began float64       // when the first interval begins, in seconds since From
	// At says when each interval ends, in seconds since From. All courses have as
	// many values.
	At     []float64
	Spaces []Space
	// Softirq is the share (0 to 1) of each processor's time that went to softirq,
	// where packets are received; Busy all that was not idle.
	Softirq, Busy [][]float64
	// Unplaced are packets dropped in a namespace that cannot be told, of any on
	// the machine.
	Unplaced []Drop
	// Warnings say what could not be seen, and why.
	Warnings []string
}

// Space is one network namespace.
type Space struct {
	Name    string
	Entries []float64 // of the connection table at the end of each interval; nil where there was none
	Max     []float64 // entries that it may have
	// Begun are the connections that began; nil where they were not counted.
	Begun *Course
	// Table are the counters of the connection table that moved: "drop",
	// "early_drop", "insert_failed", ... as conntrack(8) -S names them.
	Table []Course
	// TCP are the counters of /proc/net/netstat and snmp that explain lost
	// connections and moved: "ListenOverflows", ...
	TCP []Course
	// Drops are packets that the kernel gave up, by function and reason, most
	// first.
	Drops []Drop
}

// Course is a counter over time.
type Course struct {
	Name   string
	Counts []float64 // in each interval
	Total  uint64
}

// Drop is a place of the kernel where packets were dropped.
type Drop struct {
	Function string // "nf_hook_slow"; an address where it cannot be told
	Reason   string // "NETFILTER_DROP"; "" on kernels that know none
	Course          // named after both
}

// FullAt is the moment from which on the connection table had no room: it had all
// the entries that it may have, or threw some out for others.
func (r Result) FullAt(s Space) (second float64, full bool) {
	for i, at := range r.At {
		if s.Entries != nil && s.Max[i] > 0 && s.Entries[i] >= s.Max[i] {
			return at, true
		}
		for _, c := range s.Table {
			if (c.Name == "drop" || c.Name == "early_drop") && c.Counts[i] > 0 {
				return at, true
			}
		}
	}
	return 0, false
}

// tableCounters say what a table has refused or lost, most telling first.
var tableCounters = []string{"drop", "early_drop", "insert_failed", "chaintoolong", "clash_resolve", "search_restart", "error", "invalid"}

// tcpCounters are those of net/ipv4/proc.c that explain lost or late connections.
var tcpCounters = []string{
	"ListenOverflows", "ListenDrops", "TCPReqQFullDrop", "TCPReqQFullDoCookies", "TCPBacklogDrop", "TCPRcvQDrop",
	"TCPTimeWaitOverflow", "PFMemallocDrop", "TCPAbortOnMemory", "TCPAbortOnTimeout", "TCPTimeouts", "TCPSynRetrans",
	"RetransSegs", "AttemptFails", "EstabResets",
}

func (w *Watch) result() Result {
	w.mu.Lock()
	samples := slices.Insert(w.samples, 0, w.began)
	w.mu.Unlock()
	r := Result{From: w.from, Every: w.every, Began: w.began.at}
	for i := 1; i < len(samples); i++ {
		r.At = append(r.At, samples[i].at)
	}
	r.processors(samples)
	for i, s := range w.spaces {
		out := Space{Name: s.Name}
		for _, now := range samples[1:] {
			if t := now.spaces[i]; samples[len(samples)-1].spaces[i].tracked {
				out.Entries = append(out.Entries, float64(t.entries))
				out.Max = append(out.Max, float64(t.max))
			}
		}
		if s.begun != nil {
			begun := course(samples, "begun", func(s sample) uint64 { return s.spaces[i].begun }, 1<<64-1)
			out.Begun = &begun
		}
		out.Table = moved(tableCounters, samples, func(s sample, name string) uint64 { return uint64(s.spaces[i].table[name]) }, 1<<32-1)
		out.TCP = moved(tcpCounters, samples, func(s sample, name string) uint64 {
			return s.spaces[i].ip["Tcp."+name] + s.spaces[i].ip["TcpExt."+name] // a name is of one of the two
		}, 1<<64-1)
		r.Spaces = append(r.Spaces, out)
	}
	if w.drops != nil {
		w.dropped(&r, samples)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	r.Warnings = slices.Clone(w.warnings)
	return r
}

// moved gives the counters that counted, each over time. The mask is the kernel's
// size of them: they begin at 0 again.
func moved[T any](names []T, samples []sample, value func(sample, T) uint64, mask uint64) []Course {
	var out []Course
	for _, name := range names {
		if c := course(samples, fmt.Sprint(name), func(s sample) uint64 { return value(s, name) }, mask); c.Total > 0 {
			out = append(out, c)
		}
	}
	return out
}

func course(samples []sample, name string, value func(sample) uint64, mask uint64) Course {
	c := Course{Name: name}
	for i := 1; i < len(samples); i++ {
		n := (value(samples[i]) - value(samples[i-1])) & mask
		c.Counts = append(c.Counts, float64(n))
		c.Total += n
	}
	return c
}

// tick is the kernel's unit of a processor's time, in seconds (USER_HZ).
const tick = 0.01

func (r *Result) processors(samples []sample) {
	for i := range samples[0].processors {
		var softirq, busy []float64
		for at := 1; at < len(samples); at++ {
			if i >= len(samples[at].processors) { // removed meanwhile
				softirq, busy = append(softirq, 0), append(busy, 0)
				continue
			}
			before, now := samples[at-1].processors[min(i, len(samples[at-1].processors)-1)], samples[at].processors[i]
			total := max(now.Total-before.Total, tick) // no tick: nothing was done
			softirq = append(softirq, (now.Softirq-before.Softirq)/total)
			busy = append(busy, 1-min(1, (now.Idle-before.Idle)/total))
		}
		r.Softirq, r.Busy = append(r.Softirq, softirq), append(r.Busy, busy)
	}
}

// dropped names the places and gives each namespace its own.
func (w *Watch) dropped(r *Result, samples []sample) {
	places := slices.SortedFunc(maps.Keys(samples[len(samples)-1].drops), func(a, b drops.Place) int {
		return cmp.Or(cmp.Compare(a.Location, b.Location), cmp.Compare(a.Reason, b.Reason), cmp.Compare(a.Namespace, b.Namespace))
	})
	var addresses []uint64
	for _, p := range places {
		addresses = append(addresses, p.Location)
	}
	names, err := w.named(slices.Compact(addresses))
	if err != nil {
		w.warn("kernel functions have no names: %v", err)
	}
	of := map[uint32]*[]Drop{0: &r.Unplaced}
	for i, s := range w.spaces {
		of[s.inside.Number()] = &r.Spaces[i].Drops
	}
	for _, p := range places {
		courses := moved([]drops.Place{p}, samples, func(s sample, p drops.Place) uint64 { return s.drops[p] }, 1<<64-1)
		if to := of[p.Namespace]; to != nil && len(courses) == 1 {
			add(to, Drop{Function: cmp.Or(names[p.Location], fmt.Sprintf("%#x", p.Location)), Reason: w.drops.Reason(p.Reason), Course: courses[0]})
		}
	}
	for _, to := range of {
		sorting.StableBy(*to, func(a, b Drop) int { return cmp.Compare(b.Total, a.Total) })
	}
	if n, err := w.drops.Missed(); err == nil && n > 0 {
		w.warn("%d more packets were dropped than the kernel functions show", n)
	}
}

// named finds the names of functions, each once.
func (w *Watch) named(addresses []uint64) (map[uint64]string, error) {
	addresses = slices.DeleteFunc(addresses, func(a uint64) bool { _, is := w.functions[a]; return is })
	if len(addresses) == 0 {
		return w.functions, nil
	}
	found, err := drops.Functions(addresses...)
	if err != nil {
		return w.functions, err
	}
	if w.functions == nil {
		w.functions = map[uint64]string{}
	}
	for _, a := range addresses {
		w.functions[a] = found[a] // "" where it has none
	}
	return w.functions, nil
}

// add joins places of one function that give one reason: it drops at several.
func add(to *[]Drop, d Drop) {
	d.Name = d.Function
	if d.Reason != "" {
		d.Name += ", " + d.Reason
	}
	for i := range *to {
		if o := &(*to)[i]; o.Name == d.Name {
			for at, n := range d.Counts {
				o.Counts[at] += n
			}
			o.Total += d.Total
			return
		}
	}
	*to = append(*to, d)
}
