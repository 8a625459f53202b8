package policy

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "write the golden files anew")

// golden compares got with a file, or writes it.
func golden(t *testing.T, name string, got []byte) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(path, got, 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), string(got)); diff != "" {
		t.Errorf("%s differs (-want +got; -update writes it anew):\n%s", path, diff)
	}
}

func treeText(t *testing.T, p *Policy) []byte {
	t.Helper()
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetIndent("", "  ")
	enc.SetEscapeHTML(false)
	if err := enc.Encode(p); err != nil {
		t.Fatal(err)
	}
	// Places take most of the lines, and nulls say nothing.
	out := placeLines.ReplaceAll(b.Bytes(), []byte(`"Pos": "$1:$2"`))
	return nullLines.ReplaceAll(out, nil)
}

var (
	placeLines = regexp.MustCompile(`"Pos": \{\s*"File": "[^"]*",\s*"Line": (\d+),\s*"Column": (\d+)\s*\}`)
	nullLines  = regexp.MustCompile(`(?m)^ *"\w+": (null|false|0|""),?\n`)
)

// The whole sample of the design parses to the tree that it means.
func TestDesignSample(t *testing.T) {
	p, err := Load("testdata/design.yaml")
	if err != nil {
		t.Fatal(err)
	}
	golden(t, "design.json", treeText(t, p))
}
