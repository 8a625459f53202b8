package fleet

import (
	"context"
	"strings"
	"time"

	"sluice/internal/fleet/wire"
)

// sampleJitter is the time behind the end of a minute in which hosts tell of it.
const sampleJitter = 30 * time.Second

// Sampled has the controller be told what the host did with packets in a minute, unless a newer
// one comes first. Files of its lines may have their whole path.
func (m *Member) Sampled(s wire.Sample) {
	m.once.Do(m.begun)
	for i := range s.Lines {
		name := m.known(s.Lines[i].File)
		if len(name) > wire.MostSampledFile { // it is none of a bundle
			name = strings.ToValidUTF8(name[len(name)-wire.MostSampledFile:], "")
		}
		s.Lines[i].File = name
	}
	m.mu.Lock()
	m.sample = &s
	m.mu.Unlock()
	nudge(m.sampled)
}

// Examined has the controller be told what is wrong with the host.
func (m *Member) Examined(f wire.Findings) {
	m.once.Do(m.begun)
	m.mu.Lock()
	s := m.stream
	m.mu.Unlock()
	if s == nil || s.Level() < wire.LevelQuestions {
		return // it is told in an hour
	}
	if err := m.send(context.Background(), s, &wire.Message{Findings: &f}); err != nil {
		s.Cut()
	}
}

// tellSamples sends them, each host at a time of its own.
func (m *Member) tellSamples(ctx context.Context, s Stream) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-m.sampled:
		}
		sleep(ctx, jitter(sampleJitter))
		m.mu.Lock()
		is := m.sample
		m.sample = nil
		m.mu.Unlock()
		if is == nil || ctx.Err() != nil {
			continue
		}
		if err := m.send(ctx, s, &wire.Message{Sample: is}); err != nil {
			return err
		}
	}
}
