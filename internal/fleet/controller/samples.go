package controller

import (
	"cmp"
	"maps"
	"math"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"sluice/internal/base/selector"
	"sluice/internal/fleet/api"
	"sluice/internal/fleet/store"
	"sluice/internal/fleet/wire"
)

// How long samples are kept, in minutes: sums of the fleet, and of each host.
const (
	keptSums  = 24 * 60
	keptHours = 60
)

// How many countries and lines a sum has, of which an answer has those that have the most.
const (
	mostSummed        = 256
	mostSampledCodes  = 32
	mostSampledLines  = 16
	sampleSeconds     = 60
	mostSampledOfHost = math.MaxUint32
)

// samples are what hosts did with packets, by the minute before the one in which they said so: their
// clocks may be wrong. They are in memory alone.
type samples struct {
	mutex sync.Mutex
	sums  [keptSums]sum
	hosts map[string]*[keptHours]hostSample
}

// sum is a minute of all hosts.
type sum struct {
	minute                int64 // since 1970; another one's place is free
	hosts                 int
	new, dropped, entries int64
	countries             map[string]int64
	lines                 map[sampledLine]int64
}

type sampledLine struct {
	file    string
	line    int
	verdict string
}

// hostSample is a minute of one.
type hostSample struct{ minute, new, dropped, entries uint32 }

// says adds what a host says. Of one minute it says one thing.
func (s *samples) says(host string, is *wire.Sample, now time.Time) {
	minute := now.Unix()/sampleSeconds - 1
	s.mutex.Lock()
	defer s.mutex.Unlock()
	if s.hosts == nil {
		s.hosts = map[string]*[keptHours]hostSample{}
	}
	hour := s.hosts[host]
	if hour == nil {
		hour = &[keptHours]hostSample{}
		s.hosts[host] = hour
	}
	own := &hour[minute%keptHours]
	if int64(own.minute) == minute {
		return
	}
	small := func(n int64) uint32 { return uint32(min(n, mostSampledOfHost)) }             //nolint:gosec // see min, and wire
	*own = hostSample{uint32(minute), small(is.New), small(is.Dropped), small(is.Entries)} //nolint:gosec // until 10136
	all := &s.sums[minute%keptSums]
	if all.minute != minute {
		*all = sum{minute: minute, countries: map[string]int64{}, lines: map[sampledLine]int64{}}
	}
	all.hosts++ // of which none makes a sum overflow
	all.new += int64(own.new)
	all.dropped += int64(own.dropped)
	all.entries += int64(own.entries)
	for _, c := range is.Countries {
		add(all.countries, c.Country, int64(small(c.Packets)))
	}
	for _, l := range is.Lines {
		add(all.lines, sampledLine{l.File, l.Line, l.Verdict}, int64(small(l.Packets)))
	}
}

// add adds as long as there are not too many.
func add[K comparable](to map[K]int64, key K, n int64) {
	if _, has := to[key]; has || len(to) < mostSummed {
		to[key] += n
	}
}

// gone forgets hosts that are no more.
func (s *samples) gone(there func(host string) bool) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	maps.DeleteFunc(s.hosts, func(host string, _ *[keptHours]hostSample) bool { return !there(host) })
}

// all are the sums of the fleet that ended behind a time.
func (s *samples) all(now, since time.Time) []api.FleetSample {
	out := []api.FleetSample{}
	s.mutex.Lock()
	defer s.mutex.Unlock()
	for minute := now.Unix()/sampleSeconds - keptSums; minute < now.Unix()/sampleSeconds; minute++ {
		is := &s.sums[minute%keptSums]
		if is.minute != minute || !ends(minute).After(since) {
			continue
		}
		one := api.FleetSample{Time: ends(minute - 1), Seconds: sampleSeconds, New: is.new, Dropped: is.dropped, Entries: is.entries, Hosts: is.hosts, Countries: map[string]int64{}, Lines: []api.FleetSampledLine{}}
		for _, code := range most(is.countries, mostSampledCodes, strings.Compare) {
			one.Countries[code] = is.countries[code]
		}
		for _, l := range most(is.lines, mostSampledLines, func(a, b sampledLine) int {
			return cmp.Or(cmp.Compare(a.file, b.file), cmp.Compare(a.line, b.line), cmp.Compare(a.verdict, b.verdict))
		}) {
			one.Lines = append(one.Lines, api.FleetSampledLine{File: l.file, Line: l.line, Verdict: l.verdict, Packets: is.lines[l]})
		}
		out = append(out, one)
	}
	return out
}

// some are the sums of those hosts that ended behind a time.
func (s *samples) some(now, since time.Time, of func(host string) bool) []api.FleetSample {
	sums := [keptHours]api.FleetSample{}
	first := now.Unix()/sampleSeconds - keptHours
	s.mutex.Lock()
	defer s.mutex.Unlock()
	for host, hour := range s.hosts {
		if !of(host) {
			continue
		}
		for i := range hour {
			if at := int64(hour[i].minute) - first; at >= 0 && at < keptHours {
				sums[at].Hosts++
				sums[at].New += int64(hour[i].new)
				sums[at].Dropped += int64(hour[i].dropped)
				sums[at].Entries += int64(hour[i].entries)
			}
		}
	}
	out := []api.FleetSample{}
	for i, is := range sums {
		minute := first + int64(i)
		if is.Hosts == 0 || !ends(minute).After(since) {
			continue
		}
		is.Time, is.Seconds, is.Countries, is.Lines = ends(minute-1), sampleSeconds, map[string]int64{}, []api.FleetSampledLine{}
		out = append(out, is)
	}
	return out
}

func ends(minute int64) time.Time { return time.Unix((minute+1)*sampleSeconds, 0).UTC() }

// most are the keys that have the most.
func most[K comparable](of map[K]int64, n int, order func(a, b K) int) []K {
	keys := slices.SortedFunc(maps.Keys(of), func(a, b K) int { return cmp.Or(cmp.Compare(of[b], of[a]), order(a, b)) })
	return keys[:min(len(keys), n)]
}

// selects says whether a host that is enrolled is one of a selector.
func selects(only *selector.Selector, hosts map[string]store.Host) func(host string) bool {
	return func(id string) bool {
		h, has := hosts[id]
		return has && h.Revoked.IsZero() && (only == nil || only.Match(named(id, h.Labels)))
	}
}

// Samples says what hosts did with packets.
func (o operator) Samples(w http.ResponseWriter, r *http.Request, params api.SamplesParams) {
	only, err := as(r).hosts(params.Hosts)
	if err != nil {
		o.done(w, nil, err)
		return
	}
	hosts := o.view.Load().hosts
	o.samples.gone(selects(nil, hosts))
	out := api.FleetSamples{Every: sampleSeconds}
	if only == nil {
		out.Samples = o.samples.all(o.Now(), params.Since)
	} else {
		out.Hosts = only.String()
		out.Samples = o.samples.some(o.Now(), params.Since, selects(only, hosts))
	}
	o.done(w, out, nil)
}
