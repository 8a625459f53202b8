package agent

import (
	"math/rand/v2"
	"strings"
	"time"

	"sluice/internal/agent/work"
	"sluice/internal/doctor"
	"sluice/internal/fleet/wire"
)

// doctorEvery is how often a host of a fleet is examined, each at a time of its own.
const doctorEvery = time.Hour

// tellFindings has the fleet be told what is wrong with the host, until the namespace ends. A host
// that is in no fleet is not examined.
func (s *space) tellFindings() {
	for {
		select {
		case <-s.ctx.Done():
			return
		case <-time.After(doctorEvery/2 + rand.N(doctorEvery)): //nolint:forbidigo,gosec // hosts have to differ, and nobody gains by guessing it
		}
		m := s.inFleet.Load()
		if m == nil || !s.all.fleetMay.Allow(false) {
			continue
		}
		is, err := worked[*doctor.Report](s.ctx, s, work.Order{Operation: "doctor"})
		if err != nil {
			if s.ctx.Err() == nil {
				s.note(err)
			}
			continue
		}
		m.Examined(worst(is.Findings))
	}
}

// worst are the first findings, as the fleet is told of them.
func worst(all []doctor.Finding) wire.Findings {
	out := wire.Findings{Findings: []wire.Finding{}}
	for _, f := range all[:min(len(all), wire.MostFindings)] {
		text := f.Text
		if len(text) > wire.MostFindingText {
			text = strings.ToValidUTF8(text[:wire.MostFindingText-len("…")], "") + "…"
		}
		out.Findings = append(out.Findings, wire.Finding{Check: f.Check, Severity: string(f.Severity), Text: text})
	}
	return out
}
