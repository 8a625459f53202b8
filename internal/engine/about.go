package engine

import (
	"context"
	"time"

	"sluice/internal/doctor"
	"sluice/internal/language/policy"
	"sluice/internal/prove/check"
	"sluice/internal/prove/query"
	"sluice/internal/system/host"
)

// Checked is what check finds in a policy.
type Checked struct {
	File     string          `json:"file"`
	Findings []check.Finding `json:"findings"`
	More     int             `json:"more,omitempty"` // that are not named
}

// mostFindings is how many are named: a text of 10 MB may be wrong in each line.
const mostFindings = 1000

// Check finds what is wrong with a policy that would be loaded here. The error is for what
// keeps it from being looked at. No list is asked for.
func (h *Host) Check(ctx context.Context, r Request) (*Checked, error) {
	if h.Netns != nil {
		return inside(h, func(h *Host) (*Checked, error) { return h.Check(ctx, r) })
	}
	found, err := h.check(ctx, r)
	named := min(len(found), mostFindings)
	return &Checked{File: r.File, Findings: append([]check.Finding{}, found[:named]...), More: len(found) - named}, err
}

func (h *Host) check(ctx context.Context, r Request) ([]check.Finding, error) {
	s, err := h.about(ctx, r)
	if err != nil {
		return Findings(err)
	}
	if s.Guard, err = ReadGuard(h.Guard); err != nil {
		return Findings(err)
	}
	return s.Check(ctx)
}

// Running stands for the policy that runs, in place of a file.
const Running = "running"

// Diff says what opens and closes where a policy is loaded in place of the one that runs.
// No list is asked for.
func (h *Host) Diff(ctx context.Context, r Request) (*query.Report, error) {
	if h.Netns != nil {
		return inside(h, func(h *Host) (*query.Report, error) { return h.Diff(ctx, r) })
	}
	next, err := h.about(ctx, r)
	if err != nil {
		return nil, err
	}
	d, err := Compare(ctx, next.Sources, next.Facts, func(name string) (*Subject, error) {
		if name == Running {
			return h.Running(next.Sources)
		}
		return next, nil
	}, Running, r.File)
	if err != nil {
		return nil, err
	}
	out := d.Report(Running, r.File)
	return &out, nil
}

// Map says from which countries connections of a service may begin by a policy that would be
// loaded here, or by the one that runs where there is no request. No list is asked for.
func (h *Host) Map(ctx context.Context, r *Request, w query.Words) (*query.Map, error) {
	if h.Netns != nil {
		return inside(h, func(h *Host) (*query.Map, error) { return h.Map(ctx, r, w) })
	}
	s, c, err := h.meant(ctx, r)
	if err != nil {
		return nil, err
	}
	d, err := s.Sources.Countries()
	if err != nil {
		return nil, err
	}
	atlas, err := query.NewAtlas(d)
	if err != nil {
		return nil, err
	}
	out, err := query.MapOf(ctx, c, w, atlas)
	return out, tooMuch(err)
}

// Reach says who reaches what by a policy that would be loaded here, or by the one that runs
// where there is no request: of one service, or of those that its rules name. No list is asked
// for.
func (h *Host) Reach(ctx context.Context, r *Request, service string) (*query.Matrix, error) {
	if h.Netns != nil {
		return inside(h, func(h *Host) (*query.Matrix, error) { return h.Reach(ctx, r, service) })
	}
	_, c, err := h.meant(ctx, r)
	if err != nil {
		return nil, err
	}
	out, err := query.MatrixOf(ctx, c, query.Words{Service: service})
	return out, tooMuch(err)
}

// Facts is what this host is, with its routes and the servers that it asks by itself.
func (h *Host) Facts(ctx context.Context) (*host.Facts, error) {
	if h.Netns != nil {
		return inside(h, func(h *Host) (*host.Facts, error) { return h.Facts(ctx) })
	}
	facts, err := Facts(ctx, h.State, h.Namespace, h.Session)
	if err != nil {
		return nil, err
	}
	facts.ReadRouting()
	facts.ReadServers(ctx, 0)
	return &facts, nil
}

// Doctor finds what makes this host's network slow or lossy, in the time that rates are
// counted for.
func (h *Host) Doctor(ctx context.Context, window time.Duration) (*doctor.Report, error) {
	if h.Netns != nil {
		return inside(h, func(h *Host) (*doctor.Report, error) { return h.Doctor(ctx, window) })
	}
	o := doctor.Options{Window: window, Namespace: h.Namespace}
	if t, err := h.Tuning(); err == nil { // who may not read it hears of what is fixed too
		o.Since = t.TableSince()
	}
	return doctor.Examine(ctx, o)
}

// meant is a policy that would be loaded here, or without a request the one that runs, with
// what it means where this host's routes lead.
func (h *Host) meant(ctx context.Context, r *Request) (*Subject, query.Compiled, error) {
	var s *Subject
	var err error
	if r != nil {
		s, err = h.about(ctx, *r)
	} else {
		from := h.sources()
		from.Offline = true
		s, err = h.asked(ctx, from)
	}
	if err != nil {
		return nil, query.Compiled{}, err
	}
	s.Facts.ReadRouting()
	c, err := s.Meaning(ctx)
	return s, c, err
}

// about is a policy that is asked about before it is loaded. No list is asked for.
func (h *Host) about(ctx context.Context, r Request) (*Subject, error) {
	p, err := policy.Reading{Files: r.Files, Draft: r.Draft, DraftOf: r.DraftOf, Edited: r.Texts}.Load(r.File)
	if err != nil {
		return nil, err
	}
	from := h.sources()
	from.Offline = true
	facts, err := Facts(ctx, h.State, h.Namespace, h.Session)
	return &Subject{Policy: p, Facts: facts, Sources: from}, err
}
