package engine

import (
	"context"
	"slices"

	"sluice/internal/backend"
	"sluice/internal/language/policy"
	"sluice/internal/language/resolve"
	"sluice/internal/program"
	"sluice/internal/program/compile"
	"sluice/internal/program/optimize"
	"sluice/internal/prove/check"
	"sluice/internal/prove/estimate"
	"sluice/internal/system/host"
)

// Options is how a policy is built.
type Options struct {
	Sources *Sources
	Backend backend.Backend   // nil: Program runs the passes that any backend may have
	Without []string          // passes of the optimizer that are left out, by name, beside those that the backend leaves out
	Profile map[string]uint64 // packets that counters have counted, by name; nil: rules stay in the policy's order
	Priced  bool              // Built.Mix is asked for
	// Unchecked builds whatever check says of the policy, and finds nothing.
	Unchecked bool
	// Compiled, where set, sees the program that the compiler made. It may replace
	// the program and ask the optimizer to report.
	Compiled func(*program.Program, *optimize.Options) (*program.Program, error)
}

// Built is a policy as it is loaded.
type Built struct {
	Resolved *resolve.Resolved
	Findings []check.Finding // about the policy on this host
	Program  *program.Program
	// Expected is the same policy with only the passes that it needs: what a kernel is
	// held against, so that the optimizer never vouches for itself.
	Expected *program.Program
	Artifact backend.Artifact
	Mix      []estimate.Class // of the packets of the policy, with Options.Priced
}

// Build goes the whole way of a policy for a host with these facts and a kernel with
// these capabilities. The error is of a name that cannot be resolved; of findings that are
// errors (check.Errors); the backend's refusal, by rule; or names what no backend could
// say. With an error Built is what was reached.
func Build(ctx context.Context, p *policy.Policy, facts host.Facts, can backend.Capabilities, o Options) (*Built, error) {
	resolved, err := o.Sources.Resolve(ctx, p, facts)
	out := &Built{Resolved: resolved}
	if err != nil {
		return out, err
	}
	if !o.Unchecked {
		out.Findings = append(OldWords(p, nil), check.Run(resolved, facts)...)
		if err := check.Errors(out.Findings); err != nil {
			return out, err
		}
	}
	return out, out.lower(can, o)
}

// lower makes the rest of a policy that is resolved.
func (b *Built) lower(can backend.Capabilities, o Options) error {
	var err error
	if b.Expected, err = expectedOf(b.Resolved); err != nil {
		return err
	}
	look := o.Compiled
	o.Compiled = func(compiled *program.Program, opt *optimize.Options) (*program.Program, error) {
		if o.Priced {
			b.Mix = estimate.MixOf(compiled, o.Profile)
		}
		if look == nil {
			return compiled, nil
		}
		return look(compiled, opt)
	}
	if b.Program, err = Program(b.Resolved, can, o); err != nil {
		return err
	}
	b.Artifact, err = o.Backend.Lower(b.Program, can)
	return err
}

// Program is what a policy becomes before a backend sees it.
func Program(r *resolve.Resolved, can backend.Capabilities, o Options) (*program.Program, error) {
	p, err := compile.Compile(r)
	if err != nil {
		return nil, err
	}
	tuned := optimize.Options{Without: o.Without, Profile: o.Profile}
	if o.Backend != nil {
		wants := o.Backend.Passes(can)
		tuned.Without, tuned.NoElementCounters = slices.Concat(o.Without, wants.Without), wants.NoElementCounters
	}
	if o.Compiled != nil {
		if p, err = o.Compiled(p, &tuned); err != nil {
			return nil, err
		}
	}
	if err := optimize.Run(p, tuned); err != nil {
		return nil, err
	}
	return p, nil
}

// expectedOf is the program of a policy with only the passes that it needs.
func expectedOf(r *resolve.Resolved) (*program.Program, error) {
	return Program(r, nil, Options{Without: optimize.Optional()})
}
