package trust

import (
	"strings"
	"testing"
)

// TestDraftPaths: a draft has no file that anything of a repository, or of git, would run or trust.
func TestDraftPaths(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"fleet.yaml", "parts/10-base.yaml", "lists/banned.txt", "a/b/c.netset", "ü/ö.yaml"} {
		if err := CheckDraftPath(name); err != nil {
			t.Errorf("%q: %v", name, err)
		}
	}
	for _, name := range []string{
		"", ".", "..", "/fleet.yaml", "../fleet.yaml", "parts/../../fleet.yaml", "parts/../fleet.yaml", "parts//a.yaml", "./fleet.yaml", "parts/",
		".git/config.txt", ".github/workflows/ci.yaml", "parts/.a.yaml", "trust/root.yaml", "trust/lists/x.txt", "inventory.yaml", "Makefile", "deploy.sh", "facts/web-1.json",
		"a\nb.yaml", "a\x00.yaml", "a\\b.yaml", "a\u202eb.yaml", "a\x1b[2J.yaml", strings.Repeat("a", 260) + ".yaml",
	} {
		if CheckDraftPath(name) == nil {
			t.Errorf("%q is taken", name)
		}
	}
}
