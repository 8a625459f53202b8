package compile_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"sluice/internal/program"
)

func compiledText(t *testing.T, text string) *program.Program {
	t.Helper()
	dir := t.TempDir()
	for name, text := range map[string]string{"policy.yaml": text, "bad.txt": "198.51.100.0/24\n"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return compiled(t, dir)
}

// What limits ban is counted with the first line that bans.
func TestBansByLimitHaveALine(t *testing.T) {
	p := compiledText(t, `version: 1
input:
  default: drop
  rules:
    - allow http limit 9/second per source
    - allow ssh limit 6/30s per source then ban 10m
    - allow smtp limit 6/30s per source then ban 10m
`)
	for _, c := range p.Counters {
		if c.Name != "ban_by_limit" {
			continue
		}
		if c.Origin.Line != 6 || c.Origin.Text != "banned by: allow ssh limit 6/30s per source then ban 10m" {
			t.Errorf("origin %+v", c.Origin)
		}
		return
	}
	t.Errorf("no counter of bans by limit: %+v", p.Counters)
}

// A list is not promised to be fresh.
func TestListsSayWhenTheyAreRead(t *testing.T) {
	p := compiledText(t, `version: 1
sets:
  bad: { url: "https://lists.example.net/bad.txt", refresh: 1h30m }
  old: { url: "https://lists.example.net/bad.txt" }
ban: [bad, old]
`)
	var texts []string
	for _, n := range p.Notes {
		texts = append(texts, n.Text)
	}
	all := strings.Join(texts, "\n")
	for _, want := range []string{"set bad: where the copy is older than 1h30m, plan and apply download it, and so does a timer that runs sluice refresh", "set old: ", "any age"} {
		if !strings.Contains(all, want) {
			t.Errorf("the notes lack %q:\n%s", want, all)
		}
	}
}
