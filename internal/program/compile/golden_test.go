package compile_test

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/txtar"

	"sluice/internal/base/testgolden"
	"sluice/internal/language/geo"
	"sluice/internal/language/policy"
	"sluice/internal/language/resolve"
	"sluice/internal/program"
	"sluice/internal/program/compile"
	"sluice/internal/program/optimize"
	"sluice/internal/system/host"
)

// Each file of testdata is a policy with what it includes, the facts of a host
// where it needs some, and the program that has to come out. "program" is what
// the optimizer leaves; "compiled" is there where what compile itself writes
// is the point.
func TestGolden(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txtar")
	if err != nil || len(files) == 0 {
		t.Fatalf("no golden files: %v", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txtar"), func(t *testing.T) { golden(t, file) })
	}
}

func golden(t *testing.T, file string) {
	archive, err := txtar.ParseFile(file)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := txtar.Write(archive, dir); err != nil {
		t.Fatal(err)
	}
	p := compiled(t, dir)
	got := map[string]string{"compiled": p.Text()}
	if err := optimize.Run(p, optimize.Options{Check: true}); err != nil {
		t.Fatal(err)
	}
	got["program"] = p.Text()
	seen := false
	for i, f := range archive.Files {
		text, is := got[f.Name]
		if !is {
			continue
		}
		seen = true
		archive.Files[i].Data = []byte(text)
	}
	if !seen {
		t.Fatalf("%s expects no program", file)
	}
	testgolden.File(t, file, txtar.Format(archive))
}

// compiled is the program of DIR/policy.yaml for the host of DIR/facts.json.
func compiled(t *testing.T, dir string) *program.Program {
	t.Helper()
	tree, err := policy.Load(filepath.Join(dir, "policy.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	r, err := resolve.Resolve(tree, resolve.Options{
		Facts: facts(t, dir),
		Geo:   func() (*geo.Database, error) { return geo.Open(t.TempDir()) },
		Lists: fileLists(dir),
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
	return p
}

func facts(t *testing.T, dir string) host.Facts {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(dir, "facts.json"))
	if errors.Is(err, os.ErrNotExist) {
		return host.Facts{}
	}
	if err != nil {
		t.Fatal(err)
	}
	var f host.Facts
	if err := json.Unmarshal(data, &f); err != nil {
		t.Fatal(err)
	}
	f.Known = true
	return f
}
