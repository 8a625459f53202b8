package engine

import (
	"context"
	"time"

	"sluice/internal/base/english"
	"sluice/internal/engine/apply"
	"sluice/internal/prove/expect"
	"sluice/internal/prove/query"
)

// UnmetError says that a policy does not do what it is expected to do, so that it was
// not loaded.
type UnmetError struct{ Failing []expect.Result }

func (e *UnmetError) Error() string {
	return "the policy does not do what it is expected to do: " + english.Plural(len(e.Failing), "expectation") + " would fail"
}

// Apply builds a policy and brings it into the kernel, and keeps it. Where nothing of
// what it is made of has changed, and nobody has touched the ruleset, it is not built.
// The error is an *UnmetError where an expectation fails, a *GuardError where one of the
// host does, an *apply.ManagedError on a host of a fleet, those of Build, and those of
// apply.Host.Apply.
func (h *Host) Apply(ctx context.Context, r Request, o apply.Options) (*apply.Outcome, error) {
	if h.Netns != nil {
		return inside(h, func(h *Host) (*apply.Outcome, error) { return h.Apply(ctx, r, o) })
	}
	file := r.File
	if r.Draft != "" || len(r.Texts) > 0 { // of somebody, wherever it lies
		file = ""
	}
	attach, err := h.MayApply(file, r.Detach)
	if err != nil {
		return nil, err
	}
	out, err := h.apply(ctx, r, o)
	if err != nil {
		attach()
	}
	return out, err
}

func (h *Host) apply(ctx context.Context, r Request, o apply.Options) (*apply.Outcome, error) {
	began := time.Now()
	p, err := h.prepare(ctx, r)
	if err != nil {
		return nil, err
	}
	if out, err := p.unchanged(ctx, o); err != nil || out != nil {
		return out, err
	}
	built, err := p.build(ctx, false)
	if err != nil {
		return nil, err
	}
	for _, text := range built.notes {
		h.note(text)
	}
	for _, text := range built.warnings {
		h.warn(text)
	}
	if len(built.unguarded) > 0 {
		return nil, &GuardError{p.guard.File, built.unguarded}
	}
	if len(built.unmet) > 0 {
		return nil, &UnmetError{built.unmet}
	}
	compiled := time.Since(began)
	looking, enough := context.WithCancel(ctx)
	defer enough()
	meaning := func() ([]query.BriefLine, error) { return nil, nil }
	if !r.NoMeaning {
		meaning = p.meaningMeanwhile(looking, built)
	}
	out, err := p.loading().Apply(ctx, built.input, o)
	if err != nil {
		return nil, err
	}
	if out.Times != nil {
		out.Times.Compiled(compiled)
	}
	if out.Unchanged {
		return out, nil
	}
	if out.Meaning, err = meaning(); err != nil {
		out.Notes = append(out.Notes, unsaid(err, h.Words))
	}
	return out, nil
}

// loading is the host with the backend that the policy was lowered by.
func (p *preparation) loading() *apply.Host { return p.host.With(p.Backend) }
