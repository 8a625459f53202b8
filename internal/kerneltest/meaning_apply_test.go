package kerneltest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"

	changes "sluice/internal/apply"
	"sluice/internal/backend/nftables"
	"sluice/internal/compile"
	"sluice/internal/geo"
	"sluice/internal/host"
	"sluice/internal/kernel/nft"
	"sluice/internal/optimize"
	"sluice/internal/policy"
	"sluice/internal/program"
	"sluice/internal/resolve"
	"sluice/internal/wrongpass"
)

// countries opens the country data that comes with the program, once.
var countries = sync.OnceValues(func() (*geo.Database, error) {
	dir, err := os.MkdirTemp("", "sluice-test")
	if err != nil {
		return nil, err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	return geo.Open(dir)
})

// resolveFile reads a policy for a host.
func resolveFile(file string, facts host.Facts) (*resolve.Resolved, error) {
	p, err := policy.Load(file)
	if err != nil {
		return nil, err
	}
	return resolve.Resolve(p, resolve.Options{Facts: facts, Geo: countries, Lists: someLists{}})
}

// mend takes out of the draft what the language refuses, until it reads. What is
// random has words that make no sense together.
func mend(t *testing.T, d *draft, facts host.Facts) (*resolve.Resolved, *program.Program) {
	t.Helper()
	for range 200 {
		resolved, err := resolveFile(d.write(t), facts)
		var compiled *program.Program
		if err == nil {
			compiled, err = compile.Compile(resolved)
		}
		if err == nil {
			return resolved, compiled
		}
		var list policy.Errors
		if !errors.As(err, &list) || !d.drop(list) {
			t.Fatalf("%v\n%s", err, d)
		}
	}
	t.Fatalf("a policy that cannot be mended:\n%s", d)
	return nil, nil
}

// drop takes out the lines that errors are about; false where none was found.
func (d *draft) drop(list policy.Errors) bool {
	text := strings.Split(d.text(), "\n")
	before := d.size()
	for _, e := range list {
		line := ""
		switch {
		case strings.HasSuffix(e.Pos.File, "part.yaml"):
			d.included = nil
			continue
		case e.Pos.Line > 0 && e.Pos.Line <= len(text):
			line = strings.TrimSpace(strings.TrimPrefix(strings.TrimSpace(text[e.Pos.Line-1]), "- "))
		}
		switch {
		case strings.HasPrefix(line, "bypass:"):
			d.bypass = nil
		case strings.HasPrefix(line, "ban:"):
			d.ban = nil
		case strings.HasPrefix(line, "never-ban:"):
			d.never = nil
		default:
			for _, l := range d.lists() {
				*l = slices.DeleteFunc(*l, func(s string) bool { return s == line })
			}
		}
	}
	return d.size() < before
}

// load brings a policy's program onto the host, with a wrong pass behind the
// optimiser's where one is given; done says whether that found anything to do.
func (y *yard) load(compiled *program.Program, wrong *wrongpass.Pass) (text string, done bool, err error) {
	opt := optimize.Options{}
	if wrong != nil {
		last := optimize.Passes[len(optimize.Passes)-1].Name
		opt.After = func(pass string, p *program.Program) {
			if pass == last {
				done = wrong.Run(p)
			}
		}
	}
	if err := optimize.Run(compiled, opt); err != nil {
		return "", false, err
	}
	if wrong != nil && !done {
		return "", false, nil
	}
	b := nftables.New()
	artifact, err := b.Lower(compiled, capabilities())
	if err != nil {
		return "", done, err
	}
	err = y.host.Do(func() error {
		ctx := context.Background()
		have, err := b.Read(ctx, true)
		if err != nil {
			return err
		}
		steps, err := b.Steps(artifact, have)
		if err != nil {
			return err
		}
		for _, step := range steps {
			if err := step.Take(ctx, nft.Run); err != nil {
				return fmt.Errorf("step %s: %w\n%s", step.Name, err, cut(step.Script()))
			}
		}
		_, err = changes.EndBanned(changes.Linux(), compiled)
		return err
	})
	return artifact.Text(), done, err
}

func cut(text string) string { return text[:min(len(text), 4000)] }
