package lists

import (
	"os"
	"path/filepath"
	"testing"
)

// What was kept is no temporary file any more: once, a folder that could not be
// synced after the rename cost the only copy.
func TestDiscardLeavesWhatWasKept(t *testing.T) {
	dir := t.TempDir()
	got := &fetched{path: filepath.Join(dir, "from")}
	if err := os.WriteFile(got.path, []byte("192.0.2.1\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	dest := filepath.Join(dir, "dest")
	if err := got.keep(dest); err != nil {
		t.Fatal(err)
	}
	got.discard()
	if _, err := os.Stat(dest); err != nil {
		t.Error(err)
	}
}
