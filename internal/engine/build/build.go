// Package build is the one way of a resolved policy to what a kernel runs:
// compile, optimize, lower. Commands, the workers of stress and the benchmarks
// call it, so that what one of them loads, explains or proves is what all do.
package build

import (
	"sluice/internal/backend"
	"sluice/internal/language/resolve"
	"sluice/internal/program"
	"sluice/internal/program/compile"
	"sluice/internal/program/optimize"
)

// Options is how a policy is built.
type Options struct {
	Can     backend.Capabilities // of the kernel that the rules are for
	Without []string             // passes of the optimizer that are left out, by name
	Profile map[string]uint64    // packets that counters have counted, by name; nil: rules stay in the policy's order
	// Compiled, where set, sees the program that the compiler made. It may replace
	// the program and ask the optimizer to report.
	Compiled func(*program.Program, *optimize.Options) (*program.Program, error)
}

// Built is a policy as it is loaded.
type Built struct {
	Program *program.Program
	// Expected is the same policy with only the passes that it needs: what a kernel is
	// held against, so that the optimizer never vouches for itself.
	Expected *program.Program
	Artifact backend.Artifact
}

// Build goes the whole way. The error is the backend's refusal, by rule, or names
// what no backend could say.
func Build(r *resolve.Resolved, b backend.Backend, opt Options) (*Built, error) {
	expected, err := Expected(r)
	if err != nil {
		return nil, err
	}
	p, err := Program(r, opt)
	if err != nil {
		return nil, err
	}
	artifact, err := b.Lower(p, opt.Can)
	if err != nil {
		return nil, err
	}
	return &Built{Program: p, Expected: expected, Artifact: artifact}, nil
}

// Program is what the policy becomes before a backend sees it.
func Program(r *resolve.Resolved, opt Options) (*program.Program, error) {
	p, err := compile.Compile(r)
	if err != nil {
		return nil, err
	}
	tuned := optimize.Options{
		Without: opt.Without, Profile: opt.Profile, NoElementCounters: opt.Can[backend.SetElementCounters] == backend.No,
	}
	if opt.Compiled != nil {
		if p, err = opt.Compiled(p, &tuned); err != nil {
			return nil, err
		}
	}
	if err := optimize.Run(p, tuned); err != nil {
		return nil, err
	}
	return p, nil
}

// Expected is the program of the policy with only the passes that it needs.
func Expected(r *resolve.Resolved) (*program.Program, error) {
	return Program(r, Options{Without: optimize.Optional()})
}
