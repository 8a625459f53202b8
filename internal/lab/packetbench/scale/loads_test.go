package scale

import (
	"context"
	"os"
	"testing"

	"sluice/internal/backend/nftables/calibration"
	"sluice/internal/lab/testnet"
)

// TestApplyHasCalibration: what is loaded is laid out as it would be here.
func TestApplyHasCalibration(t *testing.T) {
	const want = "figures of this machine"
	here := t.TempDir()
	if err := os.WriteFile(calibration.File(here), []byte(want), 0o600); err != nil {
		t.Fatal(err)
	}
	s := &series{Options: Options{Binary: "sluice", StateDir: here}}
	got := "not run"
	run := func(_ context.Context, _ *testnet.Namespace, _, _ string, args ...string) error {
		data, err := os.ReadFile(calibration.File(args[len(args)-1]))
		got = string(data)
		return err
	}
	if err := s.apply(t.Context(), &testnet.Namespace{}, "policy.yaml", run); err != nil || got != want {
		t.Errorf("calibration %q, %v, want %q", got, err, want)
	}
}
