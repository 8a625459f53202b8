package engine

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"sluice/internal/engine/apply"
	"sluice/internal/language/resolve"
)

// unchanged applies a policy without building it where nothing of what it is made of
// has changed, and nobody has touched the ruleset. The outcome is nil where that cannot
// be told.
func (p *preparation) unchanged(ctx context.Context, o apply.Options) (*apply.Outcome, error) {
	inputs, err := resolve.InputsOf(p.Policy, p.Sources.options(ctx, p.Facts))
	if err != nil {
		return nil, nil //nolint:nilerr // resolving says so at its place
	}
	out, said, err := apply.Unchanged{
		Inputs: p.sum(inputs), SSHClients: apply.SSHClients(p.Facts), Memory: apply.FreeMemory(),
	}.Apply(ctx, p.loading(), o)
	if err != nil || out == nil {
		return nil, err
	}
	for _, text := range said.Notes {
		p.host.note(text)
	}
	for _, text := range said.Warnings {
		p.host.warn(text)
	}
	return out, nil
}

// sum is one hash of everything that decides what a policy becomes on this host:
// the program that compiles it, the figures that it chooses by, the texts of the
// policy, what its names are resolved from, the facts of the host, what its kernel
// can do, the order of rules. Who is logged in is judged apart; how full the table of
// connections is decides nothing. It is "" where that cannot be summed up, and where
// the request asks for what is seldom asked for.
func (p *preparation) sum(in resolve.Inputs) string {
	if p.NoExpect || len(p.Without) > 0 {
		return ""
	}
	facts := p.Facts
	facts.SSHClients, facts.OuterFlows, facts.ConntrackCount = nil, nil, 0
	known, err := json.Marshal(facts)
	if err != nil {
		return ""
	}
	own, err := thisProgram(p.host.Version)
	if err != nil {
		return ""
	}
	path, err := filepath.Abs(p.File)
	if err != nil {
		return ""
	}
	can, err := json.Marshal(p.Can) // in the order of the keys
	if err != nil {
		return ""
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%s\n%s\n%q\n%q\n%s\n%s\n", p.Backend.Name(), own, p.File, path, known, can)
	fmt.Fprintf(&b, "%s\n", p.Costs.Sum)
	for _, name := range slices.Sorted(maps.Keys(p.Profile)) {
		fmt.Fprintf(&b, "profile %q %d\n", name, p.Profile[name])
	}
	texts, _ := p.Policy.Files()
	for _, name := range texts {
		fmt.Fprintf(&b, "policy %q %x\n", name, sha256.Sum256(p.Policy.Text(name)))
	}
	for _, f := range p.Policy.Broken {
		fmt.Fprintf(&b, "broken %q %x %t\n", f.File, f.Sum, f.Kept)
	}
	for _, e := range p.hold {
		fmt.Fprintf(&b, "exception %q %q %q %d %d\n", e.What, e.Set, e.Service, e.Since.Unix(), e.Until.Unix())
	}
	for _, name := range slices.Sorted(maps.Keys(in)) {
		fmt.Fprintf(&b, "%q %q\n", name, in[name])
	}
	for _, name := range slices.Sorted(maps.Keys(p.guarded)) {
		fmt.Fprintf(&b, "guard %q %q\n", name, p.guarded[name])
	}
	sum := sha256.Sum256([]byte(b.String()))
	return hex.EncodeToString(sum[:])
}
