package cli

import (
	"context"
	"sync"

	"github.com/spf13/cobra"

	"sluice/internal/backend"
	"sluice/internal/base/cache"
	"sluice/internal/engine/apply"
	"sluice/internal/language/policy"
	"sluice/internal/prove/check"
	"sluice/internal/prove/expect"
	"sluice/internal/system/host"
	"sluice/internal/system/kernel/netns"
)

// preparation is a policy that is read, with what it will be compiled from.
type preparation struct {
	cmd  *cobra.Command
	host *apply.Host
	file string
	line pipeline
	can  backend.Capabilities
}

// prepared is a policy that has gone through the whole pipeline.
type prepared struct {
	input    apply.Input
	warnings []string        // what on the host keeps the policy from meaning what it says, and what check warns of
	unmet    []expect.Result // expectations that fail
}

// capabilities asks what the kernel can do, unless it is remembered.
func (o options) capabilities(ctx context.Context) backend.Capabilities {
	return host.RememberedCapabilities(ctx, cache.Below(o.stateDir))
}

// begin reads a policy file and the host side by side.
func begin(ctx context.Context, cmd *cobra.Command, h *apply.Host, file string) (*preparation, error) {
	o := optionsOf(cmd)
	p := &preparation{cmd: cmd, host: h, file: file, line: pipeline{options: o, warn: cmd.ErrOrStderr()}}
	here, err := netns.Here()
	if err != nil {
		return nil, err
	}
	defer here.Close()
	var factsErr error
	var both sync.WaitGroup
	both.Go(func() {
		factsErr = here.Do(func() (err error) { p.line.facts, err = readFacts(ctx, "", o); return err })
	})
	both.Go(func() { p.can = o.capabilities(ctx) })
	p.line.policy, err = policy.Load(file)
	both.Wait()
	if factsErr != nil {
		return nil, factsErr
	}
	h.Pristine(&p.line.facts)
	if err != nil {
		return p, err
	}
	p.line.costs = o.costs()
	if ignored := p.line.costs.ignored; ignored != "" {
		h.Note(ignored)
	}
	h.Backend = o.nftables(p.line.costs.options()...)
	return p, p.optimizing(ctx)
}

// optimizing reads the flags that are about the optimizer. Without --profile the
// rules stay in the order that the running policy has them in.
func (p *preparation) optimizing(ctx context.Context) error {
	var err error
	if p.line.without, err = passesLeftOut(p.cmd); err != nil {
		return err
	}
	from, _ := p.cmd.Flags().GetString("profile")
	switch from {
	case "":
		p.line.profile = p.host.Profile()
	case profileNone:
	case profileRunning:
		p.line.profile, err = p.host.Hits(ctx)
	default:
		p.line.profile, err = readProfile(from)
	}
	return err
}

// finish goes through the rest of the pipeline.
func (p *preparation) finish(ctx context.Context) (*prepared, error) {
	if err := p.line.resolve(ctx, p.file); err != nil {
		return nil, err
	}
	facts := p.line.facts
	findings := check.Run(p.line.resolved, facts)
	if err := check.Errors(findings); err != nil {
		return nil, err
	}
	built, err := p.line.build(p.host.Backend, p.can)
	if err != nil {
		return nil, err
	}
	var results []expect.Result
	if without, _ := p.cmd.Flags().GetBool("no-expect"); !without {
		if results, err = p.line.expectationsOf(ctx, built.Expected); err != nil {
			return nil, err
		}
	}
	settings, notes := apply.Settings(built.Program)
	for _, n := range notes {
		p.host.Note(n)
	}
	files, err := apply.ReadSources(p.line.policy.Files())
	if err != nil {
		return nil, err
	}
	around := facts // what is attached is said, and no part of the generation's facts
	around.ReadAttached()
	warnings := apply.Surroundings(around, built.Program, p.line.policy.Forward != nil)
	for _, f := range findings {
		if f.Severity == check.Warning {
			warnings = append(warnings, f.Pos.String()+": "+f.Message)
		}
	}
	return &prepared{
		input: apply.Input{
			Policy: p.file, Files: files, Program: built.Program, Expected: built.Expected, Artifact: built.Artifact, Profile: p.line.profile,
			Without: p.line.without, Facts: facts,
			SSHClients: apply.SSHClients(facts), Sysctls: settings, Memory: apply.FreeMemory(),
			SSHPorts: apply.SSHPorts(),
			Sources:  p.line.resolved.Inputs,
			Inputs:   p.sum(p.line.resolved.Inputs), Said: apply.Said{Warnings: warnings, Notes: notes},
		},
		warnings: warnings, unmet: unmet(results),
	}, nil
}
