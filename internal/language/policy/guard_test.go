package policy

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A guard has expectations, names for them, and nothing that others fill or that decides.
func TestGuard(t *testing.T) {
	const rest = "expect: [deny ssh from not office]\n"
	for _, c := range []struct{ text, want string }{
		{"version: 1\nsets: {office: [192.0.2.0/24]}\n" + rest, ""},
		{"version: 1\nzones: {office: {networks: [192.0.2.0/24]}}\nservices: {db: tcp/5432}\nexpect: [deny db from not office]\n", ""},
		{"version: 1\n" + rest, `g.yaml:2:28: unknown set or zone "office"`},
		{"sets: {office: [192.0.2.0/24]}\n" + rest, "g.yaml:1:1: version is missing"},
		{"version: 1\nsets: {office: [192.0.2.0/24]}\n", "g.yaml:1:1: expect is missing"},
		{"", "g.yaml:1:1: file is empty"},
		{"version: 1\ninclude: [a.yaml]\n" + rest, `g.yaml:2:1: unknown key "include" in the guard`},
		{"version: 1\ninput: {default: allow}\n" + rest, `g.yaml:2:1: unknown key "input" in the guard`},
		{"version: 1\nsets: {office: {url: \"https://lists.example.net/a\"}}\n" + rest, `g.yaml:2:8: set "office" is filled by another program`},
		{"version: 1\nsets: {office: {living: true}}\n" + rest, `g.yaml:2:8: set "office" is filled by another program`},
	} {
		name := filepath.Join(t.TempDir(), "g.yaml")
		if err := os.WriteFile(name, []byte(c.text), 0o600); err != nil {
			t.Fatal(err)
		}
		p, err := LoadGuard(name)
		switch {
		case c.want == "" && (err != nil || len(p.Expect) != 1):
			t.Errorf("%q: %v", c.text, err)
		case c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)):
			t.Errorf("%q: %v, want %s", c.text, err, c.want)
		}
	}
}
