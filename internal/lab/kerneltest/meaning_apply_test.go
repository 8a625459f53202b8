package kerneltest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"sluice/internal/backend/nftables"
	"sluice/internal/base/addrset"
	changes "sluice/internal/engine/apply"
	"sluice/internal/lab/drafts"
	"sluice/internal/language/geo"
	"sluice/internal/language/policy"
	"sluice/internal/language/resolve"
	"sluice/internal/program"
	"sluice/internal/program/compile"
	"sluice/internal/program/mutants"
	"sluice/internal/program/optimize"
	"sluice/internal/system/host"
)

// countries opens the country data that comes with the program, once.
var countries = sync.OnceValues(func() (*geo.Database, error) { return geo.Open(filepath.Join(scratch, "geo")) })

// resolveFile reads a policy for a host.
func resolveFile(file string, facts host.Facts) (*resolve.Resolved, error) {
	p, err := policy.Load(file)
	if err != nil {
		return nil, err
	}
	return resolvePolicy(p, facts)
}

func resolvePolicy(p *policy.Policy, facts host.Facts) (*resolve.Resolved, error) {
	return resolve.Resolve(p, resolve.Options{Facts: facts, Geo: countries, Lists: someLists{}})
}

// resolveDraft reads a draft, with whom commands let in.
func resolveDraft(t *testing.T, d *drafts.Draft, facts host.Facts) (*resolve.Resolved, error) {
	t.Helper()
	p, err := policy.Load(written(t, d))
	if err != nil {
		return nil, err
	}
	var added []policy.Addition
	for _, text := range d.Added {
		text, ends := strings.CutSuffix(text, " ends")
		a := policy.Addition{Set: "lived"}
		if a.What, err = addrset.ParseRange(text); err != nil {
			t.Fatal(err)
		}
		if ends {
			a.Until = time.Now().Add(time.Hour).Truncate(time.Second)
		}
		added = append(added, a)
	}
	p.Add(added)
	allow(t, p, d.Allowed)
	return resolvePolicy(p, facts)
}

// allow has a policy let in whom commands do, as drafts.Draft has them.
func allow(t *testing.T, p *policy.Policy, allowed []string) {
	t.Helper()
	var list []policy.Exception
	for _, text := range allowed {
		text, over := strings.CutSuffix(text, " over bans")
		what, service, _ := strings.Cut(text, " ")
		e := policy.Exception{Service: service, OverBan: over}
		var err error
		if e.What, err = addrset.ParseRange(what); err != nil {
			t.Fatal(err)
		}
		list = append(list, e)
	}
	if err := p.Except(list); err != nil {
		t.Fatal(err)
	}
}

// repair takes out of the draft what the language refuses, until it reads. What is
// random has words that mean nothing together.
func repair(t *testing.T, d *drafts.Draft, facts host.Facts) (*resolve.Resolved, *program.Program) {
	t.Helper()
	for range 200 {
		resolved, err := resolveDraft(t, d, facts)
		var compiled *program.Program
		if err == nil {
			compiled, err = compile.Compile(resolved)
		}
		if err == nil {
			return resolved, compiled
		}
		var list policy.Errors
		if !errors.As(err, &list) || !dropped(d, list) {
			t.Fatalf("%v\n%s", err, d)
		}
	}
	t.Fatalf("a policy that cannot be repaired:\n%s", d)
	return nil, nil
}

// dropped takes out what errors are about; false where nothing of it was found.
func dropped(d *drafts.Draft, list policy.Errors) bool {
	var lines []int
	included := false
	for _, e := range list {
		if strings.HasSuffix(e.Pos.File, "part.yaml") {
			included = true
		} else {
			lines = append(lines, e.Pos.Line)
		}
	}
	return d.Drop(lines, included)
}

// written puts the policy with its files into a folder and gives the main file.
func written(t *testing.T, d *drafts.Draft) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range d.Texts() {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return filepath.Join(dir, drafts.Main)
}

// load brings a policy's program onto the host, with a wrong pass behind the
// optimizer's where one is given; done says whether that found anything to do.
func (y *yard) load(compiled *program.Program, wrong *mutants.Pass) (text string, done bool, err error) {
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
	if strings.Contains(artifact.Text(), "/day burst") {
		y.host.Nft("add table inet sluice; delete table inet sluice") // what was spent of a rate stays spent
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
			if err := step.Take(ctx); err != nil {
				return fmt.Errorf("step %s: %w\n%s", step.Name, err, cut(step.Text()))
			}
		}
		_, err = changes.EndBanned(compiled)
		return err
	})
	return artifact.Text(), done, err
}

func cut(text string) string { return text[:min(len(text), 4000)] }

// applied brings a policy onto the host by the real command, without the lines that
// the command refuses, by findings that the language alone does not have: rules that
// can never match, and their like.
func (y *yard) applied(d *drafts.Draft, binary, state string) {
	y.t.Helper()
	for range 50 {
		cmd := exec.Command(binary, "apply", written(y.t, d), "--netns", y.host.Name(), "--state-dir", state)
		cmd.Env = slices.DeleteFunc(cmd.Environ(), func(v string) bool { return strings.HasPrefix(v, "SSH_") })
		out, err := cmd.CombinedOutput()
		if err == nil {
			return
		}
		var found policy.Errors
		for _, at := range refused.FindAllSubmatch(out, -1) {
			line, err := strconv.Atoi(string(at[2]))
			y.try(err)
			found = append(found, &policy.Error{Pos: policy.Pos{File: string(at[1]), Line: line}})
		}
		if !dropped(d, found) {
			y.t.Fatalf("apply: %v\n%s\n%s", err, cut(string(out)), d)
		}
	}
	y.t.Fatalf("the command takes nothing of\n%s", d)
}

var refused = regexp.MustCompile(`(?m)^(?:error: )?(/\S+\.yaml):(\d+):`)
