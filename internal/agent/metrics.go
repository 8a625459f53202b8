package agent

import (
	"bytes"
	"context"
	"encoding/json"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"time"

	"sluice/internal/agent/api"
	"sluice/internal/agent/work"
	"sluice/internal/base/exposition"
	"sluice/internal/engine"
)

const (
	scrapeStands = time.Second      // an answer to whoever asks for metrics
	scrapeTime   = 10 * time.Second // at most, for one, and for its reader
)

// newMeter reads the metrics of the namespace.
func (s *space) newMeter() *engine.Meter {
	h := *s.Host
	h.Netns = s.at
	var log *engine.LogCounts
	if s.LogSize != 0 {
		log = &engine.LogCounts{}
	}
	return &engine.Meter{Host: &h, Guards: true, Log: log, Drops: s.dropped, Gauges: func(ctx context.Context) (*engine.Gauged, error) {
		defer quieten()
		result, err := work.Run(ctx, s.Command, work.Order{Operation: "gauges"}, func(api.Line) {})
		if err != nil {
			return nil, err
		}
		var out engine.Gauged
		return &out, json.Unmarshal(result, &out)
	}}
}

// prepareMetrics reads what the metrics of the generation that runs need of it before anybody
// asks. What fails then says so who asks.
func (s *space) prepareMetrics() {
	if free, err := place(s.ctx); err == nil {
		defer free()
		_ = s.meter.Prepare(s.ctx)
	}
}

// scraper has the metrics of all namespaces read, one time for all who ask within
// scrapeStands.
type scraper struct {
	spaces *spaces
	note   func(error)

	mutex sync.Mutex
	read  time.Time
	text  []byte
}

// scrape is the text; it is not changed afterwards.
func (s *scraper) scrape() []byte {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	if s.text != nil && time.Since(s.read) < scrapeStands {
		return s.text
	}
	ctx, stop := context.WithTimeout(context.Background(), scrapeTime)
	defer stop()
	defer quieten()
	all := s.spaces.all()
	var several [][]exposition.Family
	for _, name := range slices.Sorted(maps.Keys(all)) {
		families, err := all[name].meter.Read(ctx)
		if err != nil {
			s.note(err)
			families = engine.Unread(all[name].Host.Namespace)
		}
		several = append(several, families)
	}
	for name := range s.spaces.whyNot() {
		if name == own {
			name = ""
		}
		several = append(several, engine.Unread(name))
	}
	text := bytes.NewBuffer(make([]byte, 0, len(s.text)+len(s.text)/8))
	_ = exposition.Write(text, engine.Bounded(exposition.Join(several...))) // to memory
	s.read, s.text = time.Now(), text.Bytes()
	return s.text
}

func (s *scraper) answer(w http.ResponseWriter) {
	text := s.scrape()
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(scrapeTime)) // which a test's writer has not
	w.Header().Set("Content-Type", exposition.ContentType)
	w.Header().Set("Content-Length", strconv.Itoa(len(text)))
	_, _ = w.Write(text)
}

// Scrape says what runs in all namespaces, for Prometheus.
func (s *server) Scrape(w http.ResponseWriter, _ *http.Request) { s.scraper.answer(w) }

// Metrics says what runs in one.
func (s *server) Metrics(_ http.ResponseWriter, r *http.Request, _ string) {
	defer quieten()
	q := of(r)
	out, err := q.meter.Read(q.Context())
	if err == nil {
		out = engine.Bounded(out)
	}
	q.answer(q.w, q.Request).End(out, work.Failed(err, q.Here, nil))
}
