package kernels

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// A folder of 1 GiB and more goes with the process that made it, be it that the next
// run takes it away.
func TestLeftoversOfKilledRunsGo(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	dead := exec.Command("true")
	if err := dead.Run(); err != nil {
		t.Fatal(err)
	}
	for name, kept := range map[string]bool{
		fmt.Sprintf("%s%d-1", workPrefix, dead.Process.Pid): false,
		fmt.Sprintf("%s%d-1", workPrefix, os.Getpid()):      true,
		workPrefix + "1969955272":                           true, // of nobody that is known
		workPrefix + "-1-2":                                 true,
		workPrefix + "x-1":                                  true,
	} {
		folder := filepath.Join(os.TempDir(), name)
		if err := os.Mkdir(folder, 0o700); err != nil {
			t.Fatal(err)
		}
		RemoveLeftovers(workPrefix)
		if _, err := os.Stat(folder); (err == nil) != kept {
			t.Errorf("%s: stays: %v, want %v", name, err == nil, kept)
		}
	}
}
