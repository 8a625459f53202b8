package check_test

import (
	"os"
	"regexp"
	"strings"
	"testing"
)

// Every code is explained to the reader, and nothing else is.
func TestCodesAreDocumented(t *testing.T) {
	source, err := os.ReadFile("finding.go")
	if err != nil {
		t.Fatal(err)
	}
	manual, err := os.ReadFile("../../docs/findings.md")
	if err != nil {
		t.Fatal(err)
	}
	codes := map[string]bool{}
	for _, m := range regexp.MustCompile(`Code\s+= "([a-z0-9-]+)"`).FindAllStringSubmatch(string(source), -1) {
		codes[m[1]] = true
		if !strings.Contains(string(manual), "\n| `"+m[1]+"` | ") {
			t.Errorf("docs/findings.md does not explain %s", m[1])
		}
	}
	for _, m := range regexp.MustCompile("(?m)^\\| `([a-z0-9-]+)` \\|").FindAllStringSubmatch(string(manual), -1) {
		if !codes[m[1]] {
			t.Errorf("docs/findings.md explains %s, which is no code", m[1])
		}
	}
	if len(codes) == 0 {
		t.Error("finding.go has no codes")
	}
}
