package packetbench

import (
	"os"
	"testing"

	"sluice/internal/backend/nftables/calibration"
)

// TestStateHasCalibration: what is measured is laid out as it would be here.
func TestStateHasCalibration(t *testing.T) {
	here := t.TempDir()
	for _, want := range []string{"", "figures of this machine"} {
		if want != "" {
			if err := os.WriteFile(calibration.File(here), []byte(want), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		s, err := newState(here, func(text string) { t.Error(text) })
		if err != nil {
			t.Fatal(err)
		}
		defer s.remove()
		if got, _ := os.ReadFile(calibration.File(s.dir)); string(got) != want {
			t.Errorf("calibration %q, want %q", got, want)
		}
	}
}
