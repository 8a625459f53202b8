package cli

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/pflag"
	"golang.org/x/sys/unix"

	"sluice"
	"sluice/internal/engine/apply"
	"sluice/internal/language/resolve"
)

// meansNothing are the flags of apply that leave alone what a policy becomes.
// Another one keeps an apply from being told unchanged without compiling.
var meansNothing = []string{"json", "state-dir", "netns", "wait", "confirm", "no-confirm", "force", "cut", "no-verify", "profile"}

// applyUnchanged applies a policy without compiling it where nothing of what it
// is made of has changed, and nobody has touched the ruleset. The outcome is nil
// where that cannot be told.
func (p *preparation) applyUnchanged(ctx context.Context, o apply.Options) (*apply.Outcome, error) {
	inputs, err := resolve.InputsOf(p.line.policy, p.line.sources(ctx))
	if err != nil {
		return nil, nil //nolint:nilerr // resolving says so at its place
	}
	out, said, err := p.host.ApplyUnchanged(ctx, apply.Unchanged{
		Inputs: p.sum(inputs), SSHClients: apply.SSHClients(p.line.facts), Memory: apply.FreeMemory(),
	}, o)
	if err != nil || out == nil {
		return nil, err
	}
	for _, text := range said.Notes {
		p.host.Note(text)
	}
	for _, text := range said.Warnings {
		warn(p.cmd.ErrOrStderr(), text)
	}
	return out, nil
}

// sum is one hash of everything that decides what a policy becomes on this host:
// the program that compiles it, the figures that it chooses by, the texts of the
// policy, what its names are resolved from, the facts of the host, what its kernel
// can do, the flags. Who is logged in is judged apart; how full the table of
// connections is decides nothing. It is "" where that cannot be summed up.
func (p *preparation) sum(in resolve.Inputs) string {
	facts := p.line.facts
	facts.SSHClients, facts.OuterFlows, facts.ConntrackCount = nil, nil, 0
	known, err := json.Marshal(facts)
	if err != nil {
		return ""
	}
	own, err := thisProgram()
	if err != nil {
		return ""
	}
	path, err := filepath.Abs(p.file)
	if err != nil {
		return ""
	}
	can, err := json.Marshal(p.can) // in the order of the keys
	if err != nil {
		return ""
	}
	var odd []string
	p.cmd.Flags().Visit(func(f *pflag.Flag) {
		if !slices.Contains(meansNothing, f.Name) {
			odd = append(odd, f.Name)
		}
	})
	if len(odd) > 0 {
		return ""
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%s\n%s\n%q\n%q\n%s\n%s\n", p.host.Backend.Name(), own, p.file, path, known, can)
	fmt.Fprintf(&b, "%s\n", p.line.costs.sum())
	for _, name := range slices.Sorted(maps.Keys(p.line.profile)) {
		fmt.Fprintf(&b, "profile %q %d\n", name, p.line.profile[name])
	}
	sums := p.line.policy.Sums()
	for _, name := range slices.Sorted(maps.Keys(sums)) {
		fmt.Fprintf(&b, "policy %q %x\n", name, sums[name])
	}
	for _, name := range slices.Sorted(maps.Keys(in)) {
		fmt.Fprintf(&b, "%q %q\n", name, in[name])
	}
	sum := sha256.Sum256([]byte(b.String()))
	return hex.EncodeToString(sum[:])
}

// thisProgram tells the file that runs from every other one: two builds may have
// one version.
func thisProgram() (string, error) {
	name, err := os.Executable()
	if err != nil {
		return "", err
	}
	var st unix.Stat_t
	if err := unix.Stat(name, &st); err != nil {
		return "", err
	}
	return fmt.Sprintf("%q %s %d %d %d %d %d", name, sluice.Version(), st.Dev, st.Ino, st.Size, st.Mtim.Nano(), st.Ctim.Nano()), nil
}
