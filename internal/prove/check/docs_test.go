package check_test

import (
	"bytes"
	"os"
	"regexp"
	"strings"
	"testing"

	"sluice/internal/prove/check"
)

// Every code is explained to the reader, and nothing else is.
func TestCodesAreDocumented(t *testing.T) {
	source, err := os.ReadFile("finding.go")
	if err != nil {
		t.Fatal(err)
	}
	codes := map[string]bool{}
	for _, m := range regexp.MustCompile(`Code\s+= "([a-z0-9-]+)"`).FindAllStringSubmatch(string(source), -1) {
		codes[m[1]] = true
		if e, _ := check.Explain(m[1]); e == nil {
			t.Errorf("nothing explains %s", m[1])
		}
	}
	explained := map[string]bool{}
	for _, e := range check.Explanations() {
		if !codes[string(e.Code)] || explained[string(e.Code)] {
			t.Errorf("%s is explained, and no code or explained twice", e.Code)
		}
		explained[string(e.Code)] = true
		if e.What == "" || e.Why == "" || e.Fix == "" || e.Before == "" || e.After == "" || len(e.Severities) == 0 || strings.HasSuffix(e.What, ".") {
			t.Errorf("the explanation of %s is not whole", e.Code)
		}
		if !bytes.Contains(check.Reference(), []byte("\n## "+e.Code+"\n")) {
			t.Errorf("the reference has no section for %s", e.Code)
		}
	}
	if len(codes) == 0 {
		t.Error("finding.go has no codes")
	}
}

// A code that was mistyped leads to the one that was meant.
func TestExplainNear(t *testing.T) {
	if e, near := check.Explain("replies-cat"); e != nil || near != "replies-cut" {
		t.Errorf("got %v, %q", e, near)
	}
	if e, near := check.Explain("something-else-entirely"); e != nil || near != "" {
		t.Errorf("got %v, %q", e, near)
	}
}
