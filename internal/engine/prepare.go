package engine

import (
	"context"
	"slices"
	"sync"

	"sluice/internal/backend"
	"sluice/internal/engine/apply"
	"sluice/internal/language/policy"
	"sluice/internal/language/resolve"
	"sluice/internal/program"
	"sluice/internal/prove/check"
	"sluice/internal/prove/expect"
	"sluice/internal/system/host"
)

// Request is which policy is to be loaded, and how it is built.
type Request struct {
	File    string       // the policy
	Files   policy.Files // where it is read from; nil: the disk
	Draft   string       // a file that is read in place of DraftOf, under its name; "": none
	DraftOf string       // the policy, where it is "", or one of the files that it includes
	// Texts are read in place of files of these names, or of such as are not there, but not
	// of those of sets.
	Texts   map[string][]byte
	Offline bool     // no list is asked for: their copies are used
	Without []string // passes of the optimizer that are left out
	Order   Order
	Hits    map[string]uint64 // packets by counter, for ByHits
	// NoExpect loads the policy whatever is expected of it.
	NoExpect  bool
	NoMeaning bool // Outcome.Meaning is not asked for
	// Detach takes a host of a fleet out of the fleet's hands: see apply.Host.MayApply.
	Detach bool
}

// load reads the policy with those texts of parts that are broken which the running policy
// has of them. What these expect is not proved: somebody else may have broken it.
func (r Request) load(h *Host, refused map[string]policy.Errors) (*policy.Policy, error) {
	p, err := policy.Reading{Files: r.Files, Draft: r.Draft, DraftOf: r.DraftOf, Edited: r.Texts, Parts: true, Good: h.lastGood(r.File), Refused: refused}.Load(r.File)
	if err == nil {
		for _, b := range p.Broken {
			p.Expect = slices.DeleteFunc(p.Expect, func(x *policy.Expectation) bool { return x.Pos.File == b.File })
		}
	}
	return p, err
}

// Order is what rules that may change places are ordered by.
type Order int

// Orders.
const (
	AsRunning Order = iota // as those of the running policy are
	ByRunning              // by the counters of the running policy
	ByHits                 // by Request.Hits
	AsWritten              // they stay in the policy's order
)

// preparation is a policy that is read, with what it will be built from.
type preparation struct {
	Request
	Policy  *policy.Policy
	Facts   host.Facts
	Can     backend.Capabilities
	Costs   Costs
	Profile map[string]uint64 // that rules are ordered by
	Backend backend.Backend   // with the costs
	Sources *Sources
	guard   *policy.Policy // of the host; nil: there is none
	guarded resolve.Inputs // its text, and what its names are resolved from
	// Exceptions are those before the rules of Policy, once it is built: of those that hold, and
	// refused says which of these it forbids.
	Exceptions []apply.Exception
	hold       []apply.Exception
	refused    string
	host       *Host
}

// prepared is a policy that is built.
type prepared struct {
	*Built
	input    apply.Input
	notes    []string
	warnings []string        // what on the host keeps the policy from meaning what it says, and what check warns of
	unmet    []expect.Result // expectations that fail
	// unguarded are those of the host's guard.
	unguarded []expect.Result
}

// prepare reads a policy and the host side by side.
func (h *Host) prepare(ctx context.Context, r Request) (*preparation, error) {
	if h.Netns != nil {
		return inside(h, func(h *Host) (*preparation, error) { return h.prepare(ctx, r) })
	}
	p := &preparation{Request: r, Sources: h.sources(), host: h}
	p.Sources.Offline = r.Offline
	var reading sync.WaitGroup
	var err error
	reading.Go(func() { p.Policy, err = r.load(h, nil) })
	var factsErr error
	p.Facts, factsErr = Facts(ctx, h.State, h.Namespace, h.Session) // on this thread, which may be in another namespace
	p.Can = Capabilities(ctx, h.State, h.Backend)
	reading.Wait()
	if factsErr != nil {
		return nil, factsErr
	}
	if err != nil {
		return nil, err
	}
	if p.hold, err = h.Exceptions(); err != nil {
		return nil, err
	}
	if err := p.readGuard(ctx, h.Guard); err != nil {
		return nil, err
	}
	h.Pristine(&p.Facts)
	p.Backend, p.Costs = h.calibrated(h.Backend)
	switch r.Order {
	case AsRunning:
		p.Profile = h.Profile()
	case ByRunning:
		p.Profile, err = h.Hits(ctx)
	case ByHits:
		p.Profile = r.Hits
	}
	return p, err
}

