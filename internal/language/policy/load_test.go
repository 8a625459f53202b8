package policy

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"

	"sluice/internal/base/testgolden"
)

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
	testgolden.File(t, "testdata/design.golden", treeText(t, p))
}
