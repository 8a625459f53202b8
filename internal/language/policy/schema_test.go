package policy

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/jsonschema-go/jsonschema"
	"go.yaml.in/yaml/v4"

	"sluice/internal/base/testseed"
	"sluice/internal/language/source"
)

// compileSchema compiles the schema, or one of its definitions.
func compileSchema(t *testing.T, definition string) *jsonschema.Resolved {
	t.Helper()
	var s jsonschema.Schema
	if err := json.Unmarshal(Schema(), &s); err != nil {
		t.Fatal(err)
	}
	if definition != "" {
		s = jsonschema.Schema{Ref: "#/$defs/" + definition, Defs: s.Defs}
	}
	r, err := s.Resolve(nil)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// asJSON reads YAML as a schema's validator sees it.
func asJSON(t *testing.T, text string) any {
	t.Helper()
	var v any
	if err := yaml.Load([]byte(text), &v); err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	return v
}

// Every example of the table fits its shape in the schema.
func TestSchemaExamples(t *testing.T) {
	for _, s := range grammar.Shapes {
		if len(s.Examples) == 0 {
			t.Errorf("%s has no example", s.Name)
		}
		schema := compileSchema(t, s.Name)
		for _, e := range s.Examples {
			if err := schema.Validate(asJSON(t, e)); err != nil {
				t.Errorf("%s: %s\n%v", s.Name, e, err)
			}
		}
	}
	rule := compileSchema(t, "rule")
	for _, c := range clauses {
		for _, e := range c.examples {
			if err := rule.Validate(e); err != nil {
				t.Errorf("%s: %v", e, err)
			}
			hook := Forward
			for _, word := range []string{"by", c.word} {
				if why, _ := noSense(word, hook); why != "" && c.word == "by" {
					hook = Output
				}
			}
			if _, err := parseRule(t, hook, quoteScalar(e, true)); err != nil {
				t.Errorf("%v", err)
			}
		}
	}
}

func TestSchemaAccepts(t *testing.T) {
	schema := compileSchema(t, "")
	files := []string{"testdata/design.yaml", "testdata/format/mixed.yaml"}
	examples, err := filepath.Glob("../../../examples/*/*.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range append(files, examples...) {
		data, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		if err := schema.Validate(asJSON(t, string(data))); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if _, err := Parse(name, data); err != nil {
			t.Errorf("%v", err)
		}
	}
	for name, text := range fleetTexts {
		if err := schema.Validate(asJSON(t, text)); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// Random rules in both forms fit too.
func TestSchemaAcceptsRules(t *testing.T) {
	r := testseed.Rand(t)
	rule := compileSchema(t, "rule")
	for range 200 {
		line, mapping := randomRule(r, []Hook{Input, Output, Forward}[r.IntN(3)])
		if err := rule.Validate(line); err != nil {
			t.Errorf("%s: %v", line, err)
		}
		if err := rule.Validate(asJSON(t, mapping)); err != nil {
			t.Errorf("%s: %v", mapping, err)
		}
	}
	expectation := compileSchema(t, "expectation")
	for range 200 {
		line, mapping := randomExpectation(r)
		if err := expectation.Validate(line); err != nil {
			t.Errorf("%s: %v", line, err)
		}
		if err := expectation.Validate(asJSON(t, mapping)); err != nil {
			t.Errorf("%s: %v", mapping, err)
		}
	}
}

// What has the wrong type is refused by the schema and by the parser.
func TestSchemaRejects(t *testing.T) {
	schema := compileSchema(t, "")
	for _, text := range []string{
		"version: 2", "version: one", "version: [1]", "[1]", "text",
		"version: 1\ninptu: {}", "version: 1\nzones: [a]", "version: 1\nzones: {a: eth0}", "version: 1\nzones: {a: {interface: x}}",
		"version: 1\nzones: {a: {interfaces: [{b: c}]}}", "version: 1\nzones: {a: {interfaces: [abcdefghijklmnop]}}",
		"version: 1\nsets: {a: {file: [x]}}", "version: 1\nsets: {a: {counters: maybe}}", "version: 1\nsets: {a: {url: ftp://lists.example.net}}",
		"version: 1\nsets: {a: {countries: [Norway]}}", "version: 1\nsets: {a: {continents: [XX]}}", "version: 1\nsets: {1a: [192.0.2.1]}",
		"version: 1\nsets: {any: [192.0.2.1]}", "version: 1\nsets: {a: [office]}", "version: 1\nservices: {a: {port: 80}}",
		"version: 1\nban: {a: b}", "version: 1\ntracking: [web]", "version: 1\ntracking: {table: large}", "version: 1\ntracking: {invalid: reject}",
		"version: 1\ntracking: {table: {max: 0}}", "version: 1\ntracking: {table: {max: many}}", "version: 1\ntracking: {table: {timeouts: {tcp: 30s}}}",
		"version: 1\ncounters: no", "version: 1\nlog: yes", "version: 1\nlog: {to: kernel}", "version: 1\ncounters: {}", "version: 1\nlayout: {memory: 64}", "version: 1\nlayout: {memory: 64MB}", "version: 1\nlayout: {load: soon}", "version: 1\nlayout: [1s]",
		"version: 1\ninput: []", "version: 1\ninput:", "version: 1\ninput: {default: dorp}", "version: 1\ninput: {default: drop, accelerate: true}",
		"version: 1\ninput: {default: drop, rules: allow ssh}", "version: 1\ninput: {default: drop, rules: [alow ssh]}",
		"version: 1\ninput: {default: drop, rules: [[allow, ssh]]}", "version: 1\ninput: {default: drop, rules: [{from: 192.0.2.1}]}",
		"version: 1\ninput: {default: drop, rules: [{allow: ssh, drop: http}]}", "version: 1\ninput: {default: drop, rules: [{allow: ssh, form: 192.0.2.1}]}",
		"version: 1\ninput: {default: drop, rules: [{allow: ssh, family: 6}]}", "version: 1\ninput: {default: drop, rules: [{allow: ssh, limit: {per: source}}]}",
		"version: 1\ninput: {default: drop, rules: [{allow: ssh, published: x}]}", "version: 1\ninput: {default: drop, rules: [5]}",
		"version: 1\nnat: {a: b}", "version: 1\nnat: [snat out wan]", "version: 1\nnat: [{from: 192.0.2.1}]", "version: 1\nnat: [{map: 192.0.2.1, to: 192.0.2.2, stateless: 1}]",
		"version: 1\nexpect: {a: b}", "version: 1\nexpect: [pass ssh]", "version: 1\nexpect: [{deny: ssh, on: prerouting}]", "version: 1\nexpect: [{deny: ssh, state: untracked}]",
		"version: 1\nexpect: [{deny: ssh, allow: http}]", "version: 1\nexpect: [{deny: ssh, log: x}]", "version: 1\nexpect: [5]",
		"version: 1\nforward: {default: drop, accelerate: 1}", "version: 1\ninclude: {a: b}", "version: 1\ninclude: [{path: a.yaml}]",
		"version: 1\nfleet: a/b\nparts: [x.yaml]", "version: 1\nfleet: a\ninput: {default: drop}", "version: 1\nfleet: a\nparts: {a: b}", "version: 1\nfleet: a.yaml\nhost: \"a b\"",
		"version: 1\nfleet: a.yaml\nhost: b\nparts: [c]", "version: 1\nfleet: a.yaml\nhost: b\nmembers: [192.0.2.1]", "version: 1\nfleet: a.yaml\nhost: b\nlabels: [c]", "version: 1\nhosts: [a]", "version: 1\nfleet: a\nroll-out: {stages: [half]}", "version: 1\nfleet: a\nroll-out: {halt: 1}", "version: 1\nfleet: a\nroll-out: {on-halt: stop}", "version: 1\nfleet: a\nroll-out: {freeze: [now]}", "version: 1\nfleet: a\naccess: [{who: \"user:a\"}]", "version: 1\nfleet: a\naccess: [{who: a, role: admin}]", "version: 1\nfleet: a\napprove: [everything]", "version: 1\nfleet: a\naccess: [{who: \"user:a\", role: root}]", "version: 1\nhost: a",
		"version: 1\nfleet: a\nparts: b\nbans: none", "version: 1\nfleet: a\nparts: b\nbans: {most: 5}", "version: 1\nfleet: a\nparts: b\nbans: {widest: 24}", "version: 1\nfleet: a\nparts: b\nbans: {}\nshare-bans: {after: 3, for: 1h}", "version: 1\nfleet: a\nparts: b\nbans: {}\nshare-bans: {after: 3 hosts}",
		"version: 1\ninclude: [{path: a.yaml, only: 192.0.2.1}]", "version: 1\ninclude: [{path: a.yaml, only: to 192.0.2.1, scope: x}]",
	} {
		if err := schema.Validate(asJSON(t, text)); err == nil {
			t.Errorf("the schema takes\n%s", text)
		}
		if _, err := Parse("p.yaml", []byte(text)); err == nil {
			t.Errorf("the parser takes\n%s", text)
		}
	}
}

// Every key of a mapping names a shape, and is read by the parser: one that the
// parser does not know how to read would pass unseen.
func TestTableIsWhole(t *testing.T) {
	seen := map[string]bool{}
	for _, s := range grammar.Shapes {
		if seen[s.Name] {
			t.Errorf("duplicate %s", s.Name)
		}
		seen[s.Name] = true
		if s.Doc == "" || s.What == "" {
			t.Errorf("%s has no words", s.Name)
		}
		for _, k := range s.Keys {
			grammar.Of(k.Shape)
			if k.Doc == "" {
				t.Errorf("%s of %s has no words", k.Name, s.Name)
			}
		}
		for _, name := range []string{s.List, s.Values} {
			if name != "" {
				grammar.Of(name)
			}
		}
	}
}

// docs/reference/language.md is what the tables say.
func TestReferenceIsWritten(t *testing.T) {
	data, err := os.ReadFile("../../../docs/reference/language.md")
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(data, Reference()) {
		t.Error("docs/reference/language.md is not what the tables say; run make generate")
	}
	for _, c := range clauses {
		if !bytes.Contains(data, []byte(fmt.Sprintf("| `%s`", source.EscapeCell(c.usage)))) {
			t.Errorf("%s is not in it", c.word)
		}
	}
}
