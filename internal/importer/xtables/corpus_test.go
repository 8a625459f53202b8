package xtables_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"sluice/internal/importer"
	"sluice/internal/importer/xtables"
)

// TestCorpus reads dumps of real hosts, where SLUICE_TEST_CORPUS names the folder that
// has them in xtables/*.save. Each is read, or refused with its line.
func TestCorpus(t *testing.T) {
	folder := os.Getenv("SLUICE_TEST_CORPUS")
	if folder == "" {
		t.Skip("no corpus: SLUICE_TEST_CORPUS is not set")
	}
	files, err := filepath.Glob(filepath.Join(folder, "xtables", "*.save"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no files in %s: %v", folder, err)
	}
	rules, whole := 0, 0
	for _, name := range files {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		family := 4
		if strings.Contains(string(text), "icmp6") || strings.Contains(string(text), "/128") {
			family = 6
		}
		r, err := xtables.Parse(string(text), "iptables-legacy", family, nil)
		var bad *importer.SyntaxError
		if errors.As(err, &bad) {
			t.Logf("%s: %v", filepath.Base(name), err)
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", filepath.Base(name), err)
			continue
		}
		if err := r.Program.Check(); err != nil {
			t.Errorf("%s: %v", filepath.Base(name), err)
		}
		for _, rule := range r.Rules {
			rules++
			if rule.Whole {
				whole++
			}
		}
	}
	t.Logf("%d of %d rules of %d files are lifted whole", whole, rules, len(files))
}
