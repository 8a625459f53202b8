package optimize

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestHiddenLimitCountsNothing: with a rule that no packet reaches goes what its limit
// asks of established flows.
func TestHiddenLimitCountsNothing(t *testing.T) {
	file := filepath.Join(t.TempDir(), "policy.yaml")
	text := "version: 1\ninput: {default: drop, rules: [allow ssh limit 5/minute per source, drop any, allow http limit 7/minute per source]}\n"
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	p := compiled(t, file, nil)
	if err := Run(p, Options{Check: true}); err != nil {
		t.Fatal(err)
	}
	if text := p.Text(); strings.Contains(text, "(7 per") || !strings.Contains(text, "(5 per") {
		t.Errorf("want the limit of 5 a minute, and none of 7:\n%s", text)
	}
	if len(p.Labels()) != 3 {
		t.Errorf("labels %v, want that of one rule, of what was counted, and of what was refused", p.Labels())
	}
}
