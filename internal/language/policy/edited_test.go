package policy

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// Texts stand for files, whether there are such or not, by whatever name they are asked for.
func TestEdited(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	const head = "version: 1\ninput: { default: drop, rules: [allow ssh] }\n"
	for name, text := range map[string]string{
		"p.yaml":        "version: 1\ninclude: [conf.d/*.yaml]\ninput: { default: drop, rules: [allow ssh] }\n",
		"conf.d/a.yaml": "services: { shop: tcp/8443 }\n",
		"part.yaml":     "sets: { a: [10.20.0.7] }\n",
	} {
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	const scoped = "version: 1\ninclude: [{path: part.yaml, only: to 10.20.0.5}]\nforward: { default: drop, rules: [] }\n"
	for name, c := range map[string]struct {
		file  string
		texts map[string]string
		files []string // that are read; or
		wrong string
	}{
		"the policy":            {"p.yaml", map[string]string{"p.yaml": head}, []string{"p.yaml"}, ""},
		"by its whole name":     {"p.yaml", map[string]string{dir + "/x/../p.yaml": head}, []string{"p.yaml"}, ""},
		"by another name":       {dir + "/p.yaml", map[string]string{"./p.yaml": head}, []string{dir + "/p.yaml"}, ""},
		"none such":             {"new.yaml", map[string]string{"new.yaml": head}, []string{"new.yaml"}, ""},
		"what it includes":      {"p.yaml", map[string]string{"conf.d/a.yaml": "services: { shop: tcp/x }\n"}, nil, "conf.d/a.yaml:1:19: "},
		"a new file of it":      {"p.yaml", map[string]string{"conf.d/b.yaml": "services: { more: tcp/8444 }\n"}, []string{"p.yaml", "conf.d/a.yaml", "conf.d/b.yaml"}, ""},
		"by its whole name too": {dir + "/p.yaml", map[string]string{"conf.d/b.yaml": ""}, []string{dir + "/p.yaml", dir + "/conf.d/a.yaml", dir + "/conf.d/b.yaml"}, ""},
		"in a new folder":       {"p.yaml", map[string]string{"p.yaml": head + "include: [new/c.yaml]\n", "new/c.yaml": ""}, []string{"p.yaml", "new/c.yaml"}, ""},
		"nothing of it":         {"p.yaml", map[string]string{"q.yaml": "rubbish"}, []string{"p.yaml", "conf.d/a.yaml"}, ""},
		"a circle":              {"p.yaml", map[string]string{"p.yaml": head + "include: [./p.yaml]\n"}, nil, "include each other in a loop"},
		"a broken part":         {"p.yaml", map[string]string{"p.yaml": scoped, "part.yaml": "nonsense: 1\n"}, nil, "part.yaml:1:1: "},
		"a part":                {"p.yaml", map[string]string{"p.yaml": scoped, "part.yaml": "sets: { b: [10.20.0.8] }\n"}, []string{"p.yaml", "part.yaml"}, ""},
	} {
		r := Reading{Edited: map[string][]byte{}, Parts: true}
		for name, text := range c.texts {
			r.Edited[name] = []byte(text)
		}
		p, err := r.Load(c.file)
		if c.wrong != "" || err != nil {
			if err == nil || c.wrong == "" || !strings.Contains(err.Error(), c.wrong) {
				t.Errorf("%s: %v, want %q", name, err, c.wrong)
			}
			continue
		}
		if files, _ := p.Files(); !slices.Equal(files, c.files) {
			t.Errorf("%s: read %q, want %q", name, files, c.files)
		}
	}
}
