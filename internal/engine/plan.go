package engine

import (
	"context"
	"slices"
	"time"

	"sluice/internal/base/english"
	"sluice/internal/engine/apply"
	"sluice/internal/prove/query"
)

// Plan is what an apply would do, and what packets would pay.
type Plan struct {
	*apply.Plan
	// Meaning is what opens and closes against the policy that runs; none where none runs.
	Meaning []query.BriefLine `json:"meaning,omitempty"`
	Packets *Price            `json:"packets,omitempty"`
}

// Plan builds a policy and says what Apply would do. It changes nothing.
func (h *Host) Plan(ctx context.Context, r Request) (*Plan, error) {
	if h.Netns != nil {
		return inside(h, func(h *Host) (*Plan, error) { return h.Plan(ctx, r) })
	}
	began := time.Now()
	quiet := *h
	aside := *h.Host
	var notes []string
	aside.Note = func(text string) { notes = append(notes, text) }
	quiet.Host = &aside
	p, err := quiet.prepare(ctx, r)
	if err != nil {
		return nil, err
	}
	built, err := p.build(ctx, true)
	if err != nil {
		return nil, err
	}
	compiled := time.Since(began)
	p.host = h
	out, err := p.loading().Plan(ctx, built.input)
	if err != nil {
		return nil, err
	}
	if out.Times != nil {
		out.Times.Compiled(compiled)
	}
	out.Notes = append(append(out.Notes, notes...), built.notes...)
	out.Warnings = append(out.Warnings, built.warnings...)
	for _, r := range slices.Concat(built.unguarded, built.unmet) {
		out.Warnings = append(out.Warnings, r.Expectation.Pos.String()+": "+r.Unmet())
	}
	if n := len(built.unguarded); n > 0 && out.Refused == "" {
		out.Refused = (&GuardError{p.guard.File, built.unguarded}).Error()
	}
	if n := len(built.unmet); n > 0 && out.Refused == "" {
		out.Refused = english.Plural(n, "expectation") + " of the policy would fail"
	}
	meaning, err := p.meaning(ctx, p.Sources, built)
	if err != nil {
		out.Notes = append(out.Notes, unsaid(err, h.Words))
	}
	return &Plan{Plan: out, Meaning: meaning, Packets: priceOf(p.Backend, built.Built, p.Costs)}, nil
}
