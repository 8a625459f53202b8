package agent

import (
	"context"
	"math"
	"net/http"
	"sync"
	"time"

	"sluice/internal/agent/api"
	"sluice/internal/agent/work"
	"sluice/internal/engine"
	"sluice/internal/fleet/wire"
)

const (
	sampleEvery = time.Minute
	mostSamples = int(24 * time.Hour / sampleEvery)
)

// samples are what a namespace did with packets in the last day, the oldest first.
type samples struct {
	sampler engine.Sampler

	mutex sync.Mutex
	kept  []*engine.Sample
}

// keepSamples takes one each minute, until the namespace ends.
func (s *space) keepSamples() {
	said := ""
	for take := false; ; take = true { // the first look begins the first one
		s.prepareMetrics()
		switch is, err := s.samples.sampler.Look(s.ctx, take); {
		case err != nil && s.ctx.Err() == nil:
			if text := err.Error(); text != said {
				said = text
				s.note(err)
			}
		case is != nil:
			said = ""
			s.samples.mutex.Lock()
			s.samples.kept = append(s.samples.kept, is)
			s.samples.kept = s.samples.kept[max(0, len(s.samples.kept)-mostSamples):]
			s.samples.mutex.Unlock()
			if m := s.inFleet.Load(); m != nil && s.all.fleetMay.Allow(false) {
				m.Sampled(toFleet(is))
			}
		}
		quieten()
		now := time.Now()
		select {
		case <-time.After(now.Truncate(sampleEvery).Add(sampleEvery).Sub(now)):
		case <-s.ctx.Done():
			return
		}
	}
}

// toFleet is a sample as the fleet is told of it.
func toFleet(s *engine.Sample) wire.Sample {
	count := func(n uint64) int64 { return int64(min(n, math.MaxInt64)) } //nolint:gosec // see min
	out := wire.Sample{Seconds: max(1, int(math.Round(s.Seconds))), New: count(s.New), Dropped: count(s.Dropped), Entries: count(s.Entries)}
	for code, n := range s.Countries {
		out.Countries = append(out.Countries, wire.SampledCountry{Country: code, Packets: count(n)})
	}
	for _, l := range s.Lines {
		out.Lines = append(out.Lines, wire.SampledLine{File: l.File, Line: l.Line, Verdict: string(l.Verdict), Packets: count(l.Packets)})
	}
	return out
}

// since are those that ended behind a time, and the one that grows.
func (s *samples) since(ctx context.Context, at time.Time) ([]*engine.Sample, error) {
	out := []*engine.Sample{}
	s.mutex.Lock()
	for _, is := range s.kept {
		if is.Time.Add(time.Duration(is.Seconds * float64(time.Second))).After(at) {
			out = append(out, is)
		}
	}
	s.mutex.Unlock()
	now, err := s.sampler.Look(ctx, false)
	if now != nil {
		out = append(out, now)
	}
	return out, err
}

// Samples gives what the namespace did with packets in the last day.
func (s *server) Samples(_ http.ResponseWriter, r *http.Request, _ string, in api.SamplesParams) {
	q := of(r)
	all, err := q.samples.since(q.Context(), in.Since)
	q.answer(q.w, q.Request).End(api.Samples{Every: sampleEvery.Seconds(), Samples: all}, work.Failed(err, q.Here, nil))
}
