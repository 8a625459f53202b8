package main

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"sluice/internal/base/testgolden"

	"go.yaml.in/yaml/v4"
)

// TestPromised holds the documents of the APIs to what was recorded of them: operations,
// parameters and fields may come, and none goes or gets another type. -update records what came,
// and takes nothing away.
func TestPromised(t *testing.T) {
	for _, name := range []string{"agent-api", "fleet-api", "fleet-wire"} {
		text, err := os.ReadFile(filepath.Join("../../../docs/reference", name+".yaml"))
		if err != nil {
			t.Fatal(err)
		}
		var document map[string]any
		if err := yaml.Unmarshal(text, &document); err != nil {
			t.Fatal(err)
		}
		has := map[string]bool{}
		promises(has, "", document["paths"])
		schemas, _ := document["components"].(map[string]any)
		promises(has, "", schemas["schemas"])
		if len(has) < 100 {
			t.Fatalf("%s has %d lines", name, len(has))
		}
		file := filepath.Join("testdata/promised", name+".txt")
		recorded, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for line := range has {
			if strings.HasSuffix(line, " <nil>") {
				t.Errorf("%s: %s: a comma in a description without quotes makes a key of what follows", name, line)
			}
		}
		for line := range strings.Lines(string(recorded)) {
			if line = strings.TrimSpace(line); !has[line] {
				t.Errorf("%s no longer has %s, which was promised", name, line)
			}
			has[line] = true
		}
		if testgolden.Update() {
			all := strings.Join(slices.Sorted(maps.Keys(has)), "\n") + "\n"
			testgolden.File(t, file, []byte(all))
		}
	}
}

// promises adds a line for each key of a document that programs rely on, and each type.
func promises(has map[string]bool, at string, value any) {
	switch v := value.(type) {
	case map[string]any:
		for key, inner := range v {
			switch key {
			case "description", "summary", "example", "examples", "required", "minimum", "maximum", "minLength", "maxLength", "minItems", "maxItems", "pattern", "default", "tags", "operationId":
				if _, field := inner.(map[string]any); !field { // of that name
					continue
				}
			}
			promises(has, at+" "+key, inner)
		}
	case []any:
		for _, inner := range v {
			if parameter, is := inner.(map[string]any); is && parameter["name"] != nil {
				has[fmt.Sprint(strings.TrimSpace(at), " ", parameter["in"], " ", parameter["name"])] = true
				continue
			}
			if _, is := inner.(map[string]any); is {
				promises(has, at, inner)
				continue
			}
			has[fmt.Sprint(strings.TrimSpace(at), " ", inner)] = true // of an enum
		}
	default:
		has[fmt.Sprint(strings.TrimSpace(at), " ", v)] = true
	}
}
