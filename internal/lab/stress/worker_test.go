package stress

import (
	"os"
	"path/filepath"
	"testing"

	"sluice/internal/backend"
	"sluice/internal/backend/nftables"
	"sluice/internal/engine/apply"
)

// A worker has the kernel held against what the policy means; held against its own
// optimized program, an apply would prove the optimizer by itself.
func TestPrepareHasWhatIsExpected(t *testing.T) {
	file := filepath.Join(t.TempDir(), "policy.yaml")
	text := "version: 1\ninput:\n  default: drop\n  rules:\n"
	for _, last := range []string{"1", "3", "5", "7", "9", "11"} {
		text += "    - allow tcp/22 from 192.0.2." + last + "\n"
	}
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	w := &worker{can: backend.Capabilities{backend.SetElementCounters: backend.Yes}}
	in, err := w.prepare(t.Context(), &apply.Host{Backend: nftables.New()}, order{File: file})
	if err != nil {
		t.Fatal(err)
	}
	if in.Expected == nil || in.Expected.Text() == in.Program.Text() {
		t.Errorf("the kernel would be held against the optimizer's own program: %v", in.Expected)
	}
}
