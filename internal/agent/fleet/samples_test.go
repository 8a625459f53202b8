package fleet

import (
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"sluice/internal/fleet/wire"
)

// TestSampled: the controller is told of a minute within half a minute, of the newest one alone,
// with files as the repository names them; one of before is told nothing.
func TestSampled(t *testing.T) {
	play(t, func(t *testing.T, s *stage) {
		m, end := s.member()
		defer end()
		time.Sleep(time.Second)
		told := func() []wire.Sample {
			synctest.Wait()
			s.mu.Lock()
			defer s.mu.Unlock()
			return s.samples
		}
		m.Sampled(wire.Sample{Seconds: 60, New: 1})
		m.Sampled(wire.Sample{Seconds: 60, New: 2, Lines: []wire.SampledLine{{File: filepath.Join(m.folder(7), "parts/10-base.yaml"), Line: 3}, {File: "/srv/" + strings.Repeat("é", 200)}}})
		time.Sleep(sampleJitter)
		got := told()
		if len(got) != 1 || got[0].New != 2 || got[0].Lines[0].File != "parts/10-base.yaml" {
			t.Fatalf("%+v", got)
		}
		if _, err := wire.Encode(&wire.Message{Sample: &got[0]}); err != nil {
			t.Error(err)
		}
		s.set(func() { s.level = wire.LevelQuestions - 1 })
		s.cutAll()
		time.Sleep(5 * time.Minute)
		m.Sampled(wire.Sample{Seconds: 60, New: 3})
		time.Sleep(5 * time.Minute)
		if got := told(); len(got) != 1 {
			t.Errorf("%+v", got)
		}
	})
}
