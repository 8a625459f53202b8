package docs

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestAttacks holds internals/attacks.md to tests that there are: each of its rows names one.
func TestAttacks(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("internals/attacks.md")
	if err != nil {
		t.Fatal(err)
	}
	out, err := exec.CommandContext(t.Context(), "grep", "-rhoE", "--include=*_test.go", `^func (Test|Fuzz)\w+`, "../internal").Output()
	if err != nil {
		t.Fatal(err)
	}
	there := map[string]bool{}
	for name := range strings.FieldsSeq(strings.ReplaceAll(string(out), "func ", "")) {
		there[name] = true
	}
	scripts, err := filepath.Glob("../internal/cli/testdata/script/*.txtar")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range scripts {
		there[strings.TrimSuffix(filepath.Base(path), ".txtar")] = true
	}
	rows := 0
	for line := range strings.Lines(string(page)) {
		columns := strings.Split(line, "|")
		if len(columns) != 4 || columns[2] == " Test " || columns[2] == "---" {
			continue
		}
		rows++
		names := regexp.MustCompile("`([^`]+)`").FindAllStringSubmatch(columns[2], -1)
		if len(names) == 0 {
			t.Errorf("no test shows: %s", line)
		}
		for _, name := range names {
			if !there[name[1]] {
				t.Errorf("there is no test %s: %s", name[1], line)
			}
		}
	}
	if rows < 90 {
		t.Errorf("%d rows", rows)
	}
}
