package policy

import (
	"bytes"
	"cmp"
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
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
	if diff := gocmp.Diff(string(want), string(got)); diff != "" {
		t.Errorf("%s differs (-want +got; -update writes it anew):\n%s", path, diff)
	}
}

// treeText writes a policy a line a node: its path, its place, then what it says that is
// not empty. The places of a document's own file go without its name.
func treeText(t *testing.T, p *Policy) []byte {
	t.Helper()
	encoded, err := json.Marshal(p)
	if err != nil {
		t.Fatal(err)
	}
	var tree map[string]any
	if err := json.Unmarshal(encoded, &tree); err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	writeNode(&b, "", tree)
	return b.Bytes()
}

func writeNode(b *bytes.Buffer, path string, node map[string]any) {
	var place string
	if pos, is := node["Pos"].(map[string]any); is {
		place = fmt.Sprintf(" %v:%v", pos["Line"], pos["Column"])
	}
	names := slices.Sorted(maps.Keys(node))
	fmt.Fprint(b, cmp.Or(path, "policy"), place)
	for _, name := range names {
		switch v := node[name].(type) {
		case nil, map[string]any, []any:
		default:
			if !reflect.ValueOf(v).IsZero() {
				fmt.Fprintf(b, " %s=%v", name, v)
			}
		}
	}
	fmt.Fprintln(b)
	for _, name := range names {
		below := strings.TrimPrefix(path+"."+name, ".")
		switch v := node[name].(type) {
		case map[string]any:
			if name != "Pos" {
				writeNode(b, below, v)
			}
		case []any:
			for i, e := range v {
				if n, is := e.(map[string]any); is {
					writeNode(b, fmt.Sprintf("%s[%d]", below, i), n)
				} else {
					fmt.Fprintf(b, "%s[%d] %v\n", below, i, e)
				}
			}
		}
	}
}

// The whole sample of the design parses to the tree that it means.
func TestDesignSample(t *testing.T) {
	p, err := Load("testdata/design.yaml")
	if err != nil {
		t.Fatal(err)
	}
	golden(t, "design.golden", treeText(t, p))
}
