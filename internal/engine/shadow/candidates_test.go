package shadow_test

import (
	"encoding/json"
	"errors"
	"io"
	"os"
	"path"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/txtar"

	"sluice/internal/base/addrset"
	"sluice/internal/engine/shadow"
	"sluice/internal/language/geo"
	"sluice/internal/language/policy"
	"sluice/internal/language/resolve"
	"sluice/internal/program"
	"sluice/internal/program/compile"
	"sluice/internal/system/host"
)

// listsIn serves a URL from the file of a folder that bears its last name.
type listsIn string

func (dir listsIn) Open(url string, _ time.Duration) (io.ReadCloser, string, error) {
	f, err := os.Open(filepath.Join(string(dir), path.Base(url)))
	return f, url, err
}

// compiled is DIR/policy.yaml resolved for a host of these facts, and its program as
// package compile makes it.
func compiled(t *testing.T, dir string, facts host.Facts) (*program.Program, *resolve.Resolved) {
	t.Helper()
	tree, err := policy.Load(filepath.Join(dir, "policy.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	tree.LogsNetlink = false // as the engine has it
	r, err := resolve.Resolve(tree, resolve.Options{
		Facts: facts,
		Geo:   func() (*geo.Database, error) { return geo.Open(t.TempDir()) },
		Lists: listsIn(dir),
		User: func(name string) (uint32, error) {
			if name == "postfix" {
				return 105, nil
			}
			return 0, errors.New("no such user")
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	p, err := compile.Compile(r)
	if err != nil {
		t.Fatal(err)
	}
	return p, r
}

// candidate is a policy that is tried.
type candidate struct {
	program  *program.Program
	resolved *resolve.Resolved
}

// candidates are the policies of the compiler's golden files, by name: every word of
// the language is in one of them.
func candidates(t *testing.T) map[string]candidate {
	t.Helper()
	files, err := filepath.Glob("../../program/compile/testdata/*.txtar")
	if err != nil || len(files) == 0 {
		t.Fatalf("no policies: %v", err)
	}
	out := map[string]candidate{}
	for _, file := range files {
		archive, err := txtar.ParseFile(file)
		if err != nil {
			t.Fatal(err)
		}
		dir := t.TempDir()
		if err := txtar.Write(archive, dir); err != nil {
			t.Fatal(err)
		}
		var facts host.Facts
		if data, err := os.ReadFile(filepath.Join(dir, "facts.json")); err == nil {
			if err := json.Unmarshal(data, &facts); err != nil {
				t.Fatal(err)
			}
			facts.Known = true
		}
		var c candidate
		c.program, c.resolved = compiled(t, dir, facts)
		out[strings.TrimSuffix(filepath.Base(file), ".txtar")] = c
	}
	return out
}

func counting(t *testing.T, p *program.Program) (*program.Program, *shadow.Legend) {
	t.Helper()
	out, legend, err := shadow.Counting(p, addrset.Set{})
	if err != nil {
		t.Fatal(err)
	}
	return out, legend
}