// build builds the policy, and gathers what loading it needs to know. What shows only then
// to be wrong with a part that may be broken is taken for that.
func (p *preparation) build(ctx context.Context, priced bool) (*prepared, error) {
	for refused := map[string]policy.Errors{}; ; {
		out, err := p.buildWhole(ctx, priced)
		if !p.refuse(refused, out, err) {
			if err != nil {
				return nil, err
			}
			return out, p.gather(out)
		}
		if p.Policy, err = p.load(p.host, refused); err != nil {
			return nil, err
		}
	}
}

func (p *preparation) buildWhole(ctx context.Context, priced bool) (*prepared, error) {
	if err := p.except(ctx); err != nil {
		return nil, err
	}
	built, err := Build(ctx, p.Policy, p.Facts, p.Can, Options{
		Sources: p.Sources, Backend: p.Backend, Without: p.Without, Profile: p.Profile, Priced: priced,
	})
	if err != nil {
		return nil, err
	}
	out := &prepared{Built: built}
	if out.unguarded, err = p.Sources.unguarded(ctx, p.guard, built.Resolved, built.Expected); err != nil {
		return nil, err
	}
	if !p.NoExpect && len(p.Policy.Expect) > 0 {
		out.unmet, err = p.Sources.unmet(ctx, built.Resolved, built.Expected)
	}
	return out, err
}

// gather adds what loading a policy needs to know.
func (p *preparation) gather(out *prepared) error {
	built := out.Built
	settings, notes := apply.Settings(built.Program)
	out.notes = notes
	files, err := sourcesIn(p.Policy)
	if err != nil {
		return err
	}
	around := p.Facts // what is attached is said, and no part of the generation's facts
	around.ReadAttached()
	out.warnings = append(p.brokenText(), apply.Surroundings(around, built.Program, p.Policy.Forward != nil)...)
	out.warnings = append(out.warnings, warnings(built.Findings)...)
	if p.guard != nil {
		out.warnings = append(out.warnings, warnings(Warnings(p.guard.OldWords))...)
	}
	for _, set := range homeless(p.Policy, p.hold) {
		out.warnings = append(out.warnings, set+": commands added to this set, and the policy has no living set of that name: their entries are kept, but not in force")
	}
	if p.refused != "" {
		out.warnings = append(out.warnings, p.refused)
	}
	out.input = apply.Input{
		Policy: p.File, Files: files, Broken: broken(p.Policy), Program: built.Program, Expected: built.Expected, Artifact: built.Artifact, Profile: p.Profile,
		Without: p.Without, Facts: p.Facts, Exceptions: p.Exceptions, Hold: p.hold,
		SSHClients: apply.SSHClients(p.Facts), Sysctls: settings, Memory: apply.FreeMemory(),
		SSHPorts: apply.SSHPorts(),
		Sources:  built.Resolved.Inputs,
		Inputs:   p.sum(built.Resolved.Inputs), Said: apply.Said{Warnings: out.warnings, Notes: notes},
	}
	return nil
}

// unmet proves the expectations of a policy, and gives those that fail. Whom a command
// lets in or has added to a set they are not about.
func (s *Sources) unmet(ctx context.Context, r *resolve.Resolved, expected *program.Program) ([]expect.Result, error) {
	r, expected, err := unexcepted(r, expected)
	if err != nil {
		return nil, err
	}
	c := meaningOf(r, expected)
	c.Stop = ctx.Done()
	out, err := failing(expect.Judge(c, s.Countries))
	if err != nil && ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	return out, err
}

// unexcepted is a policy with its program as it is without what commands let in.
func unexcepted(r *resolve.Resolved, expected *program.Program) (*resolve.Resolved, *program.Program, error) {
	own := r.Unexcepted()
	if own == r {
		return r, expected, nil
	}
	expected, err := expectedOf(own)
	return own, expected, err
}

func failing(results []expect.Result, err error) ([]expect.Result, error) {
	return slices.DeleteFunc(results, func(r expect.Result) bool { return r.Holds() }), err
}

// warnings are those among findings, with their places.
func warnings(findings []check.Finding) (out []string) {
	for _, f := range findings {
		if f.Severity == check.Warning {
			out = append(out, f.Pos.String()+": "+f.Message)
		}
	}
	return out
}
