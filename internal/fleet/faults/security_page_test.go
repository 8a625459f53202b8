package faults

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestSecurityPage holds docs/fleet/security.md to tests that there are.
func TestSecurityPage(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../../docs/fleet/security.md")
	if err != nil {
		t.Fatal(err)
	}
	folders := map[string]string{"T": "../trust", "C": "../controller", "D": "../store", "A": "../../agent/fleet", "F": "."}
	named := 0
	for _, m := range regexp.MustCompile("([TCDAF]) `(Test[A-Za-z]+)`").FindAllStringSubmatch(string(page), -1) {
		named++
		isIn(t, folders[m[1]], m[2])
	}
	for _, m := range regexp.MustCompile("go test -run '?(Test[A-Za-z]+)[^`]*? \\./(internal/[a-z/]+)`").FindAllStringSubmatch(string(page), -1) {
		named++
		isIn(t, filepath.Join("../../..", m[2]), m[1])
	}
	for _, m := range regexp.MustCompile("S `([a-z_]+)`").FindAllStringSubmatch(string(page), -1) {
		named++
		if _, err := os.Stat("../../cli/testdata/script/" + m[1] + ".txtar"); err != nil {
			t.Error(err)
		}
	}
	rows := 0
	for line := range strings.Lines(string(page)) {
		if columns := strings.Split(line, "|"); strings.HasPrefix(line, "| can") {
			rows++
			if last := columns[len(columns)-2]; !strings.Contains(last, "Test") && !strings.Contains(last, "S `") {
				t.Errorf("no test shows: %s", line)
			}
		}
	}
	if rows < 50 || named < rows {
		t.Errorf("%d tests are named in %d lines", named, rows)
	}
}

// isIn reports a test that no file of a folder has.
func isIn(t *testing.T, folder, name string) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(folder, "*_test.go"))
	if err != nil || len(files) == 0 {
		t.Fatalf("%s has no tests: %v", folder, err)
	}
	if out, err := exec.Command("grep", append([]string{"-l", "^func " + name + "("}, files...)...).Output(); err != nil || len(out) == 0 {
		t.Errorf("%s has no %s", folder, name)
	}
}
